import { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import { type ExpertHparams, readExpertHparams } from "../../gguf/hparams/expert_hparams.ts";
import type { Hparams, LayerShape } from "../../gguf/hparams/hparams.ts";
import type { PlanBuilder, Value } from "../../plan/builder.ts";
import { attention } from "../../plan/ops/attention.ts";
import { embed } from "../../plan/ops/embed.ts";
import { gate } from "../../plan/ops/gate.ts";
import { linear } from "../../plan/ops/matmul.ts";
import { postNorm, type PostNormOptions } from "../../plan/ops/post_norm.ts";
import { rmsNorm } from "../../plan/ops/rms_norm.ts";
import { ropeAppend } from "../../plan/ops/rope_append.ts";
import { ropeTable } from "../../plan/ops/rope_table.ts";
import type { HeadShape } from "../../plan/plan.ts";
import type { Architecture, TensorName } from "../architecture.ts";
import { geGlu, geGluRows } from "../parts/geglu.ts";
import { handOut } from "../parts/hidden_rows.ts";
import { placeImages } from "../parts/images.ts";
import { experts, router } from "../parts/mixture.ts";
import type { Rope } from "../parts/rope.ts";

const MAX = { headLength: 4096, perLayer: 65_536 };
const HEAD_DIM_STEP = 16;
/** Tensors that a layer does not need when it reads another layer's KV cache. */
const UNREAD = ["attn_k", "attn_v", "attn_k_norm"];

/**
 * Gemma 4: layers with a window have their own head size and rotary positions. The last layers read earlier
 * layers' KV caches. Layers may have per-layer token embeddings, and experts beside the feed-forward block.
 * Source: Hugging Face transformers, models/gemma4.
 */
export const GEMMA4: Architecture = {
  allows: { layersDiffer: true, experts: true },
  images: "line",
  ending: (keys) => ({ logits: { softcap: keys.softcap("final_logit_softcapping") } }),
  build: buildGemma4,
};

/** Attributes of one kind of layer: with a window, or without. */
export interface Kind {
  readonly headDim: number;
  readonly rotated: number;
  readonly table: Value;
  readonly window: number;
  /** Whether an image's rows attend only to their own and earlier positions. */
  readonly causal: boolean;
  /** Heads and KV cache of the last layer of the same kind (with or without a window). */
  kept?: HeadShape;
}

function buildGemma4(b: PlanBuilder, h: Hparams, rope: Rope): Value {
  const keys = ArchitectureKeys.of(b.file.metadata);
  const sliding = keys.windowLayers(h.blockCount);
  const own = h.blockCount - sharedLayers(keys, h.blockCount);
  const x = embed(b, "token_embd", h.vocabSize, h.embeddingLength, Math.sqrt(h.embeddingLength));
  placeImages(b, x);
  const kinds = attentionKinds(b, keys, h, rope);
  const perLayer = perLayerInputs(b, x, keys, h);
  const mixture = keys.metadata.getCount(keys.name("expert_count"), 0) > 0
    ? readExpertHparams(b.file, h)
    : undefined;
  for (let layer = 0; layer < h.blockCount; layer++) {
    const name = (tensor: string) => `blk.${layer}.${tensor}`;
    const kind = sliding[layer] ? kinds.sliding : kinds.full;
    handOut(b, x, layer);
    const attnIn = rmsNorm(b, x, name("attn_norm"), h.epsilon);
    const attn = attentionHalf(b, attnIn, h, h.layers[layer], kind, layer < own, name);
    postNorm(b, attn, name("post_attention_norm"), h.epsilon, x);
    const scale = name("layer_output_scale");
    const last = b.file.tensors.has(`${scale}.weight`) ? { layerScale: scale } : {};
    const width = h.layers[layer].feedForwardLength;
    const after = perLayer ? {} : last;
    if (mixture) denseAndExperts(b, x, width, h.epsilon, mixture, name, after);
    else geGlu(b, x, width, h.epsilon, name, after);
    if (!perLayer) continue;
    const made = layerInput(b, x, perLayer, h, layer);
    postNorm(b, made, name("post_norm"), h.epsilon, x, last);
  }
  handOut(b, x, h.blockCount);
  b.lastCaches.full = kinds.full.kept;
  b.lastCaches.sliding = kinds.sliding.kept;
  return x;
}

/**
 * Runs the feed-forward block and the experts side by side, each with its own norms. The router reads rows
 * normed to length 1 with a scale per column.
 */
function denseAndExperts(
  b: PlanBuilder,
  x: Value,
  rows: number,
  eps: number,
  e: ExpertHparams,
  name: TensorName,
  after: PostNormOptions,
): void {
  const dense = geGluRows(b, x, rows, eps, name);
  const both = rmsNorm(b, dense, name("post_ffw_norm_1"), eps);
  const scale = 1 / Math.sqrt(x.columns);
  const direction = rmsNorm(b, x, { whole: name("ffn_gate_inp.scale") }, eps, x.rows, scale);
  const chosen = router(b, direction, e, name, { scales: name("ffn_down_exps.scale") });
  const expertsIn = rmsNorm(b, x, name("pre_ffw_norm_2"), eps);
  const mixed = experts(b, expertsIn, x.columns, chosen, e, name, { activation: "gelu" });
  postNorm(b, mixed, name("post_ffw_norm_2"), eps, both);
  postNorm(b, both, name("post_ffw_norm"), eps, x, after);
}

/** Number of layers at the end that read earlier layers' KV caches. */
export function sharedLayers(keys: ArchitectureKeys, layers: number): number {
  const name = "attention.shared_kv_layers";
  const shared = keys.metadata.getCount(keys.name(name), 0);
  if (shared >= layers) keys.refuse(name, String(shared), `below the ${layers} layers`);
  return shared;
}

/**
 * Returns the attention of both kinds of layers. An image's rows attend to each other in both directions only in layers
 * with a window, and only in models without per-layer embeddings. The checkpoints of these models have
 * `use_bidirectional_attention` "vision".
 */
export function attentionKinds(b: PlanBuilder, keys: ArchitectureKeys, h: Hparams, rope: Rope) {
  return { full: fullKind(b, h, rope), sliding: slidingKind(b, keys, h, rope) };
}

function fullKind(b: PlanBuilder, h: Hparams, rope: Rope): Kind {
  return {
    headDim: h.keyLength,
    rotated: h.ropeDimensionCount,
    table: ropeTable(b, rope.angles()),
    window: 0,
    causal: true,
  };
}

function slidingKind(b: PlanBuilder, keys: ArchitectureKeys, h: Hparams, rope: Rope): Kind {
  const window = keys.window();
  if (window === 0) keys.refuse("attention.sliding_window", "0", "at least 1");
  const headDim = keys.count("attention.key_length_swa", MAX.headLength, h.keyLength);
  if (headDim % HEAD_DIM_STEP !== 0) {
    keys.refuse("attention.key_length_swa", String(headDim), `a multiple of ${HEAD_DIM_STEP}`);
  }
  const values = keys.count("attention.value_length_swa", MAX.headLength, headDim);
  if (values !== headDim) {
    keys.refuse("attention.value_length_swa", String(values), `the key length ${headDim}`);
  }
  const rotated = keys.count("rope.dimension_count_swa", headDim, headDim);
  if (rotated % 2 !== 0) keys.refuse("rope.dimension_count_swa", String(rotated), "an even number");
  const angles = rope.angles({
    dimensions: rotated,
    base: keys.ropeBase(10_000, "_swa"),
    scaled: false,
    factors: false,
  });
  const causal = perLayerColumns(keys) > 0;
  return { headDim, rotated, table: ropeTable(b, angles), window, causal };
}

/**
 * Returns each layer's extra token inputs, [layers x columns]; undefined where the model has no per-layer
 * embeddings.
 */
export function perLayerInputs(
  b: PlanBuilder,
  x: Value,
  keys: ArchitectureKeys,
  h: Hparams,
): Value | undefined {
  const columns = perLayerColumns(keys);
  if (columns === 0) return undefined;
  const all = columns * h.blockCount;
  const inputs = embed(b, "per_layer_token_embd", h.vocabSize, all, Math.sqrt(columns / 2));
  const [projected] = linear(b, x, [{ name: "per_layer_model_proj", rows: all }]);
  // Folds the projection's factor of 1 / sqrt(width) into the norm's epsilon: the norm cancels the factor
  // otherwise.
  const eps = h.epsilon * h.embeddingLength;
  postNorm(b, projected, "per_layer_proj_norm", eps, inputs, { group: columns, scale: Math.SQRT1_2 });
  return inputs;
}

function perLayerColumns(keys: ArchitectureKeys): number {
  const name = "embedding_length_per_layer_input";
  return keys.metadata.getCount(keys.name(name), 0) === 0 ? 0 : keys.count(name, MAX.perLayer);
}

/** Returns a layer's output for rows x and its part of `inputs`, before the norm after it. */
export function layerInput(b: PlanBuilder, x: Value, inputs: Value, h: Hparams, layer: number): Value {
  const columns = inputs.columns / h.blockCount;
  const [open] = linear(b, x, [{ name: `blk.${layer}.inp_gate`, rows: columns }]);
  const gated = gate(b, open, inputs, { activation: "gelu", from: layer * columns, columns });
  return linear(b, gated, [{ name: `blk.${layer}.proj`, rows: h.embeddingLength }])[0];
}

/**
 * Returns a layer's attention output from normed rows, before the norm after it. Unless `own`, the layer
 * reads keys and values of an earlier layer.
 */
export function attentionHalf(
  b: PlanBuilder,
  x: Value,
  h: Hparams,
  { heads, kvHeads }: LayerShape,
  kind: Kind,
  own: boolean,
  name: TensorName,
): Value {
  const { headDim, rotated, table, window, causal } = kind;
  const layer = own ? b.kvLayer({ heads: kvHeads, headDim }) : kind.kept?.layer;
  if (layer === undefined) {
    const keys = ArchitectureKeys.of(b.file.metadata);
    return keys.refuse(
      "attention.shared_kv_layers",
      "a layer with none to read",
      "so few that a layer of each kind is left",
    );
  }
  // Some files have unused keys and values in layers that read another layer's cache.
  if (!own) b.leaveOut((tensor) => UNREAD.some((part) => tensor === `${name(part)}.weight`));
  const shape = kind.kept = { layer, heads, kvHeads, headDim, gated: false };
  // Without a tensor of values, the keys before norm and rotation serve as values.
  const hasValues = b.file.tensors.has(`${name("attn_v")}.weight`);
  const kv = kvHeads * headDim;
  const qkv = linear(b, x, [
    { name: name("attn_q"), rows: heads * headDim },
    ...own ? [{ name: name("attn_k"), rows: kv }] : [],
    // Rounding values costs the most accuracy, and their product is the smallest of these.
    ...own && hasValues ? [{ name: name("attn_v"), rows: kv, fine: kv }] : [],
  ]);
  const [q, k, v = k] = qkv;
  ropeAppend(b, own ? [q, k, v] : [q], shape, {
    table,
    rotated,
    interleaved: false,
    eps: h.epsilon,
    qNorm: name("attn_q_norm"),
    kNorm: own ? name("attn_k_norm") : undefined,
    vNorm: own,
  });
  const attn = attention(b, q, shape, 1, { window, causal });
  return linear(b, attn, [{ name: name("attn_output"), rows: h.embeddingLength }])[0];
}
