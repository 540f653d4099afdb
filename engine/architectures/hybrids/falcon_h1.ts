import { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import type { Hparams } from "../../gguf/hparams/hparams.ts";
import { readMambaHparams } from "../../gguf/hparams/mamba_hparams.ts";
import type { PlanBuilder, Value } from "../../plan/builder.ts";
import { embed } from "../../plan/ops/embed.ts";
import { rmsNorm } from "../../plan/ops/rms_norm.ts";
import { ropeTable } from "../../plan/ops/rope_table.ts";
import type { Architecture } from "../architecture.ts";
import { handOut } from "../parts/hidden_rows.ts";
import { mixAttention, mixMamba2 } from "../parts/mamba_hybrid.ts";
import type { Rope } from "../parts/rope.ts";
import { feedForward } from "../parts/shared_experts.ts";

/**
 * Falcon-H1: attention and Mamba2 read the same normed rows in each layer, and their outputs are added.
 * Mamba2's output is normed where the file has the norm. Converters fold the checkpoints' multipliers into
 * the weights. Sources: "Falcon-H1" (arXiv 2507.22448); Hugging Face transformers, models/falcon_h1.
 */
export const FALCON_H1: Architecture = { build: buildFalconH1 };

function buildFalconH1(b: PlanBuilder, h: Hparams, rope: Rope): Value {
  const mamba = readMambaHparams(ArchitectureKeys.of(b.file.metadata));
  const normed = b.file.tensors.has("blk.0.ssm_norm.weight");
  const x = embed(b, "token_embd", h.vocabSize, h.embeddingLength);
  const residual = { addTo: x };
  const heads = { scale: 1 / Math.sqrt(h.keyLength), table: ropeTable(b, rope.angles()), interleaved: false };
  for (const [i, layer] of h.layers.entries()) {
    const name = (tensor: string) => `blk.${i}.${tensor}`;
    handOut(b, x, i);
    const mixIn = rmsNorm(b, x, name("attn_norm"), h.epsilon);
    mixAttention(b, mixIn, h, layer, heads, name, residual);
    mixMamba2(b, mixIn, { ...mamba, normed }, h.epsilon, name, residual);
    // Converters name this norm without ".weight".
    const ffnIn = rmsNorm(b, x, { whole: name("ffn_norm") }, h.epsilon);
    feedForward(b, ffnIn, layer.feedForwardLength, name, residual);
  }
  handOut(b, x, h.blockCount);
  return x;
}
