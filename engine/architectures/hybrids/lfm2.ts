import { readExpertHparams } from "../../gguf/hparams/expert_hparams.ts";
import type { Hparams, LayerShape } from "../../gguf/hparams/hparams.ts";
import { readLfm2Hparams } from "../../gguf/hparams/lfm2_hparams.ts";
import type { PlanBuilder, Value } from "../../plan/builder.ts";
import { embed } from "../../plan/ops/embed.ts";
import { gatedConv } from "../../plan/ops/gated_conv.ts";
import { linear } from "../../plan/ops/matmul.ts";
import { rmsNorm } from "../../plan/ops/rms_norm.ts";
import { ropeTable } from "../../plan/ops/rope_table.ts";
import { glu } from "../../plan/ops/glu.ts";
import type { Architecture, TensorName } from "../architecture.ts";
import { groupedAttention } from "../parts/grouped_attention.ts";
import { handOut } from "../parts/hidden_rows.ts";
import { mixture } from "../parts/mixture.ts";
import type { Rope } from "../parts/rope.ts";

/** The file names the final norm like the norm of an embedding. */
const ending = () => ({ norm: "token_embd_norm" });

/**
 * LFM2: short gated convolutions, replaced in some layers by attention with head norms. Sources: "LFM2
 * Technical Report" (arXiv 2511.23404); Hugging Face transformers, models/lfm2.
 */
export const LFM2: Architecture = {
  allows: { layersDiffer: true },
  ending,
  build: (b, h, rope) => buildLfm2(b, h, rope, false),
};

/**
 * LFM2 with experts after the leading dense layers. Experts are weighed by sigmoids; a bias affects only their choice.
 */
export const LFM2MOE: Architecture = {
  allows: { layersDiffer: true, experts: true },
  ending,
  build: (b, h, rope) => buildLfm2(b, h, rope, true),
};

function buildLfm2(b: PlanBuilder, h: Hparams, rope: Rope, mixtures: boolean): Value {
  const { taps, window, denseLayers } = readLfm2Hparams(b.file, h, mixtures);
  const x = embed(b, "token_embd", h.vocabSize, h.embeddingLength);
  const table = ropeTable(b, rope.angles());
  const experts = denseLayers < h.blockCount ? readExpertHparams(b.file, h, "sigmoid") : undefined;
  for (const [i, layer] of h.layers.entries()) {
    const name = (tensor: string) => `blk.${i}.${tensor}`;
    handOut(b, x, i);
    const mixIn = rmsNorm(b, x, name("attn_norm"), h.epsilon);
    if (layer.kvHeads === 0) convolution(b, mixIn, x, taps, name);
    else headNormedAttention(b, mixIn, x, h, { layer, table, window }, name);
    const ffnIn = rmsNorm(b, x, name("ffn_norm"), h.epsilon);
    if (experts && i >= denseLayers) {
      mixture(b, ffnIn, x, experts, name, { sigmoid: true, bias: name("exp_probs_b.bias") });
      continue;
    }
    const ffn = glu(b, ffnIn, name("ffn_gate"), name("ffn_up"), layer.feedForwardLength);
    linear(b, ffn, [{ name: name("ffn_down"), rows: h.embeddingLength, addTo: x }]);
  }
  handOut(b, x, h.blockCount);
  return x;
}

function convolution(b: PlanBuilder, x: Value, addTo: Value, taps: number, name: TensorName): void {
  // A product of two gates and a value multiplies their rounding errors, so gates read two 8-bit planes. The output
  // matrix does too: a few products are so large that 8 bits would lose the others in their block.
  const parts = { name: name("shortconv.in_proj"), rows: 3 * x.columns, fine: 2 * x.columns };
  const mixed = gatedConv(b, linear(b, x, [parts])[0], name("shortconv.conv"), taps);
  linear(b, mixed, [{ name: name("shortconv.out_proj"), rows: x.columns, fine: x.columns, addTo }]);
}

interface AttentionLayer {
  readonly layer: LayerShape;
  readonly table: Value;
  /** Attention window in tokens; 0 means no window. */
  readonly window: number;
}

function headNormedAttention(
  b: PlanBuilder,
  x: Value,
  addTo: Value,
  h: Hparams,
  { layer: { heads, kvHeads }, table, window }: AttentionLayer,
  name: TensorName,
): void {
  const rope = { table, rotated: h.ropeDimensionCount, eps: h.epsilon };
  const of = { heads, kvHeads, headDim: h.keyLength, ...rope, headNorms: true, window };
  const attn = groupedAttention(b, x, of, name);
  linear(b, attn, [{ name: name("attn_output"), rows: x.columns, addTo }]);
}
