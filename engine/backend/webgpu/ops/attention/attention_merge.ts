import { kernelOf } from "../../kernels/kernel.ts";
import type { Kernel } from "../../kernels/types.ts";
import {
  addPart,
  addSink,
  type AttentionShape,
  type ContextParts,
  head,
  shapeKey,
  storeQuad,
} from "./attention_shape.ts";

/**
 * Returns the kernel that merges the workgroups' results for the parts of split contexts, in order. It reads q only for
 * gates, and sinks only if the model has them.
 */
export function mergeKernel(shape: AttentionShape, parts: ContextParts): Kernel {
  const { heads, headDim, gated, sinks } = shape;
  const more = [
    ...(gated ? ["q: array<vec4<f32>>"] : []),
    ...(sinks ? ["sinks: array<f32>"] : []),
  ].map((variable, i) => `@group(0) @binding(${4 + i}) var<storage, read> ${variable};`);
  const names = { row: "group.y", head: "group.x", quad: "lane", sum: "sum", total: "all_total" };
  const code = `
${head(shape)}
@group(0) @binding(1) var<storage, read_write> y: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> partials: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> rows: array<Row>;
${more.join("\n")}

@compute @workgroup_size(${headDim / 4})
fn attention_merge(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let row = rows[group.y];
  if (row.w == 1u) { return; }
  var all_top = NONE;
  var all_total = 0.0;
  var all_sum = vec4<f32>();
  for (var part = first_seen(row.y + 1u) / ${parts.length}u; part * ${parts.length}u <= row.y; part++) {
    let at = partial_at(group.y, group.x, part);
    let sum = partials[at + lane];
    let found = partials[at + ${headDim / 4}u];
    let top = found.x;
    let total = found.y;
    ${addPart(["sum"])}
  }
  ${addSink(shape, ["sum"], "group.x")}
  ${storeQuad(shape, names)}
}`;
  return kernelOf(`attention_merge ${shapeKey(shape, parts)}`, code, (_n, m) => [heads, m, 1]);
}
