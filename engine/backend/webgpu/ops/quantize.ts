import { formsOf } from "../../../plan/plan.ts";
import type { GpuKind, PlanOpOf } from "./op.ts";

/** The GPU reads floats: all forms of a value are one buffer. */
export const QUANTIZE: GpuKind<PlanOpOf<"quantize">, never> = {
  op: "quantize",
  lower: (op, to) => formsOf(op.out).forEach((out) => to.alias(out, op.x)),
};
