import { ArchitectureKeys } from "./architecture_keys.ts";
import type { Hparams } from "./hparams.ts";
import type { GgufFile } from "../types.ts";

/** LFM2's hyper-parameters beyond the common ones. A layer without KV heads is a convolution. */
export interface Lfm2Hparams {
  /** Number of inputs of a convolution: the token's own and those of the previous tokens. */
  readonly taps: number;
  /** Number of tokens that attention reads per row, including the row itself; 0: all. */
  readonly window: number;
  /** Leading layers with a dense feed-forward block. The other layers have experts. */
  readonly denseLayers: number;
}

/** Maximum taps of a convolution that the kernels support. */
const MAX_TAPS = 16;
const WIDTH_STEP = 32;

/**
 * Reads and checks `{architecture}.shortconv.*` and related keys, with llama.cpp's defaults. `mixture` means
 * the architecture with experts. Throws GgufError(GGUF_HPARAM) naming the key.
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
