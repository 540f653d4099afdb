import { type Eagle3, isEagle3, joinEagle3, readEagle3 } from "../architectures/parts/eagle3.ts";
import { layersBeforeDrafts } from "../architectures/left_out.ts";
import { readBytes } from "../gguf/byte_source.ts";
import { GgufError, quote } from "../gguf/errors.ts";
import { ArchitectureKeys } from "../gguf/hparams/architecture_keys.ts";
import type { GgufFile } from "../gguf/types.ts";
import { createTokenizer } from "../tokenizer/tokenizer.ts";
import { cannotDraft, commonVocabulary } from "./draft_vocabulary.ts";

/** Name of the tensor that maps the drafter's tokens to the model's tokens. */
const TOKENS = "d2t";
const ADVICE = "name a drafter that was made for this model";

/** An EAGLE-3 drafter that fits its model. */
export interface OpenedEagle3 {
  readonly description: Eagle3;
  /** The model's file, with the drafter's tensors. */
  readonly joined: GgufFile;
  /** The model's token for each token of the drafter; undefined if both use the same tokens. */
  readonly tokens: Int32Array | undefined;
}

/**
 * Returns the EAGLE-3 drafter that the file contains, or undefined for another kind of file. Throws GgufError for a
 * broken file, and EngineError for a drafter that was made for another model.
 */
export async function openEagle3(file: GgufFile, model: GgufFile): Promise<OpenedEagle3 | undefined> {
  if (!isEagle3(file)) return undefined;
  const { path } = file;
  const own = file.integers.get(TOKENS);
  const description = await readEagle3(file, model, own?.length).catch((error) => {
    if (error instanceof GgufError) error.message = `In ${quote(path)}: ${error.message}`;
    throw error;
  });
  const width = model.tensors.get("token_embd.weight")?.shape[0];
  if (description.columns !== width) {
    const reason = `it reads hidden rows of ${description.columns} columns, the model's have ${width}`;
    throw cannotDraft(path, reason, ADVICE);
  }
  const keys = ArchitectureKeys.of(model.metadata);
  const layers = layersBeforeDrafts(model, { blockCount: model.metadata.getCount(keys.name("block_count")) });
  const beyond = description.layers.find((layer) => layer > layers);
  if (beyond !== undefined) {
    throw cannotDraft(path, `it reads rows of layer ${beyond}, the model has ${layers} layers`, ADVICE);
  }
  const rows = model.tensors.get("token_embd.weight")?.shape[1];
  const { vocabSize } = description.hparams;
  if (vocabSize !== rows) {
    throw cannotDraft(path, `its vocabulary has ${vocabSize} tokens, the model's has ${rows}`, ADVICE);
  }
  const common = commonVocabulary(path, createTokenizer(file.metadata), createTokenizer(model.metadata));
  const tokens = own && await readTokens(file);
  const wrong = tokens?.find((token) => token < 0n || token >= BigInt(common));
  if (wrong !== undefined) {
    const detail = `must have only tokens below ${common} (got ${wrong})`;
    throw new GgufError("GGUF_DATA", detail, { field: `tensor ${quote(TOKENS)} of ${quote(path)}` });
  }
  return { description, joined: joinEagle3(model, file), tokens: tokens && Int32Array.from(tokens, Number) };
}

async function readTokens(file: GgufFile): Promise<BigInt64Array> {
  const { path, offset, length } = file.integers.get(TOKENS)!;
  await using source = await file.open(path);
  const bytes = await readBytes(source, offset, length * BigInt64Array.BYTES_PER_ELEMENT);
  return new BigInt64Array(bytes.buffer);
}
