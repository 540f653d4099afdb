import type { DispatchTime } from "../engine/backend/webgpu/recorder.ts";
import type { WebGpuBackend } from "../engine/backend/webgpu/webgpu.ts";
import type { MachineLimits } from "../engine/plan/cost.ts";
import type { ProfileRow } from "./profile.ts";
import { median } from "./samples.ts";
import type { Steps } from "./steps.ts";

const ROUNDS = 5;

/** What each dispatch of a step takes that decodes one token of one sequence after `context`: medians, in order. */
export async function profileGpu(
  backend: WebGpuBackend,
  steps: Steps,
  context: number,
): Promise<DispatchTime[]> {
  const rounds: DispatchTime[][] = [];
  for (let i = 0; i < ROUNDS; i++) rounds.push(await backend.profile(steps.decodeStep(1, context + i)));
  return rounds[0].map((dispatch, i) => ({ ...dispatch, ms: median(rounds.map((round) => round[i].ms)) }));
}

/** Dispatches of one kind, all layers together, beside the time in which their weights could be copied; largest gap first. */
export function gpuProfileRows(times: readonly DispatchTime[], limits: MachineLimits): ProfileRow[] {
  const rows = new Map<string, { count: number; ms: number; floorMs: number }>();
  for (const { label, ms, bytes } of times) {
    const op = label.replace(/^\S+ /, "").replace(/blk\.\d+\./, "").replace(/\.weight$/, "");
    const row = rows.get(op) ?? { count: 0, ms: 0, floorMs: 0 };
    rows.set(op, row);
    row.count++;
    row.ms += ms;
    row.floorMs += bytes / limits.readGbps / 1e6;
  }
  return [...rows].map(([op, row]) => ({ work: "decode" as const, op, ...row }))
    .sort((a, b) => b.ms - b.floorMs - (a.ms - a.floorMs));
}
