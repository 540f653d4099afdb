import { ArchitectureKeys } from "../gguf/architecture_keys.ts";
import type { Hparams } from "../gguf/hparams.ts";
import { readMambaHparams } from "../gguf/mamba_hparams.ts";
import type { PlanBuilder, Value } from "../plan/builder.ts";
import { activated } from "../plan/ops/activated.ts";
import { embed } from "../plan/ops/embed.ts";
import { linear } from "../plan/ops/matmul.ts";
import { rmsNorm } from "../plan/ops/rms_norm.ts";
import type { Architecture } from "./architecture.ts";
import { mixAttention, mixMamba2 } from "./mamba_hybrid.ts";

/**
 * Nemotron-H: one mixer a layer. It is a feed-forward with squared ReLU where the layer has a width of that, else attention without
 * positions where it has KV heads, else Mamba2. Source: "Nemotron-H" (arXiv 2504.03624).
 */
export const NEMOTRON_H: Architecture = {
  allows: { layersDiffer: true, eitherEpsilon: true },
  build: buildNemotronH,
};

function buildNemotronH(b: PlanBuilder, h: Hparams): Value {
  const keys = ArchitectureKeys.of(b.file.metadata);
  const mamba = readMambaHparams(keys);
  const scale = keys.scale("attention.scale", 1 / Math.sqrt(h.keyLength));
  const x = embed(b, "token_embd", h.vocabSize, h.embeddingLength);
  const residual = { addTo: x };
  for (const [i, layer] of h.layers.entries()) {
    const name = (tensor: string) => `blk.${i}.${tensor}`;
    const mixIn = rmsNorm(b, x, name("attn_norm"), h.epsilon);
    if (layer.feedForwardLength > 0) {
      const ffn = activated(b, mixIn, name("ffn_up"), layer.feedForwardLength, "squared_relu");
      linear(b, ffn, [{ name: name("ffn_down"), rows: h.embeddingLength, ...residual }]);
    } else if (layer.kvHeads > 0) {
      mixAttention(b, mixIn, h, layer, { scale }, name, residual);
    } else {
      mixMamba2(b, mixIn, mamba, h.epsilon, name, residual);
    }
  }
  return x;
}
