import { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import type { Hparams } from "../../gguf/hparams/hparams.ts";
import { readMambaHparams } from "../../gguf/hparams/mamba_hparams.ts";
import type { PlanBuilder, Value } from "../../plan/builder.ts";
import { embed } from "../../plan/ops/embed.ts";
import { rmsNorm } from "../../plan/ops/rms_norm.ts";
import { ropeTable } from "../../plan/ops/rope_table.ts";
import type { Architecture } from "../architecture.ts";
import { addGraniteMixture, readGraniteExperts } from "../parts/granite_experts.ts";
import { handOut } from "../parts/hidden_rows.ts";
import { mixAttention, mixMamba2 } from "../parts/mamba_hybrid.ts";
import type { Rope } from "../parts/rope.ts";
import { feedForward } from "../parts/shared_experts.ts";

/**
 * Granite 4: Mamba2 layers, and attention in layers with KV heads. Multipliers scale the embedding, residual
 * additions, attention scores and logits. Attention has no positions where the file says so. Feed-forward
 * blocks are all dense, or all have experts and one shared expert. Source: Hugging Face transformers,
 * models/granitemoehybrid.
 */
export const GRANITEHYBRID: Architecture = {
  allows: { layersDiffer: true, experts: true },
  ending: (keys) => ({ logits: { scale: 1 / keys.scale("logit_scale", 1) } }),
  build: buildGraniteHybrid,
};

function buildGraniteHybrid(b: PlanBuilder, h: Hparams, rope: Rope): Value {
  const keys = ArchitectureKeys.of(b.file.metadata);
  const mamba = readMambaHparams(keys);
  const scale = keys.scale("attention.scale", 1 / Math.sqrt(h.keyLength));
  const x = embed(b, "token_embd", h.vocabSize, h.embeddingLength, keys.scale("embedding_scale", 1));
  const residual = { addTo: x, times: keys.scale("residual_scale", 1) };
  const hasPositions = keys.metadata.getBoolean(keys.name("rope.scaling.finetuned"), true);
  const table = hasPositions ? ropeTable(b, rope.angles()) : undefined;
  const experts = readGraniteExperts(b.file, h, keys);
  for (const [i, layer] of h.layers.entries()) {
    const name = (tensor: string) => `blk.${i}.${tensor}`;
    handOut(b, x, i);
    const mixIn = rmsNorm(b, x, name("attn_norm"), h.epsilon);
    if (layer.kvHeads === 0) mixMamba2(b, mixIn, mamba, h.epsilon, name, residual);
    else mixAttention(b, mixIn, h, layer, { scale, table, interleaved: hasPositions }, name, residual);
    const ffnIn = rmsNorm(b, x, name("ffn_norm"), h.epsilon);
    if (experts) addGraniteMixture(b, ffnIn, experts, name, residual);
    else feedForward(b, ffnIn, layer.feedForwardLength, name, residual);
  }
  handOut(b, x, h.blockCount);
  return x;
}
