import type { Hparams } from "../../gguf/hparams.ts";
import type { PlanBuilder, Value } from "../../plan/builder.ts";
import { embed } from "../../plan/ops/embed.ts";
import { glu } from "../../plan/ops/glu.ts";
import { linear } from "../../plan/ops/matmul.ts";
import { postNorm } from "../../plan/ops/post_norm.ts";
import { rmsNorm } from "../../plan/ops/rms_norm.ts";
import { ropeTable } from "../../plan/ops/rope_table.ts";
import type { Architecture } from "../architecture.ts";
import { groupedAttention } from "../parts/grouped_attention.ts";
import type { Rope } from "../parts/rope.ts";

/**
 * GLM-4 and GLM-Z1 of 2025: norms before and after both halves of a layer, heads of which a part is rotated, gate and up in one
 * matrix. Source: Hugging Face transformers, models/glm4.
 */
export const GLM4: Architecture = { build: buildGlm4 };

function buildGlm4(b: PlanBuilder, h: Hparams, rope: Rope): Value {
  const { epsilon: eps, embeddingLength: width } = h;
  const x = embed(b, "token_embd", h.vocabSize, width);
  const table = ropeTable(b, rope.angles());
  for (let layer = 0; layer < h.blockCount; layer++) {
    const name = (tensor: string) => `blk.${layer}.${tensor}`;
    const attn = groupedAttention(b, rmsNorm(b, x, name("attn_norm"), eps), {
      heads: h.headCount,
      kvHeads: h.headCountKv,
      headDim: h.keyLength,
      table,
      rotated: h.ropeDimensionCount,
      interleaved: true,
      eps,
    }, name);
    const [mixed] = linear(b, attn, [{ name: name("attn_output"), rows: width }]);
    postNorm(b, mixed, name("post_attention_norm"), eps, x);

    const ffnIn = rmsNorm(b, x, name("ffn_norm"), eps);
    const ffn = glu(b, ffnIn, name("ffn_up"), name("ffn_up"), h.feedForwardLength);
    const [made] = linear(b, ffn, [{ name: name("ffn_down"), rows: width }]);
    postNorm(b, made, name("post_ffw_norm"), eps, x);
  }
  return x;
}
