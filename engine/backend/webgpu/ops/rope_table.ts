import type { GpuKind, PlanOpOf } from "./op.ts";

/**
 * Angle tables are made for all positions when the plan is compiled (`step_buffers.ts`). The ops that rotate
 * heads name their table.
 */
export const ROPE_TABLE: GpuKind<PlanOpOf<"rope_table">, never> = {
  op: "rope_table",
  lower: (op, to) => to.defer(op.out, op),
};
