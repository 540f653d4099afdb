import { joinDrafter } from "../../architectures/drafters/drafter.ts";
import { readGemma4Assistant } from "../../architectures/drafters/gemma4_assistant.ts";
import { quote } from "../../gguf/errors.ts";
import { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import type { GgufFile } from "../../gguf/types.ts";
import { checkFit, madeForAnother, readIn } from "./fit.ts";
import type { OpenedDrafter } from "./types.ts";

const MODEL = "gemma4";
/**
 * Returns the keys whose values must be equal in the drafter and the model, because the drafter reads the model's KV
 * caches. Missing keys have the values that a plan has. Throws GgufError.
 */
function sharedKeys({ metadata }: GgufFile): Map<string, number> {
  const keys = ArchitectureKeys.of(metadata);
  const number = (name: string, fallback: number) => metadata.getNumber(keys.name(name), fallback);
  const length = number("attention.key_length", 0);
  const slidingLength = number("attention.key_length_swa", length);
  return new Map([
    ["attention.key_length", length],
    ["attention.key_length_swa", slidingLength],
    ["attention.sliding_window", keys.window()],
    ["rope.freq_base", keys.ropeBase(10_000)],
    ["rope.freq_base_swa", keys.ropeBase(10_000, "_swa")],
    ["rope.dimension_count_swa", number("rope.dimension_count_swa", slidingLength)],
  ]);
}

/** Opens a drafter for a model of Gemma 4. The drafter reads the model's KV caches. */
export async function openGemma4Assistant(file: GgufFile, model: GgufFile): Promise<OpenedDrafter> {
  const architecture = model.metadata.getString("general.architecture");
  if (architecture !== MODEL) {
    throw madeForAnother(file, `it drafts for ${quote(MODEL)}, the model is ${quote(architecture)}`);
  }
  const description = await readIn(file, () => readGemma4Assistant(file, model));
  const { tokenizer } = await checkFit(file, model, description);
  const values = await readIn(file, () => sharedKeys(file));
  for (const [name, ours] of sharedKeys(model)) {
    const its = values.get(name);
    if (its !== ours) throw madeForAnother(file, `its ${name} is ${its}, the model's is ${ours}`);
  }
  return { file, description, joined: joinDrafter(model, file), tokenizer };
}
