/** Seeded models of dense decoders that norm the outputs of attention and feed-forward. */
import { decoder, type DecoderShape, published, writeCounts, writeEnds, writeReals } from "./decoder.ts";
import { type SynthModel, TINY } from "./model.ts";
import type { SynthFile } from "./file.ts";

interface WindowedShape extends DecoderShape {
  /** YaRN's scaling factor. */
  readonly factor?: number;
}

/** Writes OLMo's and EXAONE's keys about windows and YaRN. */
function writeWindows(file: SynthFile, { layers, window, factor, context }: WindowedShape): void {
  if (window !== undefined) {
    const slides = Array.from({ length: layers }, (_, i) => i % 4 !== 3);
    file.keys("attention.sliding_window_pattern", "BOOL", slides);
  }
  if (factor === undefined) return;
  file.key("rope.scaling.type", "STRING", "yarn");
  file.key("rope.scaling.factor", "FLOAT32", factor);
  file.key("rope.scaling.original_context_length", "UINT32", context / factor);
}

type Tiny = Parameters<typeof decoder<WindowedShape>>[1]["tiny"];
const windowed = (architecture: string, tiny: Tiny, real: Readonly<Record<string, WindowedShape>>) =>
  decoder<WindowedShape>(architecture, { tiny, real, after: writeWindows });

/** For these families, llama.cpp supports only heads that together are as wide as the embedding. */
const OLMO_TINY = { heads: 8, headDim: 32, ropeBase: 5e5, untied: true };
const EXAONE_TINY = { heads: 4, headDim: 64, ropeBase: 1e6, ropeFactors: true };

interface Gemma3Shape extends DecoderShape {
  /** Factor that divides the positions of layers without a window. */
  readonly factor?: number;
  /** Bounds of attention scores and of logits. */
  readonly softcaps?: { readonly scores: number; readonly logits: number };
}

/** Writes Gemma 2's and 3's keys about scaled positions and softcaps. */
function writeGemmaKeys(file: SynthFile, { factor, softcaps }: Gemma3Shape): void {
  if (factor) {
    file.key("rope.scaling.type", "STRING", "linear");
    file.key("rope.scaling.factor", "FLOAT32", factor);
  }
  if (softcaps) {
    file.key("attn_logit_softcapping", "FLOAT32", softcaps.scores);
    file.key("final_logit_softcapping", "FLOAT32", softcaps.logits);
  }
}

export const POST_NORMED = {
  olmo2: windowed("olmo2", { ...OLMO_TINY, kvHeads: 4 }, {
    "olmo2-1b": published([2048, 8192, 16, 100_352, 4096], [16, 16, 128], 5e5, { untied: true }),
  }),
  // The last layer has a window too. Tests run beyond YaRN's original context.
  olmo3: windowed("olmo2", { ...OLMO_TINY, layers: 5, kvHeads: 2, window: 40, factor: 8 }, {
    "olmo3-7b": published([4096, 11_008, 32, 100_278, 65_536], [32, 32, 128], 5e5, {
      untied: true,
      window: 4096,
      factor: 8,
    }),
  }),
  exaone4: windowed("exaone4", { ...EXAONE_TINY, kvHeads: 2 }, {
    "exaone4-1.2b": published([2048, 4096, 30, 102_400, 65_536], [32, 8, 64], 1e6, { ropeFactors: true }),
  }),
  // llama.cpp recognises models with windows by the 32B's 64 layers.
  "exaone4-windows": windowed(
    "exaone4",
    { ...EXAONE_TINY, feedForward: 256, layers: 64, kvHeads: 1, untied: true, window: 40 },
    {
      "exaone4-32b": published([5120, 27_392, 64, 102_400, 131_072], [40, 8, 128], 1e6, {
        untied: true,
        ropeFactors: true,
        window: 4096,
      }),
    },
  ),
  glm4: decoder("glm4", {
    tiny: { heads: 8, kvHeads: 2, headDim: 32, rotated: 16, ropeBase: 1e4, untied: true },
    real: {
      "glm-4-9b": published([4096, 13_696, 40, 151_552, 32_768], [32, 2, 128], 1e4, {
        rotated: 64,
        untied: true,
        traits: { biases: [] },
      }),
    },
  }),
  gemma2: decoder<Gemma3Shape>("gemma2", {
    tiny: {
      heads: 4,
      kvHeads: 2,
      headDim: 64,
      ropeBase: 1e4,
      window: 24,
      softcaps: { scores: 2, logits: 20 },
    },
    real: {
      "gemma2-2b": published([2304, 9216, 26, 256_000, 8192], [8, 4, 256], 1e4, {
        window: 4096,
        softcaps: { scores: 50, logits: 30 },
      }),
    },
    after: writeGemmaKeys,
  }),
  gemma3: decoder<Gemma3Shape>("gemma3", {
    tiny: { layers: 7, heads: 4, kvHeads: 2, headDim: 64, ropeBase: 1e6, window: 24, factor: 8 },
    real: { "gemma3-1b": published([1152, 6912, 26, 262_144, 32_768], [4, 1, 256], 1e6, { window: 512 }) },
    after: writeGemmaKeys,
  }),
  // The last layer has a window too.
  "muse-glimmer": decoder<DecoderShape & { readonly logits: { scale: number; softcap: number } }>(
    "muse-glimmer",
    {
      checkpoint: {
        layer_types: Array.from(
          { length: 5 },
          (_, i) => i % 4 === 3 ? "full_attention" : "sliding_attention",
        ),
        hidden_activation: "silu",
        sliding_window: 40,
        output_multiplier: 0.6,
        final_logit_softcapping: 20,
        qk_scale_factor: 3.87,
      },
      tiny: {
        layers: 5,
        heads: 4,
        kvHeads: 2,
        headDim: 64,
        ropeBase: 5e5,
        untied: true,
        window: 40,
        logits: { scale: 0.6, softcap: 20 },
      },
      real: {
        "muse-glimmer-30b": published([6656, 19_968, 52, 202_048, 131_072], [32, 2, 128], 5e5, {
          untied: true,
          window: 2048,
          logits: { scale: 0.196116, softcap: 20 },
        }),
      },
      after(file, { layers, logits }) {
        const slides = Array.from({ length: layers }, (_, i) => i % 4 !== 3);
        file.keys("attention.sliding_window_pattern", "BOOL", slides);
        file.key("logit_scale", "FLOAT32", logits.scale);
        file.key("final_logit_softcapping", "FLOAT32", logits.softcap);
      },
    },
  ),
};

interface Plamo3Shape extends DecoderShape {
  /** Number of tokens before its own that a row attends to. The last layer of a period has no window. */
  readonly window: number;
  readonly period: number;
  /** Rotary base of layers with a window. */
  readonly nearBase: number;
}

function writePlamo3(file: SynthFile, shape: Plamo3Shape): void {
  const { embedding, feedForward, heads, kvHeads, headDim, window, period } = shape;
  writeCounts(file, shape, {
    "attention.sliding_window": window,
    "attention.sliding_window_pattern": period,
  });
  writeReals(file, shape);
  file.key("rope.freq_base_swa", "FLOAT32", shape.nearBase);
  writeEnds(file, shape);
  for (let layer = 0; layer < shape.layers; layer++) {
    const block = `blk.${layer}`;
    file.vector(`${block}.attn_norm.weight`, embedding);
    file.matrix(`${block}.attn_qkv`, embedding, (heads + 2 * kvHeads) * headDim);
    for (const part of ["q", "k"]) file.vector(`${block}.attn_${part}_norm.weight`, headDim);
    file.matrix(`${block}.attn_output`, heads * headDim, embedding);
    // Published norms are near 1/5 and 1/11: blocks add little to a row.
    file.vector(`${block}.post_attention_norm`, embedding, 0.2, 0.02);
    file.vector(`${block}.ffn_norm.weight`, embedding);
    file.matrix(`${block}.ffn_up`, embedding, 2 * feedForward);
    file.matrix(`${block}.ffn_down`, feedForward, embedding);
    file.vector(`${block}.post_ffw_norm`, embedding, 0.09, 0.01);
  }
}

/**
 * Model of PLaMo 3. Its window is longer than the prompts compared with llama.cpp, whose windows are one token shorter.
 */
export const PLAMO3: SynthModel<Plamo3Shape> = {
  tiny: {
    ...TINY,
    layers: 5,
    heads: 8,
    kvHeads: 2,
    headDim: 64,
    ropeBase: 1e6,
    nearBase: 1e4,
    window: 1024,
    period: 4,
  },
  write: writePlamo3,
};
