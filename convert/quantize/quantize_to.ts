import { iq1_m, iq1_s, iq2_s, iq2_xs, iq2_xxs, iq3_s, iq3_xxs } from "./codebook_quantizers.ts";
import { iq4_nl, iq4_xs } from "./iq4_quantizers.ts";
import { q1_0, q2_0 } from "./low_bit_quantizers.ts";
import { mxfp4, q4_0, q8_0, type Quantizer } from "./quantizers.ts";
import { q2_k, q4_k, q5_k } from "./scale_min_quantizers.ts";
import { q3_k, q6_k } from "./scale_quantizers.ts";
import { tq1_0, tq2_0 } from "./ternary_quantizers.ts";

const QUANTIZERS = {
  q8_0,
  q6_k,
  q5_k,
  q4_k,
  q3_k,
  q2_k,
  iq4_xs,
  iq4_nl,
  iq3_s,
  iq3_xxs,
  iq2_s,
  iq2_xs,
  iq2_xxs,
  iq1_m,
  iq1_s,
  q4_0,
  mxfp4,
  tq2_0,
  tq1_0,
  q2_0,
  q1_0,
} as const satisfies Readonly<Record<string, Quantizer>>;

/** Formats that `--quantize` accepts. */
export type QuantizeTo = keyof typeof QUANTIZERS;
export const QUANTIZE_TO = Object.keys(QUANTIZERS) as QuantizeTo[];

/** Replacements, with smaller blocks and more bits, for rows that do not divide into a format's blocks. */
const INSTEAD: Partial<Record<QuantizeTo, Quantizer>> = {
  ...Object.fromEntries(
    ["q3_k", "q2_k", "iq4_xs", "iq3_s", "iq3_xxs", "iq2_s", "iq2_xs", "iq2_xxs", "iq1_m", "iq1_s"]
      .map((type) => [type, iq4_nl]),
  ),
  // Q2_0 also stores ternary weights exactly.
  tq2_0: q2_0,
  tq1_0: q2_0,
};

/** Returns the quantizer of a format. */
export function quantizerFor(to: QuantizeTo): Quantizer {
  return QUANTIZERS[to];
}

/** Returns whether the format's quantizer uses an importance matrix. */
export function weighs(to: QuantizeTo): boolean {
  return quantizerFor(to).weighs === true;
}

/**
 * Returns the quantizer for rows whose column runs have these lengths. If the runs do not divide into the wanted
 * format's blocks, returns one with smaller blocks; undefined if the runs do not divide into Q8_0's blocks either.
 */
export function quantizerOf(to: QuantizeTo, runs: readonly number[]): Quantizer | undefined {
  return [QUANTIZERS[to], INSTEAD[to], q8_0].find((quantizer) =>
    quantizer && runs.every((run) => run % quantizer.columns === 0)
  );
}
