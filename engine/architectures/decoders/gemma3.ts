import { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import type { Hparams } from "../../gguf/hparams/hparams.ts";
import type { PlanBuilder, Value } from "../../plan/builder.ts";
import { embed } from "../../plan/ops/embed.ts";
import { glu } from "../../plan/ops/glu.ts";
import { linear } from "../../plan/ops/matmul.ts";
import { postNorm, type PostNormOptions } from "../../plan/ops/post_norm.ts";
import { rmsNorm } from "../../plan/ops/rms_norm.ts";
import { ropeTable } from "../../plan/ops/rope_table.ts";
import type { Architecture, TensorName } from "../architecture.ts";
import { groupedAttention, type GroupedHeads } from "../parts/grouped_attention.ts";
import type { Rope } from "../parts/rope.ts";

/** Layer count of the 27B. */
const LARGEST = 62;

/**
 * Gemma 3: GeGLU, norms before and after attention and feed-forward, and five layers with a window for each
 * one without. Both kinds of layer have their own rotary positions. The file's norm weights already include
 * Gemma's + 1. Sources: "Gemma 3 Technical Report" (arXiv 2503.19786); Hugging Face transformers,
 * models/gemma3.
 */
export const GEMMA3: Architecture = {
  ending: (keys) => ({ logits: { softcap: keys.softcap("final_logit_softcapping") } }),
  build: (b, h, rope) =>
    buildGemma3(b, h, rope, { ...GEMMA3_WINDOWS, attention: decoderAttention(LARGEST, { headNorms: true }) }),
};

/** What differs between layers with and without a window. A window of 0 means none. */
export interface Seen {
  readonly table: Value;
  readonly window: number;
}

/** Defaults for keys about windows. */
interface Windows {
  /** Layers per period. The last layer of a period has no window. */
  readonly period: number;
  /** Tokens that the other layers attend to; 0 is all. */
  readonly window: number;
  /** The rotary base of layers with a window. */
  readonly nearBase: number;
}

export const GEMMA3_WINDOWS: Windows = { period: 6, window: 0, nearBase: 10_000 };

/** What differs between Gemma 3's relatives. */
interface Gemma3Traits extends Windows {
  readonly attention: AttentionHalf;
}

/** Returns a layer's attention output from normed rows, before the post-attention norm. */
type AttentionHalf = (b: PlanBuilder, x: Value, h: Hparams, of: Seen, name: TensorName) => Value;

/** Builds the layers with these traits and returns the last rows. */
export function buildGemma3(b: PlanBuilder, h: Hparams, rope: Rope, traits: Gemma3Traits): Value {
  const keys = ArchitectureKeys.of(b.file.metadata);
  const window = keys.window() || traits.window;
  const sliding = keys.windowLayers(h.blockCount, { period: traits.period });
  const x = embed(b, "token_embd", h.vocabSize, h.embeddingLength, Math.sqrt(h.embeddingLength));
  const full = ropeTable(b, rope.angles());
  const near = window === 0
    ? full
    : ropeTable(b, rope.angles({ base: keys.ropeBase(traits.nearBase, "_swa"), scaled: false }));
  for (let layer = 0; layer < h.blockCount; layer++) {
    const name = (tensor: string) => `blk.${layer}.${tensor}`;
    const of = sliding[layer] ? { table: near, window } : { table: full, window: 0 };
    const attn = traits.attention(b, rmsNorm(b, x, name("attn_norm"), h.epsilon), h, of, name);
    postNorm(b, attn, name("post_attention_norm"), h.epsilon, x);
    geGlu(b, x, h.feedForwardLength, h.epsilon, name);
  }
  return x;
}

/**
 * Returns a decoder's attention. The model with `largest` layers scales queries by its embedding length over
 * its head count, others by their head dimension.
 */
export function decoderAttention(
  largest: number,
  traits: Pick<GroupedHeads, "headNorms" | "softcap">,
): AttentionHalf {
  return (b, x, h, { table, window }, name) => {
    const { headCount: heads, headCountKv: kvHeads, keyLength: headDim, epsilon: eps } = h;
    const width = h.blockCount === largest ? Math.floor(h.embeddingLength / heads) : headDim;
    const attn = groupedAttention(b, x, {
      ...traits,
      heads,
      kvHeads,
      headDim,
      table,
      rotated: h.ropeDimensionCount,
      eps,
      scale: 1 / Math.sqrt(width),
      window,
    }, name);
    return linear(b, attn, [{ name: name("attn_output"), rows: h.embeddingLength }])[0];
  };
}

/** Adds a GeGLU feed-forward block to x, with norms before and after it. */
export function geGlu(
  b: PlanBuilder,
  x: Value,
  rows: number,
  eps: number,
  name: TensorName,
  after: PostNormOptions = {},
): void {
  postNorm(b, geGluRows(b, x, rows, eps, name), name("post_ffw_norm"), eps, x, after);
}

/** Returns the GeGLU feed-forward output of x, before the norm after it. */
export function geGluRows(b: PlanBuilder, x: Value, rows: number, eps: number, name: TensorName): Value {
  const ffnIn = rmsNorm(b, x, name("ffn_norm"), eps);
  const ffn = glu(b, ffnIn, name("ffn_gate"), name("ffn_up"), rows, "gelu");
  return linear(b, ffn, [{ name: name("ffn_down"), rows: x.columns }])[0];
}
