import { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import type { Hparams } from "../../gguf/hparams/hparams.ts";
import type { PlanBuilder, Value } from "../../plan/builder.ts";
import { embed } from "../../plan/ops/embed.ts";
import { linear } from "../../plan/ops/matmul.ts";
import { postNorm } from "../../plan/ops/post_norm.ts";
import { rmsNorm } from "../../plan/ops/rms_norm.ts";
import { ropeTable } from "../../plan/ops/rope_table.ts";
import type { Architecture } from "../architecture.ts";
import { groupedAttention, type GroupedHeads } from "../parts/grouped_attention.ts";
import { leaveOutDrafting } from "../left_out.ts";
import { feedForward } from "../parts/shared_experts.ts";
import { readWindows, type Sight, windowedSights } from "../parts/windows.ts";

/** How a layer's heads are stored, normed and rotated, and their window. */
type Heads = Sight & Pick<GroupedHeads, "fused" | "headNorms" | "rowNorms" | "interleaved">;

interface PostNormed {
  /** Attention and feed-forward also norm their input, and gate and up are one tensor. */
  readonly normedTwice?: boolean;
  /** Suffix of post-norm tensor names; by default ".weight". */
  readonly weight?: string;
}

/**
 * OLMo 2 and OLMo 3. In OLMo 3 three of four layers have a window and no YaRN. Sources: "2 OLMo 2 Furious"
 * (arXiv 2501.00656), "Olmo 3" (arXiv 2512.13961).
 */
export const OLMO2: Architecture = {
  build(b, h, rope) {
    const sights = windowedSights(b, h, rope, "rope.scaling.attn_factor");
    return buildPostNormed(b, h, sights.map((sight) => ({ ...sight, rowNorms: true })));
  },
};

/**
 * EXAONE 4: in models with windows, the layers without one have no positions. Sources: "EXAONE 4.0" (arXiv
 * 2507.11407); Hugging Face transformers, models/exaone4.
 */
export const EXAONE4: Architecture = {
  build(b, h, rope) {
    const keys = ArchitectureKeys.of(b.file.metadata);
    const layers = leaveOutDrafting(b, h);
    const table = ropeTable(b, rope.angles());
    const hybrid = keys.window() > 0;
    return buildPostNormed(
      b,
      h,
      readWindows(keys, h, layers).map((window) => ({
        table: hybrid && window === 0 ? undefined : table,
        window,
        headNorms: true,
      })),
    );
  },
};

/**
 * Builds decoders that norm the outputs of attention and of SwiGLU. By default these read unnormed rows.
 * `layers` describes each layer's heads.
 */
export function buildPostNormed(
  b: PlanBuilder,
  h: Hparams,
  layers: readonly Heads[],
  { normedTwice = false, weight = ".weight" }: PostNormed = {},
): Value {
  const { epsilon: eps, embeddingLength: width } = h;
  const x = embed(b, "token_embd", h.vocabSize, width);
  for (const [layer, heads] of layers.entries()) {
    const name = (tensor: string) => `blk.${layer}.${tensor}`;
    const whole = (tensor: string) => ({ whole: name(tensor) + weight });
    const read = (norm: string) => normedTwice ? rmsNorm(b, x, name(norm), eps) : x;
    const attn = groupedAttention(b, read("attn_norm"), {
      ...heads,
      heads: h.headCount,
      kvHeads: h.headCountKv,
      headDim: h.keyLength,
      rotated: h.ropeDimensionCount,
      eps,
    }, name);
    const [mixed] = linear(b, attn, [{ name: name("attn_output"), rows: width }]);
    postNorm(b, mixed, whole("post_attention_norm"), eps, x);

    const called = (tensor: string) => name(normedTwice && tensor === "ffn_gate" ? "ffn_up" : tensor);
    const made = feedForward(b, read("ffn_norm"), h.feedForwardLength, called, width);
    postNorm(b, made, whole("post_ffw_norm"), eps, x);
  }
  return x;
}
