/** The activations of feed-forward layers in float64. */
import type { Activation } from "../../engine/plan/plan.ts";

const sigmoid = (x: number) => 1 / (1 + Math.exp(-x));

/**
 * Returns erf(x): by Taylor's series up to |x| = 3, where float64 is exact enough; beyond it by the continued fraction
 * of 1 - erf.
 */
function erf(x: number): number {
  if (Math.abs(x) > 3) {
    let below = Math.abs(x);
    for (let n = 60; n > 0; n--) below = Math.abs(x) + n / 2 / below;
    return Math.sign(x) * (1 - Math.exp(-x * x) / Math.sqrt(Math.PI) / below);
  }
  let [term, sum] = [x, x];
  for (let n = 1; n < 100; n++) {
    term *= -x * x / n;
    sum += term / (2 * n + 1);
  }
  return 2 / Math.sqrt(Math.PI) * sum;
}

export function exactActivation(activation: Exclude<Activation, "swiglu_oai">, x: number): number {
  switch (activation) {
    case "silu":
      return x * sigmoid(x);
    case "gelu":
      return x / 2 * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));
    case "gelu_erf":
      return x / 2 * (1 + erf(x / Math.SQRT2));
    case "squared_relu":
      return Math.max(x, 0) ** 2;
    case "tanh":
      return Math.tanh(x);
    case "relu":
      return Math.max(x, 0);
  }
}

/** The output of a gated unit for a gate and an up value, whose factors a limit may bound. */
export function exactGlu(activation: Activation, gate: number, up: number, limit = Infinity): number {
  const within = (x: number, least: number, most: number) => Math.min(Math.max(x, least), most);
  if (activation !== "swiglu_oai") {
    return Math.min(exactActivation(activation, gate), limit) * within(up, -limit, limit);
  }
  const g = Math.min(gate, 7);
  return g * sigmoid(1.702 * g) * (within(up, -7, 7) + 1);
}

/** Returns the product of a matrix of rows and a vector. */
export function multiply(matrix: Float32Array, row: readonly number[]): number[] {
  return Array.from({ length: matrix.length / row.length }, (_, r) => {
    return row.reduce((sum, v, c) => sum + matrix[r * row.length + c] * v, 0);
  });
}
