/** WGSL that several kernels share. */

/** Number of 32-bit words in an op's uniforms. Each kernel gives these words its own names. */
export const OP_WORDS = 8;

/** WGSL type of a row of a step. */
export const ROW = `
/* token, position, first entry of its block table, 1 where its sequence has ended */
alias Row = vec4<u32>;`;

/** Returns the WGSL function `tree_sum`, which adds `size` values of a workgroup, always in the same order. */
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

/**
 * Returns the WGSL function `best_of`, which finds the largest of `size` values of a workgroup and its token; among
 * equals, the lower token.
 */
export function bestOf(size: number): string {
  return `
struct Best { value: f32, token: u32 }
var<workgroup> best_values: array<f32, ${size}>;
var<workgroup> best_tokens: array<u32, ${size}>;
fn best_of(lane: u32, value: f32, token: u32) -> Best {
  best_values[lane] = value;
  best_tokens[lane] = token;
  workgroupBarrier();
  for (var reach = ${size / 2}u; reach > 0u; reach >>= 1u) {
    if (lane < reach) {
      let other = Best(best_values[lane + reach], best_tokens[lane + reach]);
      let better = other.value > best_values[lane] ||
        (other.value == best_values[lane] && other.token < best_tokens[lane]);
      if (better) {
        best_values[lane] = other.value;
        best_tokens[lane] = other.token;
      }
    }
    workgroupBarrier();
  }
  let best = Best(best_values[0], best_tokens[0]);
  workgroupBarrier();
  return best;
}`;
}
