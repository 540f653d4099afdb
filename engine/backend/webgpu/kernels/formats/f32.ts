/** F32, stored unchanged. */
import { nameWords } from "./f16.ts";
import { copy, NATURAL, type WeightFormat } from "./format.ts";

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
