/** Ops that become no dispatch of their own. */
import { formsOf } from "../../../plan/plan.ts";
import type { GpuKind, PlanOpOf } from "./op.ts";

/** Quantization is not needed: the GPU reads floats, so all forms of a value share one buffer. */
export const QUANTIZE: GpuKind<PlanOpOf<"quantize">, never> = {
  op: "quantize",
  lower: (op, to) => formsOf(op.out).forEach((out) => to.alias(out, op.x)),
};

/**
 * Angle tables are made for all positions when the plan is compiled (`step_buffers.ts`). The ops that rotate
 * heads name their table.
 */
export const ROPE_TABLE: GpuKind<PlanOpOf<"rope_table">, never> = {
  op: "rope_table",
  lower: (op, to) => to.defer(op.out, op),
};

/** The following delta rule includes the convolution. */
export const SHORT_CONV: GpuKind<PlanOpOf<"short_conv">, never> = {
  op: "short_conv",
  lower: (op, to) => to.defer(op.x, op),
};
