import type { GpuKind, PlanOpOf } from "./op.ts";

/** No dispatch: the following delta rule includes the convolution. */
export const SHORT_CONV: GpuKind<PlanOpOf<"short_conv">, never> = {
  op: "short_conv",
  lower: (op, to) => to.defer(op.x, op),
};
