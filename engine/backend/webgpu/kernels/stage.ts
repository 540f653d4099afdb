/** A product's activations in workgroup memory. */
import { QUAD, type WeightFormat } from "./formats/format.ts";
import { list } from "./list.ts";
import { type Numbers, scaleType } from "./shader.ts";

/**
 * Returns WGSL: `stage(t, e, v)` stores a block of activations as block `e` of row `t`, and `staged(t, e)` loads it.
 * `offset`: the format has offsets, which need the sum of each block.
 */
export function stageOf(
  format: WeightFormat,
  { input }: Numbers,
  { rows, blocks, offset }: { readonly rows: number; readonly blocks: number; readonly offset: boolean },
): string {
  const scaled = input !== "f32";
  const quads = list(8, (k) => `x_quads[(t * 8u + ${k}u) * ${blocks}u + e]`);
  const [scale, sum] = ["x_scales", "x_sums"].map((name) => `${name}[t * ${blocks}u + e]`);
  const fields = [
    `array<${QUAD[input]}, 8>(${quads.join(", ")})`,
    ...(scaled ? [scale] : []),
    ...(offset ? [sum] : []),
  ];
  return `var<workgroup> x_quads: array<${QUAD[input]}, ${rows * 8 * blocks}>;
${scaled ? `var<workgroup> x_scales: array<f32, ${rows * blocks}>;` : ""}
${offset ? `var<workgroup> x_sums: array<${scaleType(format)}, ${rows * blocks}>;` : ""}
fn stage(t: u32, e: u32, v: Input) {
  ${quads.map((quad, k) => `${quad} = v.q[${k}];`).join("\n  ")}
  ${scaled ? `${scale} = v.scale;` : ""}
  ${offset ? `${sum} = v.sum;` : ""}
}
fn staged(t: u32, e: u32) -> Input { return Input(${fields.join(", ")}); }`;
}
