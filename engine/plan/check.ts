import { buffersOf } from "./ops/registry.ts";
import type { BufferId, Plan } from "./plan.ts";

/**
 * That every op finds its buffers in the form that its operands say, and reads none that no earlier op has written: what
 * goes wrong where an op or an architecture is new. Throws TypeError.
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
