/** Plan ops without a separate GPU dispatch. */
import { formsOf } from "../../../plan/plan.ts";
import type { GpuKind, PlanOpOf } from "./op.ts";

/** Quantization is not needed: the GPU reads floats, so all forms of a value share one buffer. */
export const QUANTIZE: GpuKind<PlanOpOf<"quantize">, never> = {
  op: "quantize",
  lower: (op, to) => formsOf(op.out).forEach((out) => to.alias(out, op.x)),
};

/**
 * Angle tables are computed for all positions at compile time (`step_buffers.ts`). Ops that rotate heads name their
 * table.
 */
export const ROPE_TABLE: GpuKind<PlanOpOf<"rope_table">, never> = {
  op: "rope_table",
  lower: (op, to) => to.defer(op.out, op),
};

/** The short convolution has no dispatch: the following delta rule includes it. */
export const SHORT_CONV: GpuKind<PlanOpOf<"short_conv">, never> = {
  op: "short_conv",
  lower: (op, to) => to.defer(op.x, op),
};
