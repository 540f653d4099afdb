import { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import type { Hparams } from "../../gguf/hparams/hparams.ts";
import type { PlanBuilder, Value } from "../../plan/builder.ts";
import { embed } from "../../plan/ops/embed.ts";
import { linear } from "../../plan/ops/matmul.ts";
import { postNorm } from "../../plan/ops/post_norm.ts";
import { rmsNorm } from "../../plan/ops/rms_norm.ts";
import { ropeTable } from "../../plan/ops/rope_table.ts";
import type { Architecture } from "../architecture.ts";
import { groupedAttention } from "../parts/grouped_attention.ts";
import { handOut } from "../parts/hidden_rows.ts";
import type { Rope } from "../parts/rope.ts";
import { feedForward, sharedMixture } from "../parts/shared_experts.ts";
import { readSigmoidExperts } from "./sigmoid_experts.ts";

/** Layers per period. The last layer of a period has neither a window nor positions. */
const PERIOD = 4;

/**
 * Arcee's Trinity. Attention and feed-forward blocks have norms before and after. Sigmoid gates, computed
 * from the layer's input rows, scale the attention output. All layers but the leading dense ones have experts
 * with sigmoid weights.
 * Sources: "Arcee Trinity Large" (Arcee AI, 2026); Hugging Face transformers, models/afmoe.
 */
export const AFMOE: Architecture = { allows: { experts: true }, build: buildAfmoe };

function buildAfmoe(b: PlanBuilder, h: Hparams, rope: Rope): Value {
  const { epsilon: eps, embeddingLength: width } = h;
  const keys = ArchitectureKeys.of(b.file.metadata);
  const experts = readSigmoidExperts(b.file, h);
  const slides = keys.windowLayers(h.blockCount, { period: PERIOD });
  const x = embed(b, "token_embd", h.vocabSize, width, Math.sqrt(width));
  const base = keys.ropeBase(h.ropeFreqBase, "_swa");
  const near = { table: ropeTable(b, rope.angles({ base })), window: keys.window() };
  for (let layer = 0; layer < h.blockCount; layer++) {
    const name = (tensor: string) => `blk.${layer}.${tensor}`;
    handOut(b, x, layer);
    const attn = groupedAttention(b, rmsNorm(b, x, name("attn_norm"), eps), {
      ...slides[layer] && near,
      heads: h.headCount,
      kvHeads: h.headCountKv,
      headDim: h.keyLength,
      rotated: h.ropeDimensionCount,
      eps,
      headNorms: true,
      outputGate: { activation: "sigmoid" },
    }, name);
    const [mixed] = linear(b, attn, [{ name: name("attn_output"), rows: width }]);
    postNorm(b, mixed, name("post_attention_norm"), eps, x);

    const ffnIn = rmsNorm(b, x, name("ffn_norm"), eps);
    const weighed = { ...experts.weighed, sigmoid: true, bias: name("exp_probs_b.bias") };
    const made = layer < experts.denseLayers
      ? feedForward(b, ffnIn, h.feedForwardLength, name, width)
      : sharedMixture(b, ffnIn, experts, name, width, weighed);
    postNorm(b, made, name("post_ffw_norm"), eps, x);
  }
  handOut(b, x, h.blockCount);
  return x;
}
