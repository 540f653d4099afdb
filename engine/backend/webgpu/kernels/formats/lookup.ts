/**
 * Codes of 4 bits that index values. A table in workgroup memory has a pair of values for every byte of two
 * codes.
 */
import type { Decoder, Scalar } from "./format.ts";

/** Returns the decoder of `codes` (in Q4_0's order) with the values `values[code]`, all within [-1, 1]. */
export function lookup(
  scalar: Scalar,
  values: readonly number[],
  body: string,
  scale: string,
): Decoder {
  const pair = (word: number, byte: number) => `pairs[(w[${word}] >> ${8 * byte}u) & 255u]`;
  return {
    body: `let w = own.codes;\n  ${body}`,
    quads: Array.from({ length: 8 }, (_, q) => {
      const [word, byte] = [q >> 1, (q & 1) * 2];
      const [first, second] = [pair(word, byte), pair(word, byte + 1)];
      return `vec4<${scalar}>(${first}, ${second})`;
    }),
    // A byte holds column c and column c + 16.
    order: Array.from({ length: 16 }, (_, c) => [c, c + 16]).flat(),
    scale,
    globals: `var<workgroup> pairs: array<vec2<${scalar}>, 256>;`,
    setup: `var values = array<f32, 16>(${values.map((v) => `${v}f`).join(", ")});
  for (var i = lane_in_group; i < 256u; i += SIZE) {
    pairs[i] = vec2<${scalar}>(vec2<f32>(values[i & 15u], values[i >> 4u]));
  }
  workgroupBarrier();`,
  };
}
