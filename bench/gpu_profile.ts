import type { StepProfile } from "../engine/backend/webgpu/step/dispatch.ts";
import type { WebGpuBackend } from "../engine/backend/webgpu/webgpu.ts";
import type { MachineLimits } from "../engine/plan/cost.ts";
import type { ProfileRow } from "./profile.ts";
import { median } from "./samples.ts";
import type { Steps } from "./steps.ts";

const ROUNDS = 9;

/**
 * Returns the time of a step that decodes one token of one sequence after `context`, and of each dispatch:
 * medians, in order.
 */
export async function profileGpu(
  backend: WebGpuBackend,
  steps: Steps,
  context: number,
): Promise<StepProfile> {
  const rounds: StepProfile[] = [];
  for (let i = 0; i < ROUNDS; i++) rounds.push(await backend.profile(steps.decodeStep(1, context + i)));
  const dispatches = rounds[0].dispatches.map((dispatch, i) => ({
    ...dispatch,
    ms: median(rounds.map((round) => round.dispatches[i].ms)),
  }));
  return { recordMs: median(rounds.map(({ recordMs }) => recordMs)), dispatches };
}

/**
 * Returns one row per kind of dispatch: its time in all layers together, and the time that copying its weights would
 * take. A further row has the time in which the CPU records all dispatches. Rows with the largest difference come
 * first.
 */
export function gpuProfileRows({ recordMs, dispatches }: StepProfile, limits: MachineLimits): ProfileRow[] {
  const recording = { count: dispatches.length, ms: recordMs, floorMs: 0 };
  const rows = new Map([["recording, on the CPU", recording]]);
  for (const { label, ms, bytes } of dispatches) {
    const op = label.replace(/^\S+ /, "").replace(/blk\.\d+\./, "").replace(/\.weight$/, "");
    const row = rows.get(op) ?? { count: 0, ms: 0, floorMs: 0 };
    rows.set(op, row);
    row.count++;
    row.ms += ms;
    row.floorMs += bytes / limits.readGbps / 1e6;
  }
  return [...rows].map(([op, row]) => ({ work: "decode" as const, sequences: 1, op, ...row }))
    .sort((a, b) => b.ms - b.floorMs - (a.ms - a.floorMs));
}
