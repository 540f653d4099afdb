/** BF16: the upper halves of floats. */
import { F16, floats } from "./f16.ts";
import type { WeightFormat } from "./format.ts";

export const BF16: WeightFormat = {
  ...F16,
  decoder: (scalar) =>
    floats(scalar, (w) => `bitcast<vec2<f32>>(vec2<u32>(${w} << 16u, ${w} & 0xffff0000u))`),
};
