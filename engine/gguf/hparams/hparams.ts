import { ArchitectureKeys } from "./architecture_keys.ts";
import { GgufError, quote } from "../errors.ts";
import { byteOf } from "../metadata.ts";
import type { GgufFile, TensorInfo } from "../types.ts";

/** How rotary frequencies are scaled for contexts longer than in training. */
export type RopeScaling =
  /** No scaling of frequencies: positions are divided by `factor`, which is 1 except for "linear". */
  | { readonly type: "none" | "linear" | "longrope"; readonly factor: number }
  /** YaRN: the frequencies of slow pairs are divided by `factor`, and those of fast pairs are kept. */
  | {
    readonly type: "yarn";
    readonly factor: number;
    readonly originalContext: number;
    /**
     * Rotated pairs with at least `betaFast` turns in the original context keep their frequency; pairs with at most
     * `betaSlow` are divided.
     */
    readonly betaFast: number;
    readonly betaSlow: number;
    /** Multiplier that cancels part of YaRN's magnitude. */
    readonly logMultiplier: number;
  };

/** The shape of one layer; layers may differ. */
export interface LayerShape {
  readonly heads: number;
  /** Number of KV heads of the layer; divides heads. */
  readonly kvHeads: number;
  /** Width of a dense feed-forward block; 0 if every layer has experts and the file has no dense width. */
  readonly feedForwardLength: number;
}

/** Features that an architecture's files may use beyond a plain decoder's. */
export interface Allowed {
  /** Whether layers may have mixtures of experts. */
  readonly experts?: boolean;
  /**
   * Layers may have different shapes. Heads, KV heads and the feed-forward width may be 0; the architecture
   * defines what that means.
   */
  readonly layersDiffer?: boolean;
  /** Whether no layer has attention, and so the model has no heads. */
  readonly noAttention?: boolean;
  /** Whether attention may be bidirectional instead of causal. */
  readonly bothDirections?: boolean;
  /** Whether the model has LayerNorms; their epsilon has a separate key. */
  readonly layerNorm?: boolean;
  /** Whether value heads may differ in width from key heads. */
  readonly valuesDiffer?: boolean;
  /** Whether the LayerNorm epsilon key replaces a missing RMSNorm epsilon key. */
  readonly eitherEpsilon?: boolean;
}

/** The shape of a transformer. All numbers are within limits and consistent with each other. */
export interface Hparams {
  /** `general.architecture`, the prefix of the other keys. */
  readonly architecture: string;
  readonly blockCount: number;
  /** Context length of the training, in tokens. */
  readonly contextLength: number;
  readonly embeddingLength: number;
  /** Largest feed-forward width of all layers. headCount and headCountKv are maxima too. */
  readonly feedForwardLength: number;
  readonly headCount: number;
  readonly headCountKv: number;
  /** Shape of each of the blockCount layers. */
  readonly layers: readonly LayerShape[];
  /** Dimensions of a query or key head; an even number, and 0 without attention. */
  readonly keyLength: number;
  readonly valueLength: number;
  /** Number of a head's leading dimensions that are rotated; an even number up to keyLength. */
  readonly ropeDimensionCount: number;
  readonly ropeFreqBase: number;
  readonly ropeScaling: RopeScaling;
  /** Factor on cosine and sine, in addition to YaRN's. */
  readonly ropeMagnitude: number;
  /** Context length of the training before the context was extended, in tokens. */
  readonly ropeOriginalContext: number;
  /** Epsilon of the norms. */
  readonly epsilon: number;
  readonly vocabSize: number;
}

/** Upper limits of hyper-parameters: about four times the largest published models. */
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
 * Reads the hyper-parameters that all architectures share, with llama.cpp's defaults, and checks the token
 * embedding against them. Throws GgufError: GGUF_HPARAM with the key for a wrong value or a feature that is not
 * `allowed`, GGUF_VOCAB if embedding and tokens differ.
 *
 * Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md#llm
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
  if ((headCount === 0) !== (allowed.noAttention ?? false)) {
    const must = allowed.noAttention ? "0 in this architecture" : "at least 1 in one layer";
    keys.refuse("attention.head_count", String(headCount), must);
  }
  const lengths = headCount > 0
    ? readHeadLengths(keys, headCount, embeddingLength)
    : { keyLength: 0, valueLength: 0 };
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
    ropeDimensionCount: headCount > 0 ? readRopeDimensionCount(keys, lengths.keyLength) : 0,
    ropeFreqBase: keys.ropeBase(10_000),
    ropeScaling: readRopeScaling(keys, ropeOriginalContext),
    ropeMagnitude: keys.scale("rope.scaling.attn_factor", 1),
    ropeOriginalContext,
    epsilon: keys.positive(epsilonKey(keys, allowed), 1),
    vocabSize: readVocabSize(file, keys, embeddingLength),
  };
}

/**
 * Returns the tensor of that name and exact shape (ggml order: contiguous dimension first). Throws
 * GgufError(GGUF_HPARAM) where it is missing or its shape differs from the keys.
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

/** Throws GgufError for a single shard, which holds only part of the model. `openGguf` finds the others. */
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
  // A model with experts in all layers may lack the dense width.
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

/** Reads how rotary frequencies are scaled. Llama 3's scaling has no key; it is in the tensor `rope_freqs.weight`. */
function readRopeScaling(keys: ArchitectureKeys, originalContext: number): RopeScaling {
  const type = keys.metadata.getString(keys.name("rope.scaling.type"), "linear");
  if (type === "none" || type === "longrope") return { type, factor: 1 };
  if (type !== "linear" && type !== "yarn") {
    keys.refuse("rope.scaling.type", quote(type), `"none", "linear", "yarn" or "longrope"`);
  }
  const key = keys.has("rope.scaling.factor") ? "rope.scaling.factor" : "rope.scale_linear";
  // Older converters write a factor of 0 for "not scaled".
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

/**
 * Returns the number of rows of the token embedding, which must equal the token count. For a file without weights,
 * returns the token count.
 */
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
