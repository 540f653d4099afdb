import { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import { type ExpertHparams, readExpertHparams } from "../../gguf/hparams/expert_hparams.ts";
import type { Hparams } from "../../gguf/hparams/hparams.ts";
import { readMambaHparams } from "../../gguf/hparams/mamba_hparams.ts";
import type { PlanBuilder, Value } from "../../plan/builder.ts";
import { activated } from "../../plan/ops/activated.ts";
import { embed } from "../../plan/ops/embed.ts";
import { linear } from "../../plan/ops/matmul.ts";
import { rmsNorm } from "../../plan/ops/rms_norm.ts";
import type { Architecture, TensorName } from "../architecture.ts";
import { leaveOutDrafting } from "../left_out.ts";
import { addDraftLayer } from "../parts/draft_layer.ts";
import { handOut } from "../parts/hidden_rows.ts";
import { mixAttention, mixKeys, mixMamba2 } from "../parts/mamba_hybrid.ts";
import { experts, router } from "../parts/mixture.ts";

/**
 * Nemotron-H: one mixer per layer. A layer with a feed-forward width is a feed-forward block with squared
 * ReLU, one with KV heads is attention without positions, and any other is Mamba2. Source: "Nemotron-H"
 * (arXiv 2504.03624).
 */
export const NEMOTRON_H: Architecture = {
  allows: { layersDiffer: true, eitherEpsilon: true },
  build: (b, h) => buildNemotronH(b, h, (...parts) => activatedHalf(...parts)),
};

/**
 * Nemotron-H with experts and one shared expert in each feed-forward block. Sources: "Nemotron 3 Nano" and
 * "Nemotron 3 Super" (NVIDIA, 2025 and 2026).
 */
export const NEMOTRON_H_MOE: Architecture = {
  allows: { layersDiffer: true, eitherEpsilon: true, experts: true },
  drafts: true,
  build: (b, h) => {
    const mixture = readMixture(b, h);
    return buildNemotronH(b, h, (b, x, _, name, residual) => addMixture(b, x, mixture, name, residual));
  },
};

/** Adds the feed-forward output of normed rows to the residual. */
type FeedForward = (
  b: PlanBuilder,
  x: Value,
  width: number,
  name: TensorName,
  residual: { addTo: Value },
) => void;

function buildNemotronH(b: PlanBuilder, h: Hparams, feedForward: FeedForward): Value {
  const keys = ArchitectureKeys.of(b.file.metadata);
  const layers = leaveOutDrafting(b, h);
  const mamba = readMambaHparams(keys);
  const scale = keys.scale("attention.scale", 1 / Math.sqrt(h.keyLength));
  const x = embed(b, "token_embd", h.vocabSize, h.embeddingLength);
  const residual = { addTo: x };
  for (const [i, layer] of h.layers.slice(0, layers).entries()) {
    const name = (tensor: string) => `blk.${i}.${tensor}`;
    handOut(b, x, i);
    const mixIn = rmsNorm(b, x, name("attn_norm"), h.epsilon);
    if (layer.feedForwardLength > 0) {
      feedForward(b, mixIn, layer.feedForwardLength, name, residual);
    } else if (layer.kvHeads > 0) {
      mixAttention(b, mixIn, h, layer, { scale }, name, residual);
    } else {
      mixMamba2(b, mixIn, mamba, h.epsilon, name, residual);
    }
  }
  handOut(b, x, layers);
  if (b.drafts) {
    // One layer is attention and experts, each behind its norm.
    const norm = (x: Value, name: string) => rmsNorm(b, x, name, h.epsilon);
    const heads = h.layers[layers];
    addDraftLayer(b, x, h, {
      keys: (x, name) => mixKeys(b, norm(x, name("attn_norm")), h, heads, { scale }, name),
      layer(x, name) {
        mixAttention(b, norm(x, name("attn_norm")), h, heads, { scale }, name, { addTo: x });
        feedForward(b, norm(x, name("post_attention_norm")), heads.feedForwardLength, name, { addTo: x });
      },
    });
  }
  return x;
}

/** Adds a dense feed-forward output with squared ReLU to the residual. */
function activatedHalf(
  b: PlanBuilder,
  x: Value,
  width: number,
  name: TensorName,
  { addTo }: { addTo: Value },
  suffix = "",
): void {
  const inner = activated(b, x, name(`ffn_up${suffix}`), width, "squared_relu");
  linear(b, inner, [{ name: name(`ffn_down${suffix}`), rows: addTo.columns, addTo }]);
}

interface NemotronMixture extends ExpertHparams {
  /** Width of the shared expert. */
  readonly shared: number;
  /** Input and output width of the chosen experts; undefined: the embedding length. */
  readonly latent?: number;
  /** Whether the weights of the chosen experts are divided by their sum. */
  readonly divided: boolean;
  readonly scale: number;
}

const MAX = { latent: 131_072, shared: 1_048_576 };

function readMixture(b: PlanBuilder, h: Hparams): NemotronMixture {
  const keys = ArchitectureKeys.of(b.file.metadata);
  const known = ["expert_shared_count", "expert_weights_scale"] as const;
  return {
    ...readExpertHparams(b.file, h, "sigmoid by default", known),
    shared: keys.count("expert_shared_feed_forward_length", MAX.shared),
    latent: keys.has("moe_latent_size") ? keys.count("moe_latent_size", MAX.latent) : undefined,
    divided: keys.metadata.getBoolean(keys.name("expert_weights_norm"), false),
    scale: keys.scale("expert_weights_scale", 1),
  };
}

/** Adds the output of the experts. The router reads full rows; the experts may read and return narrower ones. */
function addMixture(
  b: PlanBuilder,
  x: Value,
  m: NemotronMixture,
  name: TensorName,
  residual: { addTo: Value },
): void {
  const { latent, divided, scale } = m;
  const unit = { activation: "squared_relu", ungated: true } as const;
  const chosen = router(b, x, m, name, { sigmoid: true, bias: name("exp_probs_b.bias"), divided, scale });
  if (latent === undefined) experts(b, x, residual.addTo, chosen, m, name, unit);
  else {
    const [narrow] = linear(b, x, [{ name: name("ffn_latent_down"), rows: latent }]);
    const mixed = experts(b, narrow, latent, chosen, m, name, unit);
    linear(b, mixed, [{ name: name("ffn_latent_up"), rows: residual.addTo.columns, ...residual }]);
  }
  activatedHalf(b, x, m.shared, name, residual, "_shexp");
}
