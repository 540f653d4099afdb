import { join } from "@std/path";
import { quote } from "../gguf/errors.ts";
import { refuse } from "./errors.ts";
import { Fields, inWords, isObject, readJson } from "./json.ts";
import { type Entry, entry } from "./metadata.ts";
import type { ConvertedModel } from "./models.ts";

const MAX_BYTES = 1024 * 1024;

/** sentence-transformers' keys, with GGUF's codes. */
const WAYS: Readonly<Record<string, number>> = {
  pooling_mode_mean_tokens: 1,
  pooling_mode_cls_token: 2,
  pooling_mode_lasttoken: 3,
};

/**
 * How sentence-transformers' modules make one row of a text's rows: `pooling_type`; nothing for a folder without them. That
 * rows get length 1 is what every reader does. A model that ranks says so itself. Throws ConvertError for a module, or a way, that
 * GGUF has no place for.
 */
export async function poolingEntries(
  folder: string,
  { architecture, entries: known }: Pick<ConvertedModel, "architecture" | "entries">,
): Promise<Entry[]> {
  const name = `${architecture}.pooling_type`;
  if (known.some(({ key }) => key === name)) return [];
  const path = join(folder, "modules.json");
  const modules = await readJson(path, MAX_BYTES);
  if (modules === undefined) return [];
  if (!Array.isArray(modules)) refuse(path, undefined, `must be an array (got ${inWords(modules)})`);
  const entries: Entry[] = [];
  for (const [i, module] of modules.entries()) {
    const fields = Fields.of(path, module, `[${i}].`);
    const kind = fields.string("type").split(".").at(-1)!;
    if (kind === "Transformer" || kind === "Normalize") continue;
    if (kind !== "Pooling") {
      fields.refuse("type", quote(kind), `"Transformer", "Pooling" or "Normalize"`);
    }
    const place = fields.string("path");
    // A plain name: nothing outside the folder is read on a stranger's word.
    if (!/^\w[\w.-]*$/.test(place)) fields.refuse("path", quote(place), "the plain name of a folder");
    entries.push(
      entry(`${architecture}.pooling_type`, "UINT32", await wayOf(join(folder, place, "config.json"))),
    );
  }
  return entries;
}

async function wayOf(path: string): Promise<number> {
  const config = await readJson(path, MAX_BYTES);
  if (!isObject(config)) refuse(path, undefined, `must be an object (got ${inWords(config)})`);
  const asked = Object.keys(config).filter((key) => key.startsWith("pooling_mode_") && config[key] === true);
  if (asked.length === 1 && Object.hasOwn(WAYS, asked[0])) return WAYS[asked[0]];
  const known = Object.keys(WAYS).map(quote).join(", ");
  refuse(path, undefined, `must ask for one of ${known} (got ${asked.map(quote).join(", ") || "none"})`);
}
