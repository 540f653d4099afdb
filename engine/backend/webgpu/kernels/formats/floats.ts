/** Formats with a number of 16 or 32 bits per weight, stored unchanged. */
import { copy, type Decoder, NATURAL, type Scalar, scaledTo, type WeightFormat } from "./format.ts";

/**
 * Returns the decoder of a format with 16 bits per weight. `pair` makes two floats of a word. In f16
 * arithmetic a power of two scales the block's largest magnitude to [0.5, 1) and the block's scale reverts
 * it, so that the bounds of the other formats hold for these weights too.
 */
function floats(scalar: Scalar, pair: (word: string) => string): Decoder {
  const quads = Array.from({ length: 8 }, (_, k) => {
    const [part, at] = [k >> 1, (k & 1) * 2];
    return `vec4<f32>(${pair(`w${part}[${at}]`)}, ${pair(`w${part}[${at + 1}]`)})`;
  });
  if (scalar === "f32") return { body: nameWords(4), quads, order: NATURAL, scale: "1.0" };
  const body = `${nameWords(4)}
  ${quads.map((quad, k) => `let x${k} = ${quad};`).join("\n  ")}
  ${scaledTo(0)}`;
  return { body, quads: quads.map((_, k) => `vec4<f16>(x${k} * up)`), order: NATURAL, scale: "down" };
}

/** Statements that name the block's elements w0, w1 and so on. */
function nameWords(count: number): string {
  return Array.from({ length: count }, (_, i) => `let w${i} = own.codes[${i}];`).join("\n  ");
}

export const F16: WeightFormat = {
  planes: [{ name: "codes", element: "vec4<u32>", bytes: 2, columns: 1 }],
  sub: 32,
  pack: (from, at, [codes], [c]) => copy(from, at, codes, c, 2),
  decoder: (scalar) => floats(scalar, (w) => `unpack2x16float(${w})`),
};

/** BF16: the upper halves of floats. */
export const BF16: WeightFormat = {
  ...F16,
  decoder: (scalar) =>
    floats(scalar, (w) => `bitcast<vec2<f32>>(vec2<u32>(${w} << 16u, ${w} & 0xffff0000u))`),
};

export const F32: WeightFormat = {
  planes: [{ name: "codes", element: "vec4<u32>", bytes: 4, columns: 1 }],
  sub: 32,
  unbounded: true,
  pack: (from, at, [codes], [c]) => copy(from, at, codes, c, 4),
  decoder: () => ({
    body: nameWords(8),
    quads: Array.from({ length: 8 }, (_, k) => `bitcast<vec4<f32>>(w${k})`),
    order: NATURAL,
    scale: "1.0",
  }),
};
