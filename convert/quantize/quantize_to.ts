import { q4_k, q6_k } from "./k_quantizers.ts";
import { mxfp4, q4_0, q8_0, type Quantizer } from "./quantizers.ts";

/** The formats that `--quantize` takes. */
export type QuantizeTo = "q8_0" | "q6_k" | "q4_k" | "q4_0" | "mxfp4";
export const QUANTIZE_TO: readonly QuantizeTo[] = ["q8_0", "q6_k", "q4_k", "q4_0", "mxfp4"];

const QUANTIZERS: Readonly<Record<QuantizeTo, Quantizer>> = { q8_0, q6_k, q4_k, q4_0, mxfp4 };

/**
 * The quantiser of rows whose runs of columns begin and measure so: Q8_0's where the wanted format's blocks would have to be
 * cut, undefined where its blocks would be too.
 */
export function quantizerOf(to: QuantizeTo, runs: readonly number[]): Quantizer | undefined {
  return [QUANTIZERS[to], q8_0].find(({ columns }) => runs.every((run) => run % columns === 0));
}
