import { assert } from "@std/assert";
import { translate } from "../kernels/testing_shaders.ts";
import { countedFrom } from "../device/pipelines.ts";
import type { Kernel } from "../kernels/types.ts";
import { fullTier } from "../../../../testing/tier.ts";
import { mergeKernel } from "./attention/attention_merge.ts";
import { type AttentionShape, contextParts } from "./attention/attention_shape.ts";
import { singleKernel } from "./attention/attention_single.ts";
import { tileKernel } from "./attention/attention_tile.ts";
import { adjustKernel, candidatesKernel, partsKernel, racesKernel } from "./logits/candidate_kernels.ts";
import { deltaRuleKernel } from "./delta_rule.ts";
import { drawKernel } from "./logits/draw.ts";
import { rmsNormKernel } from "./rms_norm.ts";
import { ropeKernel } from "./rope_append.ts";
import { siluMultiplyKernel } from "./glu.ts";

const PLAIN = { heads: 32, kvHeads: 8, headDim: 128, gated: false };
/** Shape of the gated attention of Qwen3.6-27B. */
const GATED = { heads: 24, kvHeads: 4, headDim: 256, gated: true };
const PARTS = contextParts(40_960);
const DELTA = { keyHeads: 16, valueHeads: 48, headDim: 128 };

function kernels(): Kernel[] {
  return [
    rmsNormKernel(false),
    rmsNormKernel(true),
    siluMultiplyKernel(),
    ropeKernel({ heads: PLAIN, kv: "f16", rotated: 128, interleaved: true, norms: false }),
    ropeKernel({ heads: GATED, kv: "q8_0", rotated: 64, interleaved: false, norms: true, windowed: true }),
    ropeKernel({ heads: GATED, kv: "f16", rotated: 0, interleaved: false, norms: true }),
    ...([
      { ...PLAIN, kv: "f16", window: 0, sinks: false, group: 0 },
      { ...PLAIN, kv: "q8_0", window: 0, sinks: false, group: 0 },
      { ...GATED, kv: "f16", window: 0, sinks: false, group: 0 },
      { ...PLAIN, kv: "f16", headDim: 64, window: 128, sinks: true, group: 1 },
      { ...PLAIN, kv: "q8_0", headDim: 80, window: 128, sinks: true, group: 1 },
      { ...PLAIN, kv: "f16", headDim: 32, window: 0, sinks: false, group: 0 },
    ] satisfies AttentionShape[]).flatMap((shape) => [
      ...[false, true].flatMap((
        shared,
      ) => [singleKernel(shape, PARTS, shared), tileKernel(shape, PARTS, shared)]),
      mergeKernel(shape, PARTS),
    ]),
    // Dawn's adapter without a GPU has workgroups of 256 lanes; a head of 256 needs more.
    ...[32, 96, 128].map((headDim) => deltaRuleKernel({ heads: { ...DELTA, headDim }, lengthEps: 1e-6 })),
    partsKernel(),
    racesKernel(),
    adjustKernel(),
    candidatesKernel(),
    drawKernel(),
  ];
}

fullTier.test("op shaders: Dawn accepts them, naga translates them to Metal, and they compute in f32", async () => {
  const all = kernels();
  const texts = await translate(new Map(all.map((kernel) => [kernel.key, countedFrom(kernel)])));
  for (const { key } of all) {
    // The KV cache holds halves, which are widened at once.
    const text = texts.get(key)!.replaceAll(/float2\(as_type<half2>\(|as_type<uint>\(half2\(/g, "");
    assert(!/\bhalf\d?\b/.test(text), `${key} computes in half`);
  }
});
