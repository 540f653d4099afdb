import { formsOf } from "../../../plan/plan.ts";
import type { GpuKind, PlanOpOf } from "./op.ts";

/** Quantization is not needed: the GPU reads floats, so all forms of a value share one buffer. */
export const QUANTIZE: GpuKind<PlanOpOf<"quantize">, never> = {
  op: "quantize",
  lower: (op, to) => formsOf(op.out).forEach((out) => to.alias(out, op.x)),
};
