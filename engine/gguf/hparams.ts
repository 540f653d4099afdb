import { ArchitectureKeys } from "./architecture_keys.ts";
import { GgufError, quote } from "./errors.ts";
import { byteOf } from "./metadata.ts";
import type { GgufFile, TensorInfo } from "./types.ts";

/** How rotary frequencies are stretched for contexts that are longer than the trained one. */
export type RopeScaling =
  /** Positions are divided by `factor`, which is 1 but for "linear". */
  | { readonly type: "none" | "linear" | "longrope"; readonly factor: number }
  /** Slow pairs are divided by `factor`, fast ones are left alone. */
  | {
    readonly type: "yarn";
    readonly factor: number;
    readonly originalContext: number;
    /** Turns in the original context from which on a pair is left alone, and up to which it is divided. */
    readonly betaFast: number;
    readonly betaSlow: number;
    /** Takes back so much of the magnitude. */
    readonly logMultiplier: number;
  };

/** What may differ from layer to layer. */
export interface LayerShape {
  readonly heads: number;
  /** Divides heads. */
  readonly kvHeads: number;
  /** 0 where all of a mixture's layers have experts and the file does not say it. */
  readonly feedForwardLength: number;
}

/** What files of an architecture may say beyond those of a plain decoder. */
export interface Allowed {
  /** Mixtures of experts. */
  readonly experts?: boolean;
  /** Layers of other shapes than the others; heads, KV heads and the feed-forward's width may be 0, and the graph says what that is. */
  readonly layersDiffer?: boolean;
  /** Attention that is not causal. */
  readonly bothDirections?: boolean;
  /** Norms about the mean, of which the epsilon has another key. */
  readonly layerNorm?: boolean;
  /** Values whose heads are not as wide as those of keys. */
  readonly valuesDiffer?: boolean;
  /** That key counts where the file does not have the usual one. */
  readonly eitherEpsilon?: boolean;
}

/** The shape of a transformer, each number proven to be in its bounds and to fit the others. */
export interface Hparams {
  /** `general.architecture`; the prefix of the other keys. */
  readonly architecture: string;
  readonly blockCount: number;
  /** Tokens that the model was trained for. */
  readonly contextLength: number;
  readonly embeddingLength: number;
  /** The largest of any layer, as headCount and headCountKv are. */
  readonly feedForwardLength: number;
  readonly headCount: number;
  readonly headCountKv: number;
  /** One for each of blockCount. */
  readonly layers: readonly LayerShape[];
  /** Dimensions of a query or key head; even. */
  readonly keyLength: number;
  readonly valueLength: number;
  /** Leading dimensions of a head that are rotated; even, at most keyLength. */
  readonly ropeDimensionCount: number;
  readonly ropeFreqBase: number;
  readonly ropeScaling: RopeScaling;
  /** What cosine and sine are multiplied by, beside YaRN's own. */
  readonly ropeMagnitude: number;
  /** Tokens that the model was trained for before its context was stretched. */
  readonly ropeOriginalContext: number;
  /** Of the norms. */
  readonly epsilon: number;
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
  ropeFactor: 65_536,
  ropeBeta: 65_536,
};

/**
 * Reads the hyper-parameters that all architectures have in common, and checks the token embedding against them. What is not
 * `allowed` is refused. Throws GgufError: GGUF_HPARAM naming the key, GGUF_VOCAB where embedding and tokens differ.
 * Defaults are llama.cpp's.  Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md#llm
 */
export function readHparams(file: GgufFile, allowed: Allowed = {}): Hparams {
  refuseSplit(file);
  const architecture = file.metadata.getString("general.architecture");
  const keys = new ArchitectureKeys(file.metadata, architecture);
  const blockCount = keys.count("block_count", MAX.blockCount);
  const embeddingLength = keys.count("embedding_length", MAX.embeddingLength);
  const contextLength = keys.count("context_length", MAX.contextLength);
  if (!allowed.experts) keys.refuseExperts();
  if (allowed.bothDirections) keys.refuseOneDirection();
  else keys.refuseBothDirections();
  const layers = readLayers(keys, blockCount, allowed);
  const most = (of: keyof LayerShape) => layers.reduce((most, layer) => Math.max(most, layer[of]), 0);
  const headCount = most("heads");
  if (headCount === 0) keys.refuse("attention.head_count", "0", "at least 1 in one layer");
  const lengths = readHeadLengths(keys, headCount, embeddingLength);
  const ropeOriginalContext = readOriginalContext(keys, contextLength);
  return {
    architecture,
    blockCount,
    contextLength,
    embeddingLength,
    feedForwardLength: most("feedForwardLength"),
    headCount,
    headCountKv: most("kvHeads"),
    layers,
    ...lengths,
    ropeDimensionCount: readRopeDimensionCount(keys, lengths.keyLength),
    ropeFreqBase: keys.ropeBase(10_000),
    ropeScaling: readRopeScaling(keys, ropeOriginalContext),
    ropeMagnitude: keys.scale("rope.scaling.attn_factor", 1),
    ropeOriginalContext,
    epsilon: keys.positive(epsilonKey(keys, allowed), 1),
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

function epsilonKey(keys: ArchitectureKeys, { layerNorm, eitherEpsilon }: Allowed): string {
  const [rms, mean] = ["attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"];
  return layerNorm || (eitherEpsilon && !keys.has(rms) && keys.has(mean)) ? mean : rms;
}

/** One of several files holds a part of the model only; `openGguf` finds the others. */
function refuseSplit({ metadata, paths }: GgufFile): void {
  const key = "split.count";
  const parts = metadata.getCount(key, 1);
  if (parts <= paths.length) return;
  const place = { byte: byteOf(metadata, key), field: `key ${quote(key)}` };
  const detail = `the model is split into ${parts} files, of which this is one`;
  throw new GgufError("GGUF_HPARAM", detail, place);
}

function readLayers(keys: ArchitectureKeys, blockCount: number, allowed: Allowed): LayerShape[] {
  const read = (name: string, max: number, fallback?: number) =>
    allowed.layersDiffer
      ? keys.perLayer(name, { layers: blockCount, max, least: 0, fallback })
      : Array<number>(blockCount).fill(keys.uniformCount(name, max, blockCount, fallback));
  // Files of mixtures need not say how wide layers without experts would be.
  const onlyExperts = allowed.experts && !keys.has("feed_forward_length") &&
    keys.has("expert_feed_forward_length");
  const feedForwards = onlyExperts
    ? Array<number>(blockCount).fill(0)
    : read("feed_forward_length", MAX.feedForwardLength);
  const heads = read("attention.head_count", MAX.headCount);
  const most = Math.max(...heads);
  const kvHeads = read("attention.head_count_kv", most, most);
  return heads.map((heads, i) => {
    if (heads > 0 && kvHeads[i] > 0 && heads % kvHeads[i] !== 0) {
      keys.refuse("attention.head_count_kv", String(kvHeads[i]), `a divisor of the ${heads} heads`);
    }
    return { heads, kvHeads: kvHeads[i], feedForwardLength: feedForwards[i] };
  });
}

type HeadLengths = Pick<Hparams, "keyLength" | "valueLength">;

function readHeadLengths(keys: ArchitectureKeys, headCount: number, embeddingLength: number): HeadLengths {
  const whole = embeddingLength % headCount === 0;
  if (!whole && !(keys.has("attention.key_length") && keys.has("attention.value_length"))) {
    const allowed = `a divisor of the embedding length ${embeddingLength}, or key_length and value_length`;
    keys.refuse("attention.head_count", String(headCount), allowed);
  }
  const headLength = embeddingLength / headCount;
  const keyLength = keys.count("attention.key_length", MAX.headLength, headLength);
  if (keyLength % 2 !== 0) keys.refuse("attention.key_length", String(keyLength), "an even number");
  const valueLength = keys.count("attention.value_length", MAX.headLength, headLength);
  return { keyLength, valueLength };
}

function readRopeDimensionCount(keys: ArchitectureKeys, keyLength: number): number {
  const count = keys.count("rope.dimension_count", keyLength, keyLength);
  if (count % 2 !== 0) keys.refuse("rope.dimension_count", String(count), "an even number");
  return count;
}

function readOriginalContext(keys: ArchitectureKeys, contextLength: number): number {
  const name = "rope.scaling.original_context_length";
  const given = keys.metadata.getCount(keys.name(name), 0);
  return given === 0 ? contextLength : keys.count(name, MAX.contextLength);
}

/** Llama 3's own scaling is no key: it comes as the tensor `rope_freqs.weight`. */
function readRopeScaling(keys: ArchitectureKeys, originalContext: number): RopeScaling {
  const type = keys.metadata.getString(keys.name("rope.scaling.type"), "linear");
  if (type === "none" || type === "longrope") return { type, factor: 1 };
  if (type !== "linear" && type !== "yarn") {
    keys.refuse("rope.scaling.type", quote(type), `"none", "linear", "yarn" or "longrope"`);
  }
  const key = keys.has("rope.scaling.factor") ? "rope.scaling.factor" : "rope.scale_linear";
  // 0 stands for "not scaled" in files of older converters.
  const factor = keys.metadata.getNumber(keys.name(key), 0);
  if (factor === 0 || factor === 1) return { type: "none", factor: 1 };
  const scaled = keys.positive(key, MAX.ropeFactor);
  return type === "yarn" ? readYarn(keys, scaled, originalContext) : { type, factor: scaled };
}

function readYarn(keys: ArchitectureKeys, factor: number, originalContext: number): RopeScaling {
  const extrapolated = keys.metadata.getNumber(keys.name("rope.scaling.yarn_ext_factor"), 1);
  if (extrapolated !== 1) keys.refuse("rope.scaling.yarn_ext_factor", String(extrapolated), "1");
  const logMultiplier = "rope.scaling.yarn_log_multiplier";
  return {
    type: "yarn",
    factor,
    originalContext,
    betaFast: keys.positive("rope.scaling.yarn_beta_fast", MAX.ropeBeta, 32),
    betaSlow: keys.positive("rope.scaling.yarn_beta_slow", MAX.ropeBeta, 1),
    logMultiplier: keys.has(logMultiplier) ? keys.scale(logMultiplier, 0) : 0,
  };
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
