import { ArchitectureKeys } from "./architecture_keys.ts";
import { GgufError, quote } from "./errors.ts";
import { byteOf } from "./metadata.ts";
import type { GgufFile, Metadata, TensorInfo } from "./types.ts";

/** The shape of a decoder-only transformer, each number proven to be in its bounds and to fit the others. */
export interface Hparams {
  /** `general.architecture`; the prefix of the other keys. */
  readonly architecture: string;
  readonly blockCount: number;
  /** Tokens that the model was trained for. */
  readonly contextLength: number;
  readonly embeddingLength: number;
  readonly feedForwardLength: number;
  readonly headCount: number;
  /** Divides headCount. */
  readonly headCountKv: number;
  /** Dimensions of a query or key head; even. */
  readonly keyLength: number;
  readonly valueLength: number;
  /** Leading dimensions of a head that are rotated; even, at most keyLength. */
  readonly ropeDimensionCount: number;
  readonly ropeFreqBase: number;
  /** Positions are divided by `factor`, which is 1 for "none". */
  readonly ropeScaling: { readonly type: "none" | "linear"; readonly factor: number };
  readonly rmsEpsilon: number;
  readonly vocabSize: number;
}

/** Upper bounds: some four times the largest published models. */
const MAX = {
  blockCount: 1024,
  contextLength: 16_777_216,
  embeddingLength: 131_072,
  feedForwardLength: 1_048_576,
  headCount: 1024,
  headLength: 4096,
  vocabSize: 1_048_576,
  ropeFreqBase: 1e15,
  ropeFactor: 65_536,
};

/**
 * Reads the hyper-parameters that all decoders have in common, and checks the token embedding against them; `mixture`
 * says that the architecture may have experts. Throws GgufError: GGUF_HPARAM naming the key, GGUF_VOCAB where embedding and tokens differ.
 * Defaults are llama.cpp's.  Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md#llm
 */
export function readHparams(file: GgufFile, mixture = false): Hparams {
  refuseSplit(file.metadata);
  const architecture = file.metadata.getString("general.architecture");
  const keys = new ArchitectureKeys(file.metadata, architecture);
  const blockCount = keys.count("block_count", MAX.blockCount);
  const embeddingLength = keys.count("embedding_length", MAX.embeddingLength);
  const feedForwardLength = keys.uniformCount("feed_forward_length", MAX.feedForwardLength, blockCount);
  if (!mixture) keys.refuseExperts();
  keys.refuseUnsupported();
  const heads = readHeads(keys, blockCount, embeddingLength);
  return {
    architecture,
    blockCount,
    contextLength: keys.count("context_length", MAX.contextLength),
    embeddingLength,
    feedForwardLength,
    ...heads,
    ropeDimensionCount: readRopeDimensionCount(keys, heads.keyLength),
    ropeFreqBase: keys.positive("rope.freq_base", MAX.ropeFreqBase, 10_000),
    ropeScaling: readRopeScaling(keys),
    rmsEpsilon: keys.positive("attention.layer_norm_rms_epsilon", 1),
    vocabSize: readVocabSize(file, keys, embeddingLength),
  };
}

/**
 * The tensor of that name, with exactly that shape (ggml order: the contiguous dimension first). Throws
 * GgufError(GGUF_HPARAM) where it is missing or of another shape than the keys say.
 */
export function requireTensor(file: GgufFile, name: string, shape: readonly number[]): TensorInfo {
  const field = `tensor ${quote(name)}`;
  const tensor = file.tensors.get(name);
  if (!tensor) {
    throw new GgufError("GGUF_HPARAM", `missing; must have shape ${shape.join(" x ")}`, { field });
  }
  if (tensor.shape.length !== shape.length || tensor.shape.some((size, i) => size !== shape[i])) {
    const detail = `must have shape ${shape.join(" x ")}, as the keys say (got ${tensor.shape.join(" x ")})`;
    throw new GgufError("GGUF_HPARAM", detail, { field });
  }
  return tensor;
}

/** Models that are split into several files have this key in each. */
function refuseSplit(metadata: Metadata): void {
  const key = "split.count";
  const parts = metadata.getCount(key, 1);
  if (parts <= 1) return;
  const place = { byte: byteOf(metadata, key), field: `key ${quote(key)}` };
  const detail = `the model is split into ${parts} files; join them with llama-gguf-split --merge`;
  throw new GgufError("GGUF_HPARAM", detail, place);
}

type Heads = Pick<Hparams, "headCount" | "headCountKv" | "keyLength" | "valueLength">;

function readHeads(keys: ArchitectureKeys, blockCount: number, embeddingLength: number): Heads {
  const headCount = keys.uniformCount("attention.head_count", MAX.headCount, blockCount);
  const headCountKv = keys.uniformCount("attention.head_count_kv", headCount, blockCount, headCount);
  if (headCount % headCountKv !== 0) {
    keys.refuse("attention.head_count_kv", String(headCountKv), `a divisor of the ${headCount} heads`);
  }
  const whole = embeddingLength % headCount === 0;
  if (!whole && !(keys.has("attention.key_length") && keys.has("attention.value_length"))) {
    const allowed = `a divisor of the embedding length ${embeddingLength}, or key_length and value_length`;
    keys.refuse("attention.head_count", String(headCount), allowed);
  }
  const headLength = embeddingLength / headCount;
  const keyLength = keys.count("attention.key_length", MAX.headLength, headLength);
  if (keyLength % 2 !== 0) keys.refuse("attention.key_length", String(keyLength), "an even number");
  const valueLength = keys.count("attention.value_length", MAX.headLength, headLength);
  return { headCount, headCountKv, keyLength, valueLength };
}

function readRopeDimensionCount(keys: ArchitectureKeys, keyLength: number): number {
  const count = keys.count("rope.dimension_count", keyLength, keyLength);
  if (count % 2 !== 0) keys.refuse("rope.dimension_count", String(count), "an even number");
  return count;
}

/** Llama 3's own scaling is no key: it comes as the tensor `rope_freqs.weight`. */
function readRopeScaling(keys: ArchitectureKeys): Hparams["ropeScaling"] {
  const type = keys.metadata.getString(keys.name("rope.scaling.type"), "linear");
  if (type === "none") return { type, factor: 1 };
  if (type !== "linear") keys.refuse("rope.scaling.type", quote(type), `"none" or "linear"`);
  const key = keys.has("rope.scaling.factor") ? "rope.scaling.factor" : "rope.scale_linear";
  // 0 stands for "not scaled" in files of older converters.
  const factor = keys.metadata.getNumber(keys.name(key), 0);
  if (factor === 0 || factor === 1) return { type: "none", factor: 1 };
  return { type, factor: keys.positive(key, MAX.ropeFactor) };
}

/** Rows of the token embedding, which must be the tokens; of a file without weights, the tokens. */
function readVocabSize(file: GgufFile, keys: ArchitectureKeys, embeddingLength: number): number {
  const tokens = file.metadata.getStrings("tokenizer.ggml.tokens")?.length;
  const embedding = file.tensors.get("token_embd.weight");
  if (!embedding && file.tensors.size > 0) {
    requireTensor(file, "token_embd.weight", [embeddingLength, tokens ?? 0]);
  }
  if (!embedding) return tokens ?? keys.count("vocab_size", MAX.vocabSize);
  const rows = embedding.shape[1] ?? 0;
  if (tokens !== undefined && rows !== tokens) {
    const place = { field: `tensor "token_embd.weight"` };
    throw new GgufError("GGUF_VOCAB", `must have ${tokens} rows, one for each token (got ${rows})`, place);
  }
  requireTensor(file, "token_embd.weight", [embeddingLength, rows]);
  return rows;
}
