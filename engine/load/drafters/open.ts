import { readDflash } from "../../architectures/drafters/dflash.ts";
import { readEagle3 } from "../../architectures/drafters/eagle3.ts";
import { openGguf } from "../../gguf/reader.ts";
import type { GgufFile } from "../../gguf/types.ts";
import type { OpenSource } from "../../gguf/byte_source.ts";
import { openGemma4Assistant } from "./gemma4_assistant.ts";
import { openRowDrafter } from "./row_drafter.ts";
import type { OpenDrafter, OpenedDrafter } from "./types.ts";

/** Drafters that become part of the model's plan, by `general.architecture` of their files. */
const DRAFTERS: Readonly<Record<string, OpenDrafter>> = {
  eagle3: (file, model) => openRowDrafter(file, model, readEagle3),
  dflash: (file, model) => openRowDrafter(file, model, readDflash),
  "gemma4-assistant": openGemma4Assistant,
};

/**
 * Returns the drafter in the file at `path`, or undefined if the file has another architecture. Throws GgufError for a
 * broken file, and EngineError for a drafter that was made for another model.
 */
export async function openDrafter(
  path: string,
  model: GgufFile,
  open?: OpenSource,
): Promise<OpenedDrafter | undefined> {
  const file = await openGguf(path, open);
  const architecture = file.metadata.entries.get("general.architecture");
  if (typeof architecture !== "string" || !Object.hasOwn(DRAFTERS, architecture)) return undefined;
  return await DRAFTERS[architecture](file, model);
}
