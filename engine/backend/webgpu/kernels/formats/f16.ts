/** F16, as it is. */
import { copy, NATURAL, type WeightFormat } from "./format.ts";

/** Quads of a format of 16 bits a weight, `pair` making a vec2 of a word. */
export function pairs(pair: (word: string) => string): string[] {
  return Array.from({ length: 8 }, (_, k) => {
    const [part, at] = [k >> 1, (k & 1) * 2];
    return `vec4<f32>(${pair(`w${part}[${at}]`)}, ${pair(`w${part}[${at + 1}]`)})`;
  });
}

/** Statements: w0, w1 and so on, the words of block b. */
export function loadWords(count: number): string {
  return Array.from(
    { length: count },
    (_, i) => `let w${i} = codes[row * CODES_ROW + ${count}u * b + ${i}u];`,
  )
    .join("\n  ");
}

export const F16: WeightFormat = {
  planes: [{ name: "codes", element: "vec4<u32>", bytes: 2, columns: 1 }],
  sub: 32,
  bounded: false,
  blockColumns: 1,
  blockBytes: 2,
  pack: (from, at, [codes], [c]) => copy(from, at, codes, c, 2),
  decoder: () => ({
    body: loadWords(4),
    quads: pairs((w) => `unpack2x16float(${w})`),
    order: NATURAL,
    scale: "1.0",
  }),
};
