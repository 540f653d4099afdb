import { joinDrafter } from "../../architectures/drafters/drafter.ts";
import { readGemma4Assistant } from "../../architectures/drafters/gemma4_assistant.ts";
import { quote } from "../../gguf/errors.ts";
import { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import type { GgufFile } from "../../gguf/types.ts";
import { checkFit, madeForAnother, readIn } from "./fit.ts";
import type { OpenedDrafter } from "./types.ts";

const MODEL = "gemma4";
/** Keys whose values must be equal in the drafter and the model, because the drafter reads the model's KV caches. */
const SHARED = ["attention.key_length", "attention.key_length_swa", "attention.sliding_window"];

/** Opens a drafter for a model of Gemma 4. The drafter reads the model's KV caches. */
export async function openGemma4Assistant(file: GgufFile, model: GgufFile): Promise<OpenedDrafter> {
  const [keys, own] = [file, model].map(({ metadata }) => ArchitectureKeys.of(metadata));
  const architecture = model.metadata.getString("general.architecture");
  if (architecture !== MODEL) {
    throw madeForAnother(file, `it drafts for ${quote(MODEL)}, the model is ${quote(architecture)}`);
  }
  const description = await readIn(file, readGemma4Assistant(file, model));
  checkFit(file, model, description);
  for (const name of SHARED) {
    const [its, ours] = [keys, own].map((keys) => keys.metadata.getCount(keys.name(name), 0));
    if (its !== ours) throw madeForAnother(file, `its ${name} is ${its}, the model's is ${ours}`);
  }
  return { description, joined: joinDrafter(model, file), onePosition: true };
}
