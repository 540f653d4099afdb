/** BF16: the upper halves of floats. */
import { F16, loadWords, pairs } from "./f16.ts";
import { NATURAL, type WeightFormat } from "./format.ts";

export const BF16: WeightFormat = {
  ...F16,
  decoder: () => ({
    body: loadWords(4),
    quads: pairs((w) => `bitcast<vec2<f32>>(vec2<u32>(${w} << 16u, ${w} & 0xffff0000u))`),
    order: NATURAL,
    scale: "1.0",
  }),
};
