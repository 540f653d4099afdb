import type { GpuKind, PlanOpOf } from "./op.ts";

/** Made for all positions when the plan is compiled (step_buffers.ts); whoever turns heads names the table. */
export const ROPE_TABLE: GpuKind<PlanOpOf<"rope_table">, never> = {
  op: "rope_table",
  lower: (op, to) => to.defer(op.out, op),
};
