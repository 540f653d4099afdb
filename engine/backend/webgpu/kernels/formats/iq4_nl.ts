/** IQ4_NL: 32 nibbles that index a table of signed bytes, under one f16 scale. File layout as Q4_0. */
import { loadHalf, type WeightFormat } from "./format.ts";
import { lookup } from "./lookup.ts";
import { Q4_0 } from "./q4_0.ts";

/** The values of the nibbles. Source: https://github.com/ggml-org/llama.cpp, kvalues_iq4nl. */
export const VALUES = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113].map((v) =>
  v / 128
);

export const IQ4_NL: WeightFormat = {
  ...Q4_0,
  decoder: (scalar) => lookup(scalar, VALUES, loadHalf("d", "scales"), "d * 128.0"),
};
