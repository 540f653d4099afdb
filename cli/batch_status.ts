import { readStatus } from "../jobs/job_control.ts";
import type { Counts } from "../jobs/journal_format.ts";
import { duration } from "./batch_progress.ts";
import { countAnswers, type JobState, readJobState } from "../jobs/status.ts";
import { diskStorage } from "../jobs/storage.ts";
import type { BatchWorld } from "./batch_world.ts";
import { Flags } from "./flags.ts";

const HELP = `Show the progress of a job, while another process runs it or after it has ended.

Usage: deno task batch status OUT.jsonl [options]

  --json   one JSON object: {"state","total","done","failed","prompt_tokens","output_tokens",
           "prompt_tokens_per_second","output_tokens_per_second","eta_seconds","reason"}; null for what is unknown
  --help   this text

OUT.jsonl is the --out of the job. States: running; stopped (the same batch run resumes it); done; failed (for good, with
the reason). Of a running job this is what its process wrote within the last second; a stopped one is counted from
its journal, which takes as long as reading it.
Exit code: 0 shown, 1 there is no such job, 2 wrong usage.

Example:
  deno task batch status answers.jsonl
`;

interface Told {
  readonly state: "running" | "stopped" | "done" | "failed";
  readonly total: number;
  readonly counts: Counts;
  readonly promptRate: number | null;
  readonly outputRate: number | null;
  readonly remaining: number | null;
  readonly reason: string | null;
}

/** `batch status …`. Returns the exit code. */
export async function statusCommand(args: readonly string[], { host }: BatchWorld): Promise<number> {
  const flags = new Flags(args, { operands: ["OUT.jsonl"] });
  if (flags.help) {
    host.out(HELP);
    return 0;
  }
  const output = flags.operand("OUT.jsonl");
  const told = await tell(output, await readJobState(diskStorage, output));
  host.out(flags.json ? `${JSON.stringify(asJson(told))}\n` : `${output}: ${asText(told)}\n`);
  return 0;
}

async function tell(output: string, { identity, ended, running }: JobState): Promise<Told> {
  const nothing = { promptRate: null, outputRate: null, remaining: null, reason: null };
  const total = identity.lineCount;
  if (ended?.state === "done") return { ...nothing, state: "done", total, counts: ended.counts };
  const live = running ? await readStatus(output) : undefined;
  if (live !== undefined) {
    return { ...nothing, ...live, state: "running", total, counts: live.progress };
  }
  const counts = await countAnswers(diskStorage, output, identity);
  if (ended !== undefined) return { ...nothing, state: "failed", total, counts, reason: ended.reason };
  return { ...nothing, state: running ? "running" : "stopped", total, counts };
}

function asJson({ state, total, counts, promptRate, outputRate, remaining, reason }: Told) {
  return {
    state,
    total,
    done: counts.completed + counts.failed,
    failed: counts.failed,
    prompt_tokens: counts.promptTokens,
    output_tokens: counts.outputTokens,
    prompt_tokens_per_second: promptRate,
    output_tokens_per_second: outputRate,
    eta_seconds: remaining,
    reason,
  };
}

function asText({ state, total, counts, promptRate, outputRate, remaining, reason }: Told): string {
  const done = `${counts.completed + counts.failed} of ${total} lines, ${counts.failed} failed; ` +
    `${counts.promptTokens} prompt and ${counts.outputTokens} output tokens`;
  const rates = promptRate === null || outputRate === null
    ? ""
    : `; ${Math.round(promptRate)} and ${Math.round(outputRate)} a second`;
  const left = remaining === null ? "" : `; about ${duration(remaining)} left`;
  return `${state}, ${done}${rates}${left}${reason === null ? "" : `; ${reason}`}`;
}
