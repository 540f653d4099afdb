import { buffersOf } from "./ops/registry.ts";
import type { BufferId, Plan } from "./plan.ts";

/**
 * Checks that every op's buffers have the forms of its operands, and that an earlier op wrote each buffer before it is
 * read. Throws TypeError for a mistake in a new op or architecture.
 */
export function checkBuffers(plan: Plan): void {
  const written = new Set<BufferId>();
  for (const [i, op] of plan.ops.entries()) {
    const uses = buffersOf(op);
    for (const { buffer, form, access } of uses) {
      const found = plan.buffers[buffer];
      const where = `Op ${i} of the plan, ${op.op}: buffer ${found.name}`;
      if (found.form !== form) {
        throw new TypeError(`${where} must be of the form "${form}" (got "${found.form}")`);
      }
      if (access !== "write" && !written.has(buffer)) {
        throw new TypeError(`${where} is read before it is written`);
      }
    }
    for (const { buffer, access } of uses) if (access !== "read") written.add(buffer);
  }
}
