import { type Drafter, withOwnNames } from "../../architectures/drafters/drafter.ts";
import { layersBeforeDrafts } from "../../architectures/left_out.ts";
import type { EngineError } from "../../api/errors.ts";
import { GgufError, quote } from "../../gguf/errors.ts";
import { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import type { GgufFile } from "../../gguf/types.ts";
import type { Plan } from "../../plan/plan.ts";
import { createTokenizer } from "../../tokenizer/tokenizer.ts";
import type { Tokenizer } from "../../tokenizer/types.ts";
import { cannotDraft, commonVocabulary } from "../draft_vocabulary.ts";
import type { OpenedDrafter } from "./types.ts";

/** Returns the error for a drafter that was made for another model. */
export function madeForAnother({ path }: GgufFile, reason: string): EngineError {
  return cannotDraft(path, reason, "name a drafter that was made for this model");
}

/** Reads a drafter's file. If `read` throws a GgufError, the message gets the file's name. */
export async function readIn<D>({ path }: GgufFile, read: () => Promise<D> | D): Promise<D> {
  try {
    return await read();
  } catch (error) {
    if (error instanceof GgufError) nameFile(error, path);
    throw error;
  }
}

function nameFile(error: GgufError, path: string): void {
  error.message = `In ${quote(path)}: ${error.message}`;
}

/** Awaits the plan of a model with a drafter. A GgufError about the drafter names its file and its own tensor there. */
export async function planIn({ file, joined }: OpenedDrafter, plan: Promise<Plan>): Promise<Plan> {
  const prefix = ArchitectureKeys.of(file.metadata).name("");
  try {
    return await plan;
  } catch (error) {
    if (!(error instanceof GgufError)) throw error;
    const { message, field = "" } = error;
    const names = { message: withOwnNames(message, joined), field: withOwnNames(field, joined) };
    const isDrafters = names.field !== field || field.startsWith(`key "${prefix}`);
    if (isDrafters) nameFile(Object.assign(error, names), file.path);
    throw error;
  }
}

/** The facts that the check of a drafter finds. */
interface Fit {
  /** Number of tokens that both vocabularies share. */
  readonly common: number;
  /** The model's tokenizer. */
  readonly tokenizer: Tokenizer;
}

/** Throws EngineError if the drafter's row width, layers or vocabulary do not fit the model. Throws GgufError. */
export async function checkFit(
  file: GgufFile,
  model: GgufFile,
  { columns, layers, hparams }: Drafter,
): Promise<Fit> {
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
  const drafting = await readIn(file, () => createTokenizer(file.metadata));
  const tokenizer = createTokenizer(model.metadata);
  return { common: await commonVocabulary(file.path, drafting, tokenizer), tokenizer };
}
