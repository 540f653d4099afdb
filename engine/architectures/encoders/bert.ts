import { ArchitectureKeys } from "../../gguf/architecture_keys.ts";
import { readExpertHparams } from "../../gguf/expert_hparams.ts";
import type { Hparams } from "../../gguf/hparams.ts";
import type { PlanBuilder, Value } from "../../plan/builder.ts";
import { activated } from "../../plan/ops/activated.ts";
import { embed } from "../../plan/ops/embed.ts";
import { embedPositions } from "../../plan/ops/embed_positions.ts";
import { glu } from "../../plan/ops/glu.ts";
import { layerNorm } from "../../plan/ops/layer_norm.ts";
import { linear } from "../../plan/ops/matmul.ts";
import { ropeTable } from "../../plan/ops/rope_table.ts";
import type { Architecture, TensorName } from "../architecture.ts";
import { attendBothWays, layerHeads, poolEncoder, tokenTypes } from "./encoder.ts";
import { mixture } from "../parts/mixture.ts";
import type { Rope } from "../parts/rope.ts";

/** What tells BERT and its relatives apart. */
interface BertTraits {
  /** Learned positions; otherwise queries and keys are rotated. */
  readonly learned: boolean;
  /** The feed-forward half is SwiGLU; otherwise GELU, as llama.cpp has it, by its approximation with tanh. */
  readonly gated: boolean;
  /** Some layers have a mixture of experts instead. */
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

export const BERT = bertLike({ learned: true, gated: false });
export const NOMIC_BERT = bertLike({ learned: false, gated: true });
/** Jina embeddings v3: BERT's layers with rotary positions. An adapter must be merged into them. */
export const JINA_BERT_V3 = bertLike({ learned: false, gated: false });
export const NOMIC_BERT_MOE = bertLike({ learned: false, gated: false, experts: true });

/**
 * BERT's encoder, whose norms come after each half of a layer, and with rotary positions and SwiGLU Nomic's, or experts in some
 * layers. All tokens are of the first type. Source: "BERT" (arXiv 1810.04805), "Nomic Embed" (2402.01613), "Training Sparse Mixture Of
 * Experts Text Embedding Models" (2502.07972), "jina-embeddings-v3" (2409.10173).
 */
function buildBert(b: PlanBuilder, h: Hparams, rope: Rope, { learned, gated, experts }: BertTraits): Value {
  const eps = h.epsilon;
  const mixtures = experts ? readMixtures(b, h) : undefined;
  const tokens = embed(b, "token_embd", h.vocabSize, h.embeddingLength);
  embedPositions(b, tokens, {
    positions: learned ? { name: "position_embd", count: h.contextLength } : undefined,
    types: tokenTypes(b),
  });
  let x = layerNorm(b, tokens, "token_embd_norm", eps);
  const table = learned ? undefined : ropeTable(b, rope.angles());
  for (let layer = 0; layer < h.blockCount; layer++) {
    const name = (tensor: string) => `blk.${layer}.${tensor}`;
    const attn = attendBothWays(b, layerHeads(b, x, h, name, layer), h, { table }, name);
    linear(b, attn, [{ name: name("attn_output"), rows: h.embeddingLength, addTo: x }]);
    const between = layerNorm(b, x, name("attn_output_norm"), eps);

    if (mixtures?.isMixture(layer)) mixtures.add(between, name);
    else {
      const ffn = gated
        ? glu(b, between, name("ffn_gate"), name("ffn_up"), h.feedForwardLength)
        : activated(b, between, name("ffn_up"), h.feedForwardLength, "gelu");
      linear(b, ffn, [{ name: name("ffn_down"), rows: h.embeddingLength, addTo: between }]);
    }
    x = layerNorm(b, between, name("layer_output_norm"), eps);
  }
  return x;
}

const MAX_PERIOD = 1024;

/** Experts as wide as the other layers' feed-forward, without gates; a row's weights are the softmax over all, and not divided. */
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
