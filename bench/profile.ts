import type { KernelBackend } from "../engine/backend/choose.ts";
import type { MachineLimits } from "../engine/plan/cost.ts";
import type { Plan, PlanTensor } from "../engine/plan/plan.ts";
import { opFloor, opLabel } from "./floors.ts";
import type { Sample } from "./samples.ts";

/** Ops of one kind, all layers together. */
export interface ProfileRow {
  readonly work: Sample["work"];
  readonly op: string;
  readonly count: number;
  /** Of the whole sample, and the least that the limits allow; 0 where bytes and operations are not counted. */
  readonly ms: number;
  readonly floorMs: number;
}

/** One sample's milliseconds, op by op. */
export interface Profile {
  readonly sample: Sample;
  readonly ms: readonly number[];
}

/** Runs once and reads the backend's clock of each op. */
export async function profile(
  backend: KernelBackend,
  plan: Plan,
  sample: Sample,
  run: () => Promise<unknown>,
): Promise<Profile> {
  await backend.profile(plan); // sets its clocks to zero
  await run();
  return { sample, ms: await backend.profile(plan) };
}

/** What the ops took beside their floors, largest gap first. */
export function profileRows(
  { sample, ms }: Profile,
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
    row.ms += ms[i];
    row.floorMs += 1000 *
      sample.steps.reduce((sum, step) => sum + opFloor(plan, op, packedBytes, step, limits), 0);
  }
  return [...rows].map(([op, row]) => ({ work: sample.work, op, ...row }))
    .sort((a, b) => b.ms - b.floorMs - (a.ms - a.floorMs));
}
