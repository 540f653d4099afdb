import type { Drafter } from "../../architectures/drafters/drafter.ts";
import { layersBeforeDrafts } from "../../architectures/left_out.ts";
import type { EngineError } from "../../api/errors.ts";
import { GgufError, quote } from "../../gguf/errors.ts";
import { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import type { GgufFile } from "../../gguf/types.ts";
import { createTokenizer } from "../../tokenizer/tokenizer.ts";
import { cannotDraft, commonVocabulary } from "../draft_vocabulary.ts";

/** Returns the error for a drafter that was made for another model. */
export function madeForAnother({ path }: GgufFile, reason: string): EngineError {
  return cannotDraft(path, reason, "name a drafter that was made for this model");
}

/** Awaits the reading of a drafter's file. If it rejects with a GgufError, the message gets the file's name. */
export async function readIn<D>({ path }: GgufFile, reading: Promise<D>): Promise<D> {
  try {
    return await reading;
  } catch (error) {
    if (error instanceof GgufError) error.message = `In ${quote(path)}: ${error.message}`;
    throw error;
  }
}

/**
 * Returns the number of tokens that both vocabularies share. Throws EngineError if the drafter's row width, layers or
 * vocabulary do not fit the model.
 */
export function checkFit(file: GgufFile, model: GgufFile, { columns, layers, hparams }: Drafter): number {
  const [width, rows] = model.tensors.get("token_embd.weight")?.shape ?? [];
  if (columns !== width) {
    throw madeForAnother(file, `it reads hidden rows of ${columns} columns, the model's have ${width}`);
  }
  const keys = ArchitectureKeys.of(model.metadata);
  const last = layersBeforeDrafts(model, { blockCount: model.metadata.getCount(keys.name("block_count")) });
  const beyond = layers.find((layer) => layer > last);
  if (beyond !== undefined) {
    throw madeForAnother(file, `it reads rows of layer ${beyond}, the model has ${last} layers`);
  }
  const { vocabSize } = hparams;
  if (vocabSize !== rows) {
    throw madeForAnother(file, `its vocabulary has ${vocabSize} tokens, the model's has ${rows}`);
  }
  return commonVocabulary(file.path, createTokenizer(file.metadata), createTokenizer(model.metadata));
}
