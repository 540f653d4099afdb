import { ArchitectureKeys } from "./architecture_keys.ts";
import type { Hparams } from "./hparams.ts";
import type { GgufFile } from "./types.ts";

/** What LFM2 has beside the hyper-parameters that all have. A layer without KV heads is a convolution. */
export interface Lfm2Hparams {
  /** Inputs that a convolution reads: a token's own and those of the tokens before it. */
  readonly taps: number;
  /** Tokens that a row of attention sees, its own the last of them; 0 is all. */
  readonly window: number;
  /** Leading layers with a dense feed-forward half; the others have experts. */
  readonly denseLayers: number;
}

/** What the kernels can hold. */
const MAX_TAPS = 16;
const WIDTH_STEP = 32;

/**
 * Reads and checks the keys `{architecture}.shortconv.*` and their like; with `mixture` of the architecture that has experts.
 * Throws GgufError(GGUF_HPARAM) naming the key. Defaults are llama.cpp's.
 */
export function readLfm2Hparams(file: GgufFile, h: Hparams, mixture: boolean): Lfm2Hparams {
  const keys = new ArchitectureKeys(file.metadata, h.architecture);
  const taps = keys.count("shortconv.l_cache", MAX_TAPS);
  if (taps < 2) keys.refuse("shortconv.l_cache", String(taps), `2 to ${MAX_TAPS}`);
  if (h.embeddingLength % WIDTH_STEP !== 0) {
    keys.refuse("embedding_length", String(h.embeddingLength), `a multiple of ${WIDTH_STEP}`);
  }
  const window = keys.window();
  if (mixture && window > 0) keys.refuse("attention.sliding_window", String(window), "0 with experts");
  const denseLayers = mixture ? keys.leadingDenseLayers(h.blockCount, 0) : h.blockCount;
  for (const [i, { heads, feedForwardLength }] of h.layers.entries()) {
    if (heads === 0) keys.refuse("attention.head_count", "0", `at least 1 in layer ${i}`);
    if (i < denseLayers && feedForwardLength === 0) {
      keys.refuse("feed_forward_length", "0", `at least 1 in layer ${i}`);
    }
  }
  return { taps, window, denseLayers };
}
