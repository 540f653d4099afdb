import { type ExpertHparams, readExpertHparams } from "../../gguf/hparams/expert_hparams.ts";
import { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import { type Hparams, requireTensor } from "../../gguf/hparams/hparams.ts";
import type { PlanBuilder, Value } from "../../plan/builder.ts";
import { embed } from "../../plan/ops/embed.ts";
import { linear } from "../../plan/ops/matmul.ts";
import { rmsNorm } from "../../plan/ops/rms_norm.ts";
import { ropeTable } from "../../plan/ops/rope_table.ts";
import type { Architecture, TensorName } from "../architecture.ts";
import { groupedAttention } from "../parts/grouped_attention.ts";
import { handOut } from "../parts/hidden_rows.ts";
import { mixture } from "../parts/mixture.ts";
import type { Rope } from "../parts/rope.ts";

/**
 * gpt-oss: attention with sinks and a window in every second layer, experts with clamped SwiGLU, biases
 * everywhere. Sources: "gpt-oss-120b & gpt-oss-20b Model Card" (arXiv 2508.10925); Hugging Face transformers,
 * models/gpt_oss.
 */
export const GPT_OSS: Architecture = { allows: { experts: true }, build: buildGptOss };

function buildGptOss(b: PlanBuilder, h: Hparams, rope: Rope): Value {
  const experts = readExpertHparams(b.file, h);
  const keys = ArchitectureKeys.of(b.file.metadata);
  const window = keys.window();
  if (window === 0) keys.refuse("attention.sliding_window", "0", "at least 1");
  const sliding = keys.windowLayers(h.blockCount, { period: 2 });
  const x = embed(b, "token_embd", h.vocabSize, h.embeddingLength);
  const table = ropeTable(b, rope.angles());
  for (let layer = 0; layer < h.blockCount; layer++) {
    const name = (tensor: string) => `blk.${layer}.${tensor}`;
    requireBiases(b, h, experts, name);
    handOut(b, x, layer);
    const attnIn = rmsNorm(b, x, name("attn_norm"), h.epsilon);
    const heads = {
      heads: h.headCount,
      kvHeads: h.headCountKv,
      headDim: h.keyLength,
      table,
      rotated: h.ropeDimensionCount,
      eps: h.epsilon,
      window: sliding[layer] ? window : 0,
      sinks: true,
    };
    const attn = groupedAttention(b, attnIn, heads, name);
    linear(b, attn, [{ name: name("attn_output"), rows: h.embeddingLength, addTo: x }]);
    const ffnIn = rmsNorm(b, x, name("post_attention_norm"), h.epsilon);
    mixture(b, ffnIn, x, experts, name, { activation: "swiglu_oai" });
  }
  handOut(b, x, h.blockCount);
  return x;
}

/**
 * Refuses a file without these biases. Other architectures treat biases as optional, but here answers would
 * be wrong without them.
 */
function requireBiases(b: PlanBuilder, h: Hparams, e: ExpertHparams, name: TensorName): void {
  const fused = b.file.tensors.has(`${name("ffn_gate_up_exps")}.weight`);
  const shapes: Readonly<Record<string, readonly number[]>> = {
    attn_q: [h.headCount * h.keyLength],
    attn_k: [h.headCountKv * h.keyLength],
    attn_v: [h.headCountKv * h.keyLength],
    attn_output: [h.embeddingLength],
    ffn_gate_inp: [e.count],
    ...fused ? { ffn_gate_up_exps: [2 * e.feedForwardLength, e.count] } : {
      ffn_gate_exps: [e.feedForwardLength, e.count],
      ffn_up_exps: [e.feedForwardLength, e.count],
    },
    ffn_down_exps: [h.embeddingLength, e.count],
  };
  for (const [tensor, shape] of Object.entries(shapes)) requireTensor(b.file, `${name(tensor)}.bias`, shape);
}
