import { LibraryNotFound } from "../../ffi/find.ts";
import type { Finding, ModelNeeds, Wanted, World } from "../types.ts";
import { counted, reasonOf, size } from "../units.ts";

/** Maximum number of a folder's models to inspect; each takes a few tenths of a second. */
const MOST_LOOKED_INTO = 16;
const MOST_NAMED = 4;

interface Refused {
  readonly path: string;
  readonly reason: string;
}

/** Checks by their headers whether the models can run here. */
export async function checkModels(
  world: Pick<World, "measureModel" | "modelsIn">,
  wanted: Wanted,
): Promise<Finding> {
  const { models, folder } = wanted;
  const offered = folder === undefined ? [] : world.modelsIn(folder);
  const fitting: string[] = [];
  const refused: Refused[] = [];
  for (const path of [...models, ...offered.slice(0, MOST_LOOKED_INTO)]) {
    try {
      fitting.push(described(await world.measureModel(path, wanted)));
    } catch (error) {
      if (error instanceof LibraryNotFound) throw error; // a missing library says nothing about the model
      refused.push({ path, reason: reasonOf(error, wanted.words) });
    }
  }
  const figures = { fit: fitting.length, refused: refused.map(({ path }) => path) };
  const skipped = Math.max(0, offered.length - MOST_LOOKED_INTO);
  const found = [
    ...(fitting.length > 0 ? [`${counted(fitting.length, "model")} can run: ${few(fitting)}`] : []),
    ...(refused.length > 0
      ? [`${refused.length} cannot: ${refused.map(({ path }) => path).join(", ")}`]
      : []),
    ...(skipped > 0 ? [`${skipped} more not checked`] : []),
  ].join("; ");
  if (fitting.length + refused.length === 0) {
    const where = folder === undefined ? "" : ` in ${folder}`;
    const advice = "put a GGUF file there (deno task pull does), or name one with --model";
    return { status: "wrong", found: `no model${where}`, advice, figures };
  }
  if (refused.length === 0) return { status: "ok", found, figures };
  // A model named by the user must run. In a folder, one model that runs is enough.
  const named = refused.some(({ path }) => models.includes(path));
  return {
    status: named || fitting.length === 0 ? "wrong" : "slow",
    found,
    advice: refused.map(({ reason }) => reason).join("\n"),
    figures,
  };
}

function described({ name, bytes, tokenBytes }: ModelNeeds): string {
  return `${name} (${size(bytes)}${
    tokenBytes === undefined ? "" : `, of which a token reads ${size(tokenBytes)}`
  })`;
}

function few(names: readonly string[]): string {
  const more = names.length - MOST_NAMED;
  return [...names.slice(0, MOST_NAMED), ...(more > 0 ? [`${more} more`] : [])].join(", ");
}
