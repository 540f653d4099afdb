import type { Allowed, Hparams } from "../../gguf/hparams/hparams.ts";
import type { PlanBuilder, Value } from "../../plan/builder.ts";
import { activated } from "../../plan/ops/activated.ts";
import { embed } from "../../plan/ops/embed.ts";
import { glu } from "../../plan/ops/glu.ts";
import { layerNorm } from "../../plan/ops/layer_norm.ts";
import { linear } from "../../plan/ops/matmul.ts";
import { rmsNorm } from "../../plan/ops/rms_norm.ts";
import type { RopeOptions } from "../../plan/ops/rope_append.ts";
import { ropeTable } from "../../plan/ops/rope_table.ts";
import type { Architecture, TensorName } from "../architecture.ts";
import { groupedAttention } from "../parts/grouped_attention.ts";
import type { Rope } from "../parts/rope.ts";
import type { Sight } from "../parts/windows.ts";

/** What differs between members of the Llama family. */
export interface LlamaTraits {
  /** Rotated pairs are (2i, 2i + 1); otherwise (i, i + half). */
  readonly interleavedRope: boolean;
  /** RMSNorm of each query and key head, before rotation or, with normsLast, after it. */
  readonly headNorms: boolean;
  readonly normsLast?: boolean;
  /** RMSNorm of all query heads together and of all key heads together, before rotation. */
  readonly rowNorms?: boolean;
  /** LayerNorm of each query and key head, with weights per head, before rotation. */
  readonly headLayerNorms?: boolean;
  /** Norms of rows are LayerNorms, with the file's biases if any. */
  readonly layerNorms?: boolean;
  /**
   * Attention and feed-forward read the layer's input in parallel: through one norm, or "normed apart"
   * through separate ones.
   */
  readonly parallel?: boolean | "normed apart";
  /** Whether a layer's heads are rotated; by default all are. */
  readonly hasPositions?: (layer: number) => boolean;
  /** Window and rotary table of each layer; by default no window and the file's angles. */
  readonly sights?: readonly Sight[];
  /** Each head has a sink: a score that takes attention weight but has no value. */
  readonly sinks?: boolean;
  /** q, k and v are one tensor, and so are the feed-forward's gate and up. */
  readonly fused?: boolean;
  /** Scales queries by their positions. */
  readonly temperature?: RopeOptions["temperature"];
  /**
   * Factors on the embedding, on residual additions and on attention scores; by default 1, 1 and 1 /
   * sqrt(headDim).
   */
  readonly scales?: { readonly embedding?: number; readonly residual?: number; readonly attention?: number };
  /**
   * Returns the attention output of normed rows x: [rows, columns of the output matrix]; by default grouped
   * heads.
   */
  readonly attention?: (x: Value, layer: number, name: TensorName) => Value;
  /** The norm before the feed-forward block; by default `ffn_norm`. */
  readonly feedForwardNorm?: string;
  /** The gate's activation; by default SiLU. */
  readonly gate?: "gelu";
  /** The feed-forward block has no gate, and this activation. */
  readonly ungated?: "squared_relu" | "gelu";
  /** Adds the feed-forward output of normed rows x to `addTo`; by default SwiGLU. */
  readonly feedForward?: (x: Value, addTo: Value, name: TensorName, layer: number) => void;
  /**
   * How often rows pass through all layers, by default once, and whether the final norm also runs between
   * passes.
   */
  readonly passes?: { readonly count: number; readonly normed: boolean };
}

/** Returns the family member with these traits. */
export function llamaLike(traits: LlamaTraits, allows?: Allowed): Architecture {
  return {
    allows: { ...allows, layerNorm: traits.layerNorms },
    build: (b, h, rope) => buildLlama(b, h, rope, traits),
  };
}

export const LLAMA = llamaLike({ interleavedRope: true, headNorms: false });
export const QWEN2 = llamaLike({ interleavedRope: false, headNorms: false });
export const QWEN3 = llamaLike({ interleavedRope: false, headNorms: true });
/** Hunyuan's dense models of 2025. Source: Hugging Face transformers, models/hunyuan_v1_dense. */
export const HUNYUAN_DENSE = llamaLike({ interleavedRope: false, headNorms: true, normsLast: true });
/** Maincoder: the same with Llama's pairs. Source: mlx-lm, models/maincoder.py. */
export const MAINCODER = llamaLike({ interleavedRope: true, headNorms: true, normsLast: true });
/** Arcee's AFM: Llama without gates. Source: Hugging Face transformers, models/arcee. */
export const ARCEE = llamaLike({ interleavedRope: true, headNorms: false, ungated: "squared_relu" });
/**
 * StarCoder2: LayerNorm, GELU without a gate, biases everywhere. The checkpoints' window is ignored, as in
 * llama.cpp, whose files do not have it. Source: "StarCoder 2" (arXiv 2402.19173).
 */
export const STARCODER2 = llamaLike({
  interleavedRope: false,
  headNorms: false,
  layerNorms: true,
  ungated: "gelu",
});
/**
 * Nemotron and Minitron: StarCoder2's layers with a squared ReLU and partial rotation. The file's norm
 * weights already include 1. Source: Hugging Face transformers, models/nemotron.
 */
export const NEMOTRON = llamaLike({
  interleavedRope: false,
  headNorms: false,
  layerNorms: true,
  ungated: "squared_relu",
});
/**
 * Seed-OSS: Qwen2's decoder with another name for one norm. Source: Hugging Face transformers,
 * models/seed_oss.
 */
export const SEED_OSS = llamaLike({
  interleavedRope: false,
  headNorms: false,
  feedForwardNorm: "post_attention_norm",
});

/**
 * Builds the decoder of Llama, or with other traits of Qwen2 and Qwen3: pre-norm grouped attention and
 * SwiGLU. Biases of q, k and v are added where the file has them.
 *
 * Layers may differ where that is allowed:
 * - A layer without heads has no attention.
 * - A layer without KV heads only multiplies its rows by the output matrix.
 * - A layer of width 0 has no feed-forward block.
 *
 * Sources: "LLaMA" (arXiv 2302.13971), "Qwen3" (2505.09388).
 */
export function buildLlama(
  b: PlanBuilder,
  h: Hparams,
  rope: Rope,
  traits: LlamaTraits,
): Value {
  let x = embed(b, "token_embd", h.vocabSize, h.embeddingLength, traits.scales?.embedding);
  const attend = traits.attention ?? grouped(b, h, rope, traits);
  const { count, normed } = traits.passes ?? { count: 1, normed: false };
  for (let pass = 0; pass < count; pass++) {
    if (pass > 0 && normed) x = normOf(traits)(b, x, "output_norm", h.epsilon);
    addLayers(b, h, x, traits, attend);
  }
  return x;
}

const normOf = ({ layerNorms }: LlamaTraits) => layerNorms ? layerNorm : rmsNorm;

/** Adds the output of all layers to x. */
function addLayers(
  b: PlanBuilder,
  h: Hparams,
  x: Value,
  traits: LlamaTraits,
  attend: NonNullable<LlamaTraits["attention"]>,
): void {
  const out = { rows: h.embeddingLength, addTo: x, times: traits.scales?.residual ?? 1 };
  for (const [layer, { heads, kvHeads, feedForwardLength }] of h.layers.entries()) {
    const name = (tensor: string) => `blk.${layer}.${tensor}`;
    const norm = (tensor: string) => normOf(traits)(b, x, name(tensor), h.epsilon);
    const attnIn = heads > 0 ? norm("attn_norm") : undefined;
    const ffnNorm = traits.feedForwardNorm ?? "ffn_norm";
    // In a parallel layer, the feed-forward norm must read x before attention is added to it.
    const beside = traits.parallel === "normed apart" ? norm(ffnNorm) : traits.parallel ? attnIn : undefined;
    if (attnIn) {
      const attn = kvHeads === 0 ? attnIn : attend(attnIn, layer, name);
      linear(b, attn, [{ ...out, name: name("attn_output") }]);
    }
    if (feedForwardLength === 0 && !traits.feedForward) continue;

    const ffnIn = beside ?? norm(ffnNorm);
    if (traits.feedForward) {
      traits.feedForward(ffnIn, x, name, layer);
      continue;
    }
    const up = name("ffn_up");
    const ffn = traits.ungated
      ? activated(b, ffnIn, up, feedForwardLength, traits.ungated)
      : glu(b, ffnIn, traits.fused ? up : name("ffn_gate"), up, feedForwardLength, traits.gate);
    linear(b, ffn, [{ ...out, name: name("ffn_down") }]);
  }
}

/** Returns the default attention: grouped heads. */
function grouped(b: PlanBuilder, h: Hparams, rope: Rope, traits: LlamaTraits) {
  const table = traits.sights ? undefined : ropeTable(b, rope.angles());
  return (x: Value, layer: number, name: TensorName): Value =>
    groupedAttention(b, x, {
      heads: h.layers[layer].heads,
      kvHeads: h.layers[layer].kvHeads,
      headDim: h.keyLength,
      table: traits.hasPositions?.(layer) ?? true ? table : undefined,
      ...traits.sights?.[layer],
      rotated: h.ropeDimensionCount,
      interleaved: traits.interleavedRope,
      eps: h.epsilon,
      headNorms: traits.headNorms,
      normsLast: traits.normsLast,
      rowNorms: traits.rowNorms,
      headLayerNorms: traits.headLayerNorms,
      scale: traits.scales?.attention,
      fused: traits.fused,
      sinks: traits.sinks,
      temperature: traits.temperature,
    }, name);
}
