import type { GpuKind, PlanOpOf } from "./op.ts";

/** The delta rule behind it includes it. */
export const SHORT_CONV: GpuKind<PlanOpOf<"short_conv">, never> = {
  op: "short_conv",
  lower: (op, to) => to.defer(op.x, op),
};
