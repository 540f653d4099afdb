/** WGSL that more than one kernel has. */

/** What an op's uniforms hold: eight words, as each kernel names them. */
export const OP_WORDS = 8;

/** What one row of a step is. */
export const ROW = `
/* token, position, first entry of its block table, 1 where its sequence has ended */
alias Row = vec4<u32>;`;

/** Adds up \`size\` values of a workgroup, always in the same order; the result is in \`sums[0]\`. */
export function treeSum(size: number): string {
  return `
var<workgroup> sums: array<f32, ${size}>;
fn tree_sum(lane: u32, value: f32) -> f32 {
  sums[lane] = value;
  workgroupBarrier();
  for (var reach = ${size / 2}u; reach > 0u; reach >>= 1u) {
    if (lane < reach) { sums[lane] += sums[lane + reach]; }
    workgroupBarrier();
  }
  let total = sums[0];
  workgroupBarrier();
  return total;
}`;
}
