import { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import { readExpertHparams } from "../../gguf/hparams/expert_hparams.ts";
import type { Hparams } from "../../gguf/hparams/hparams.ts";
import type { PlanBuilder, Value } from "../../plan/builder.ts";
import { activated } from "../../plan/ops/activated.ts";
import { embed } from "../../plan/ops/embed.ts";
import { embedPositions } from "../../plan/ops/embed_positions.ts";
import { glu } from "../../plan/ops/glu.ts";
import { layerNorm } from "../../plan/ops/layer_norm.ts";
import { linear } from "../../plan/ops/matmul.ts";
import { ropeTable } from "../../plan/ops/rope_table.ts";
import type { Activation } from "../../plan/plan.ts";
import type { Architecture, TensorName } from "../architecture.ts";
import { attendBothWays, layerHeads, poolEncoder, tokenTypes } from "./encoder.ts";
import { mixture } from "../parts/mixture.ts";
import type { Rope } from "../parts/rope.ts";

/** Differences between BERT and its relatives. */
interface BertTraits {
  /** Positions are learned embeddings, rotations of queries and keys, or ALiBi slopes on scores. */
  readonly positions: "learned" | "rotated" | "slopes";
  /**
   * The activation of the feed-forward gate. Without it there is no gate, and the activation is GELU's tanh
   * approximation, as in llama.cpp.
   */
  readonly gate?: Activation;
  /** Gate and up matrices are one tensor, except in older files. */
  readonly gateInUp?: boolean;
  /** Some layers have a mixture of experts instead of a feed-forward block. */
  readonly experts?: boolean;
}

function bertLike(traits: BertTraits): Architecture {
  return {
    allows: { bothDirections: true, layerNorm: true, experts: traits.experts },
    ending: () => ({ encoder: true }),
    pooling: "mean",
    build: (b, h, rope) => buildBert(b, h, rope, traits),
    pool: (b, x, h, pooling) => poolEncoder(b, x, h, pooling, { of: "cls", activation: "tanh" }),
  };
}

export const BERT = bertLike({ positions: "learned" });
export const NOMIC_BERT = bertLike({ positions: "rotated", gate: "silu" });
export const NOMIC_BERT_MOE = bertLike({ positions: "rotated", experts: true });
/**
 * Jina embeddings v2, except the code model, which norms its heads. Source: "Jina Embeddings 2" (arXiv
 * 2310.19923).
 */
export const JINA_BERT_V2 = bertLike({ positions: "slopes", gate: "gelu", gateInUp: true });
/**
 * Jina embeddings v3, with or without an adapter merged into its layers. Source: "jina-embeddings-v3" (arXiv
 * 2409.10173).
 */
export const JINA_BERT_V3 = bertLike({ positions: "rotated" });

/**
 * Builds BERT's encoder, with norms after attention and after feed-forward. Nomic's variant has rotary positions and
 * SwiGLU, or experts in some layers. All tokens have token type 0. Sources: "BERT" (arXiv 1810.04805), "Nomic Embed"
 * (2402.01613), "Training Sparse Mixture Of Experts Text Embedding Models" (2502.07972).
 */
function buildBert(b: PlanBuilder, h: Hparams, rope: Rope, traits: BertTraits): Value {
  const { positions } = traits;
  const eps = h.epsilon;
  const mixtures = traits.experts ? readMixtures(b, h) : undefined;
  const tokens = embed(b, "token_embd", h.vocabSize, h.embeddingLength);
  embedPositions(b, tokens, {
    positions: positions === "learned" ? { name: "position_embd", count: h.contextLength } : undefined,
    types: tokenTypes(b),
  });
  let x = layerNorm(b, tokens, "token_embd_norm", eps);
  const options = {
    table: positions === "rotated" ? ropeTable(b, rope.angles()) : undefined,
    slopes: positions === "slopes" ? readSlopes(b, h) : [],
  };
  for (let layer = 0; layer < h.blockCount; layer++) {
    const name = (tensor: string) => `blk.${layer}.${tensor}`;
    const attn = attendBothWays(b, layerHeads(b, x, h, name, layer), h, options, name);
    linear(b, attn, [{ name: name("attn_output"), rows: h.embeddingLength, addTo: x }]);
    const between = layerNorm(b, x, name("attn_output_norm"), eps);

    if (mixtures?.isMixture(layer)) mixtures.add(between, name);
    else {
      const ffn = inner(b, between, h.feedForwardLength, traits, name);
      linear(b, ffn, [{ name: name("ffn_down"), rows: h.embeddingLength, addTo: between }]);
    }
    x = layerNorm(b, between, name("layer_output_norm"), eps);
  }
  return x;
}

/** Returns the activated rows between a feed-forward block's two matrices. */
function inner(
  b: PlanBuilder,
  x: Value,
  width: number,
  { gate, gateInUp }: BertTraits,
  name: TensorName,
): Value {
  const up = name("ffn_up");
  if (!gate) return activated(b, x, up, width, "gelu");
  const one = gateInUp && !b.file.tensors.has(`${name("ffn_gate")}.weight`);
  return glu(b, x, one ? up : name("ffn_gate"), up, width, gate);
}

const ALIBI_BITS = 8;

/**
 * Returns ALiBi's slope of each head. With n the largest power of two up to the head count, the first n
 * slopes fall from 2^(-8/n) to 2^-8; other heads get slopes between those. Source: "Train Short, Test Long"
 * (arXiv 2108.12409).
 */
function readSlopes(b: PlanBuilder, { headCount }: Hparams): number[] {
  const keys = ArchitectureKeys.of(b.file.metadata);
  const bias = keys.scale("attention.max_alibi_bias", ALIBI_BITS);
  if (bias !== ALIBI_BITS) keys.refuse("attention.max_alibi_bias", String(bias), String(ALIBI_BITS));
  const n = 2 ** Math.floor(Math.log2(headCount));
  const bits = (i: number) => i < n ? i + 1 : i - n + 0.5;
  return Array.from({ length: headCount }, (_, i) => 2 ** (-ALIBI_BITS * bits(i) / n));
}

const MAX_PERIOD = 1024;

/**
 * Reads ungated experts of the feed-forward's width. Router weights are the softmax over all experts, without
 * renormalizing the chosen ones.
 */
function readMixtures(b: PlanBuilder, h: Hparams) {
  const keys = ArchitectureKeys.of(b.file.metadata);
  const name = "moe_every_n_layers";
  const period = keys.count(name, MAX_PERIOD);
  if (period === 1) keys.refuse(name, "1", `2 to ${MAX_PERIOD}`);
  const { count, used } = readExpertHparams(b.file, h, "softmax over all");
  const e = { count, used, feedForwardLength: h.feedForwardLength };
  const options = { divided: false, activation: "gelu", ungated: true } as const;
  return {
    isMixture: (layer: number) => layer % period === 1,
    add: (x: Value, name: TensorName) => mixture(b, x, x, e, name, options),
  };
}
