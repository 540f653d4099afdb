import { assertEquals } from "@std/assert";
import { BLOCK, E2M1, mxfp4 } from "./quantizers.ts";

/** Returns the nearest code, ties to even, computed in doubles from the definition. */
function nearest(value: number): number {
  const distances = E2M1.map((held) => Math.abs(Math.abs(value) - held));
  const least = Math.min(...distances);
  const codes = distances.flatMap((distance, code) => distance === least ? [code] : []);
  const code = codes.find((code) => code % 2 === 0) ?? codes[0];
  return value < 0 ? code | 8 : code;
}

/** Returns the block's exponent and codes by the definition of the format. */
function byDefinition(values: Float32Array): number[] {
  const largest = Math.max(...values.map(Math.abs));
  const exponent = Math.max(0, Math.min(254, Math.floor(Math.log2(largest)) - 2 + 127));
  const [below, above] = [exponent, exponent + 1].map((exponent) => {
    const scale = 2 ** (exponent - 127);
    const codes = [...values].map((value) => nearest(value / scale));
    const error = codes.reduce(
      (sum, code, i) => sum + (Math.abs(values[i]) - E2M1[code & 7] * scale) ** 2,
      0,
    );
    return { exponent, codes, error };
  });
  const chosen = exponent < 254 && above.error < below.error ? above : below;
  return [chosen.exponent, ...chosen.codes];
}

function encoded(values: Float32Array): number[] {
  const [out, restored] = [new Uint8Array(mxfp4.bytes), new Float32Array(BLOCK)];
  mxfp4.block(values, 0, out, 0, restored);
  const codes = [...out.slice(1)];
  const scale = 2 ** (out[0] - 127);
  const found = [out[0], ...codes.map((byte) => byte & 15), ...codes.map((byte) => byte >> 4)];
  const held = found.slice(1).map((code) => (code & 8 ? -E2M1[code & 7] : E2M1[code & 7]) * scale);
  assertEquals([...restored], held.map(Math.fround)); // f32 rounds values below its range
  return found;
}

Deno.test("quantizers: MXFP4 chooses the nearest codes under the better of two exponents", () => {
  const spreads: ((i: number) => number)[] = [
    (i) => Math.sin(i * i) * 0.04,
    (i) => (i * 37 % 65 - 32) / 4 * 2 ** (i * 7 % 3), // halfway between codes
    (i) => Math.sin(i) * 2 ** (i * 13 % 250 - 125),
    (i) => Math.sin(i) * 2 ** -140, // subnormal
    (i) => Math.cos(i) * 3.4e38,
    (i) => i % 3 === 0 ? -0 : i % 3 === 1 ? 0 : -1e-30,
  ];
  for (const spread of spreads) {
    for (let block = 0; block < 200; block++) {
      const values = Float32Array.from({ length: BLOCK }, (_, i) => spread(block * BLOCK + i));
      assertEquals(encoded(values), byDefinition(values), `${values}`);
    }
  }
});
