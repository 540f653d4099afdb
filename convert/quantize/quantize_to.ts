import { q4_k, q6_k } from "./k_quantizers.ts";
import { q1_0, q2_0 } from "./low_bit_quantizers.ts";
import { mxfp4, q4_0, q8_0, type Quantizer } from "./quantizers.ts";

/** Formats that `--quantize` accepts. */
export type QuantizeTo = "q8_0" | "q6_k" | "q4_k" | "q4_0" | "mxfp4" | "q2_0" | "q1_0";
export const QUANTIZE_TO: readonly QuantizeTo[] = ["q8_0", "q6_k", "q4_k", "q4_0", "mxfp4", "q2_0", "q1_0"];

const QUANTIZERS: Readonly<Record<QuantizeTo, Quantizer>> = { q8_0, q6_k, q4_k, q4_0, mxfp4, q2_0, q1_0 };

/**
 * Returns the quantizer for rows whose column runs have these starts and lengths. Returns Q8_0's when the
 * wanted format's blocks would be cut; undefined when Q8_0's would be cut, too.
 */
export function quantizerOf(to: QuantizeTo, runs: readonly number[]): Quantizer | undefined {
  return [QUANTIZERS[to], q8_0].find(({ columns }) => runs.every((run) => run % columns === 0));
}
