import type { ColumnWeights } from "../importance.ts";
import type { QuantizeTo } from "./quantize_to.ts";
import type { QuantizerThreads } from "./quantizer_threads.ts";

/** The target type, the importance weights and the threads that quantize all matrices. */
export interface Quantization {
  readonly to: QuantizeTo;
  readonly threads: QuantizerThreads;
  readonly weights?: ColumnWeights;
}
