import { join } from "@std/path";
import { quote } from "../../engine/gguf/errors.ts";
import { refuse } from "../errors.ts";
import { Fields, inWords, isObject, readJson } from "../checkpoint/json.ts";
import { type Entry, entry } from "../write/metadata.ts";
import type { ConvertedModel } from "../models.ts";

const MAX_BYTES = 1024 * 1024;

/** GGUF's codes of pooling modes, by sentence-transformers' keys. */
const WAYS: Readonly<Record<string, number>> = {
  pooling_mode_mean_tokens: 1,
  pooling_mode_cls_token: 2,
  pooling_mode_lasttoken: 3,
};

/** A dense module after the pooling: a matrix in a separate folder. */
export interface DenseModule {
  readonly folder: string;
  readonly inputs: number;
  readonly outputs: number;
}

/** Modules after the transformer: pooling and dense matrices. */
export interface TextModules {
  readonly entries: readonly Entry[];
  readonly dense: readonly DenseModule[];
}

const MAX_FEATURES = 131_072;
/** The architecture in which GGUF has names for matrices after the pooling, and their number. */
const DENSE = { architecture: "gemma-embedding", count: 2 };

/**
 * Returns the folder's pooling type and dense matrices, from sentence-transformers' modules; nothing for a folder
 * without modules. Normalization to length 1 needs no key, because every reader does it. A ranking model writes its own
 * pooling type. Throws ConvertError for a module or pooling mode that GGUF does not support.
 */
export async function readTextModules(
  folder: string,
  { architecture, entries: known }: Pick<ConvertedModel, "architecture" | "entries">,
): Promise<TextModules> {
  const name = `${architecture}.pooling_type`;
  const none = { entries: [], dense: [] };
  if (known.some(({ key }) => key === name)) return none;
  const path = join(folder, "modules.json");
  const modules = await readJson(path, MAX_BYTES);
  if (modules === undefined) return none;
  if (!Array.isArray(modules)) refuse(path, undefined, `must be an array (got ${inWords(modules)})`);
  const entries: Entry[] = [];
  const dense: DenseModule[] = [];
  const hasDense = architecture === DENSE.architecture;
  for (const [i, module] of modules.entries()) {
    const fields = Fields.of(path, module, `[${i}].`);
    const kind = fields.string("type").split(".").at(-1)!;
    if (kind === "Transformer" || kind === "Normalize") continue;
    if (kind !== "Pooling" && !(kind === "Dense" && hasDense)) {
      const allowed = `"Transformer", "Pooling"${hasDense ? `, "Dense"` : ""} or "Normalize"`;
      fields.refuse("type", quote(kind), allowed);
    }
    const place = fields.string("path");
    // modules.json is untrusted, so only plain names are allowed, which cannot reach outside the folder.
    if (!/^\w[\w.-]*$/.test(place)) fields.refuse("path", quote(place), "the plain name of a folder");
    if (kind === "Dense") {
      dense.push(await readDense(join(folder, place)));
      continue;
    }
    entries.push(
      entry(`${architecture}.pooling_type`, "UINT32", await wayOf(join(folder, place, "config.json"))),
    );
  }
  if (dense.length !== 0 && dense.length !== DENSE.count) {
    refuse(
      path,
      undefined,
      `must have ${DENSE.count} modules of the type "Dense", or none (got ${dense.length})`,
    );
  }
  return { entries: [...entries, ...denseEntries(architecture, dense)], dense };
}

/**
 * Returns GGUF's name of dense matrix `i`. GGUF counts modules: the transformer is 0 and the pooling is 1.
 */
export function denseName(i: number): string {
  return `dense_${i + 2}`;
}

function denseEntries(architecture: string, dense: readonly DenseModule[]): Entry[] {
  return dense.flatMap(({ inputs, outputs }, i) => [
    entry(`${architecture}.${denseName(i)}_feat_in`, "UINT32", inputs),
    entry(`${architecture}.${denseName(i)}_feat_out`, "UINT32", outputs),
  ]);
}

async function readDense(folder: string): Promise<DenseModule> {
  const path = join(folder, "config.json");
  const config = Fields.of(path, await readJson(path, MAX_BYTES));
  config.mustBe("bias", false, "GGUF has no place for a bias");
  config.mustBe("activation_function", "torch.nn.modules.linear.Identity", "no activation is computed");
  const [inputs, outputs] = ["in_features", "out_features"].map((name) => config.count(name, MAX_FEATURES));
  return { folder, inputs, outputs };
}

async function wayOf(path: string): Promise<number> {
  const config = await readJson(path, MAX_BYTES);
  if (!isObject(config)) refuse(path, undefined, `must be an object (got ${inWords(config)})`);
  const asked = Object.keys(config).filter((key) => key.startsWith("pooling_mode_") && config[key] === true);
  if (asked.length === 1 && Object.hasOwn(WAYS, asked[0])) return WAYS[asked[0]];
  const known = Object.keys(WAYS).map(quote).join(", ");
  refuse(path, undefined, `must ask for one of ${known} (got ${asked.map(quote).join(", ") || "none"})`);
}
