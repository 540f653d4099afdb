import type { ColumnWeights } from "../importance.ts";
import type { QuantizeTo } from "./quantize_to.ts";
import type { QuantizerThreads } from "./quantizer_threads.ts";

/** The type and weights with which all matrices are quantized, and the threads that do it. */
export interface Quantization {
  readonly to: QuantizeTo;
  readonly threads: QuantizerThreads;
  readonly weights?: ColumnWeights;
}
