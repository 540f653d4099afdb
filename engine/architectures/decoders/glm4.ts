import type { Hparams } from "../../gguf/hparams.ts";
import type { PlanBuilder, Value } from "../../plan/builder.ts";
import { embed } from "../../plan/ops/embed.ts";
import { glu } from "../../plan/ops/glu.ts";
import { linear } from "../../plan/ops/matmul.ts";
import { postNorm } from "../../plan/ops/post_norm.ts";
import { rmsNorm } from "../../plan/ops/rms_norm.ts";
import { ropeTable } from "../../plan/ops/rope_table.ts";
import type { Architecture } from "../architecture.ts";
import { groupedAttention, type GroupedHeads } from "../parts/grouped_attention.ts";
import type { Sight } from "../parts/windows.ts";

/** How a layer's heads are kept, normed and turned, and what they see. */
type Heads = Sight & Pick<GroupedHeads, "fused" | "headNorms" | "interleaved">;

/**
 * GLM-4 and GLM-Z1 of 2025: norms before and after both halves of a layer, heads of which a part is rotated, gate and up in one
 * matrix. Source: Hugging Face transformers, models/glm4.
 */
export const GLM4: Architecture = {
  build(b, h, rope) {
    const table = ropeTable(b, rope.angles());
    return buildNormedTwice(b, h, h.layers.map(() => ({ table, interleaved: true })));
  },
};

/** A decoder of such halves. `layers` are the heads of each; `weight` is what its names of norms behind halves end with. */
export function buildNormedTwice(
  b: PlanBuilder,
  h: Hparams,
  layers: readonly Heads[],
  weight = ".weight",
): Value {
  const { epsilon: eps, embeddingLength: width } = h;
  const x = embed(b, "token_embd", h.vocabSize, width);
  for (const [layer, heads] of layers.entries()) {
    const name = (tensor: string) => `blk.${layer}.${tensor}`;
    const whole = (tensor: string) => ({ whole: name(tensor) + weight });
    const attn = groupedAttention(b, rmsNorm(b, x, name("attn_norm"), eps), {
      ...heads,
      heads: h.headCount,
      kvHeads: h.headCountKv,
      headDim: h.keyLength,
      rotated: h.ropeDimensionCount,
      eps,
    }, name);
    const [mixed] = linear(b, attn, [{ name: name("attn_output"), rows: width }]);
    postNorm(b, mixed, whole("post_attention_norm"), eps, x);

    const ffnIn = rmsNorm(b, x, name("ffn_norm"), eps);
    const ffn = glu(b, ffnIn, name("ffn_up"), name("ffn_up"), h.feedForwardLength);
    const [made] = linear(b, ffn, [{ name: name("ffn_down"), rows: width }]);
    postNorm(b, made, whole("post_ffw_norm"), eps, x);
  }
  return x;
}
