import type { KernelBackend } from "../engine/backend/choose.ts";
import type { MachineLimits } from "../engine/plan/cost.ts";
import type { Plan, PlanTensor } from "../engine/plan/plan.ts";
import { opFloor, opLabel } from "./floors.ts";
import type { Sample } from "./samples.ts";

/** Times of the ops of one kind, over all layers. */
export interface ProfileRow {
  readonly work: Sample["work"];
  readonly sequences: number;
  readonly op: string;
  /** Number of such ops per step. On the CPU, a barrier follows each. */
  readonly count: number;
  /**
   * Mean milliseconds per step. `floorMs` is the machine's lower bound; 0 for ops without counted bytes and
   * operations.
   */
  readonly ms: number;
  readonly floorMs: number;
}

/** One sample's milliseconds for each op, and in total. */
export interface Profile {
  readonly sample: Sample;
  readonly ms: readonly number[];
  readonly wallMs: number;
}

/** Label of the step's remaining time: encoding, the call and its return, and waking threads. */
const OUTSIDE = "not in any op";

/** Runs one sample and reads the backend's clock of each op. */
export async function profile(
  backend: KernelBackend,
  plan: Plan,
  sample: Sample,
  run: () => Promise<unknown>,
): Promise<Profile> {
  await backend.profile(plan); // resets the backend's clocks
  const start = performance.now();
  await run();
  const wallMs = performance.now() - start;
  return { sample, ms: await backend.profile(plan), wallMs };
}

/** Returns each op's time and the lower bound of its time. Ops with the largest difference come first. */
export function profileRows(
  { sample: { work, sequences, steps }, ms, wallMs }: Profile,
  plan: Plan,
  packedBytes: (tensor: PlanTensor) => number,
  limits: MachineLimits,
): ProfileRow[] {
  const rows = new Map<string, { count: number; ms: number; floorMs: number }>();
  for (const [i, op] of plan.ops.entries()) {
    const label = opLabel(plan, op);
    const row = rows.get(label) ?? { count: 0, ms: 0, floorMs: 0 };
    rows.set(label, row);
    row.count++;
    row.ms += ms[i] / steps.length;
    const floor = steps.reduce((sum, step) => sum + opFloor(plan, op, packedBytes, step, limits), 0);
    row.floorMs += 1000 * floor / steps.length;
  }
  const outside = wallMs - ms.reduce((sum, ms) => sum + ms, 0);
  rows.set(OUTSIDE, { count: 1, ms: outside / steps.length, floorMs: 0 });
  return [...rows].map(([op, row]) => ({ work, sequences, op, ...row }))
    .sort((a, b) => b.ms - b.floorMs - (a.ms - a.floorMs));
}
