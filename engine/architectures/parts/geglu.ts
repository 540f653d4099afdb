import type { PlanBuilder, Value } from "../../plan/builder.ts";
import { glu } from "../../plan/ops/glu.ts";
import { linear } from "../../plan/ops/matmul.ts";
import { postNorm, type PostNormOptions } from "../../plan/ops/post_norm.ts";
import { rmsNorm } from "../../plan/ops/rms_norm.ts";
import type { TensorName } from "../architecture.ts";

/** Adds a GeGLU feed-forward block to x, with norms before and after it. */
export function geGlu(
  b: PlanBuilder,
  x: Value,
  rows: number,
  eps: number,
  name: TensorName,
  after: PostNormOptions = {},
): void {
  postNorm(b, geGluRows(b, x, rows, eps, name), name("post_ffw_norm"), eps, x, after);
}

/** Returns the GeGLU feed-forward output of x, before the norm after it. */
export function geGluRows(b: PlanBuilder, x: Value, rows: number, eps: number, name: TensorName): Value {
  const ffnIn = rmsNorm(b, x, name("ffn_norm"), eps);
  const ffn = glu(b, ffnIn, name("ffn_gate"), name("ffn_up"), rows, "gelu");
  return linear(b, ffn, [{ name: name("ffn_down"), rows: x.columns }])[0];
}
