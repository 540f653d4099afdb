/** Seeded models with gates on attention's output, and with heads that differ between layers. */
import type { LayerWidths } from "../../engine/architectures/checkpoint.ts";
import { decoder, published } from "./decoder.ts";
import {
  CHOICE_BIAS,
  EXPERTS,
  mixture,
  type MixtureShape,
  sharedWidth,
  sigmoidCounts,
  writeWeights,
} from "./mixtures.ts";
import { writeYarn } from "./windowed_mixtures.ts";

/** A model with gates on attention's output, and with more heads in layers with a window. */
interface GatedShape extends MixtureShape {
  readonly window: number;
  readonly windowHeads: number;
  /** YaRN's factor. */
  readonly factor?: number;
  /** Bounds of SwiGLU's factors in the last two layers. */
  readonly limits?: { readonly chosen: number; readonly shared: number };
}

const GATED = {
  layers: 6,
  heads: 4,
  windowHeads: 8,
  kvHeads: 2,
  headDim: 64,
  ropeBase: 5e5,
  window: 40,
  untied: true,
  experts: { ...EXPERTS, shared: 1, scale: 1.5 },
};

const gatedWindows = ({ layers }: GatedShape) => Array.from({ length: layers }, (_, i) => i % 4 !== 0);

function gatedWidths(shape: GatedShape): LayerWidths[] {
  const { heads, windowHeads, kvHeads, feedForward } = shape;
  return gatedWindows(shape).map((slides) => ({ heads: slides ? windowHeads : heads, kvHeads, feedForward }));
}

export const GATED_HEADS = {
  // The first layer of a period of four has no window.
  step35: decoder<GatedShape>("step35", {
    tiny: { ...GATED, leadingDense: 1, ropeFactors: true, limits: { chosen: 0.3, shared: 0.5 } },
    real: {
      "step-3.5-flash": published([4096, 11_264, 45, 128_896, 262_144], [64, 8, 128], 5e6, {
        windowHeads: 96,
        window: 512,
        untied: true,
        experts: { count: 288, used: 8, feedForward: 1280, shared: 1, scale: 3 },
        leadingDense: 3,
        limits: { chosen: 7, shared: 16 },
      }),
    },
    widths: gatedWidths,
    counts: (shape) => ({ ...sigmoidCounts(shape), expert_shared_feed_forward_length: sharedWidth(shape) }),
    afterCounts(file, shape) {
      writeWeights(file, shape);
      file.keys("attention.sliding_window_pattern", "BOOL", gatedWindows(shape));
      file.key("rope.freq_base_swa", "FLOAT32", 1e4);
      // Only the last layers have limits.
      for (const [part, key] of [["chosen", "exp"], ["shared", "shexp"]] as const) {
        const limits = gatedWindows(shape).map((_, i) => i < shape.layers - 2 ? 0 : shape.limits![part]);
        file.keys(`swiglu_clamp_${key}`, "FLOAT32", limits);
      }
    },
    feedForward: mixture(CHOICE_BIAS.usual),
  }),
  // Layers without a window use YaRN, beyond whose original context tests run, and rotate half of each head.
  laguna: decoder<GatedShape>("laguna", {
    tiny: {
      ...GATED,
      layers: 5,
      leadingDense: 1,
      rotated: 32,
      factor: 8,
      // Few layers, few experts and a large bias, because otherwise rounding would often change the choice.
      experts: { count: 8, used: 2, feedForward: 256, shared: 1, scale: 1.25 },
    },
    real: {
      "laguna-xs.2": published([2048, 8192, 40, 100_352, 131_072], [48, 8, 128], 5e5, {
        windowHeads: 64,
        rotated: 64,
        window: 512,
        factor: 32,
        untied: true,
        experts: { count: 256, used: 8, feedForward: 512, shared: 1, scale: 2.5 },
        leadingDense: 1,
      }),
    },
    widths: gatedWidths,
    counts: (shape) => ({
      ...sigmoidCounts(shape),
      expert_shared_feed_forward_length: sharedWidth(shape),
      "rope.dimension_count_swa": shape.headDim,
    }),
    afterCounts(file, shape) {
      writeWeights(file, shape);
      writeYarn(file, shape.context, shape.factor!);
      file.key("rope.freq_base_swa", "FLOAT32", 1e4);
    },
    feedForward: mixture(CHOICE_BIAS.large),
  }),
};
