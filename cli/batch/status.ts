import { type JobStatus, jobStatus } from "../../lib/batch/jobs.ts";
import { duration } from "./progress.ts";
import type { BatchWorld } from "./world.ts";
import { readWords } from "../shared/read_settings.ts";
import { HELP_LINE, helpOf, onOff } from "../shared/settings.ts";
import { escaped, jsonLine } from "../shared/escape.ts";

const OPTIONS = {
  json: onOff({
    help: 'print one JSON object: {"state","total","done","failed","prompt_tokens","output_tokens",' +
      ' "prompt_tokens_per_second","output_tokens_per_second","eta_seconds","reason"}; null means unknown',
  }),
};

const HELP = `Show the progress of a job, while another process runs it or after it has ended.

Usage: deno task batch status OUT.jsonl [options]

${helpOf(OPTIONS)}${HELP_LINE}
OUT.jsonl is the --out of the job. States: running; stopped (the same batch run resumes it); done; failed (for good, with the
reason). The figures of a running job are at most a second old. A stopped job is counted from its journal, which takes as long
as reading it.
Exit code: 0 shown, 1 the job does not exist, 2 wrong usage.

Example:
  deno task batch status answers.jsonl
`;

/** Runs `batch status …`. Returns the exit code. */
export async function statusCommand(args: readonly string[], { host }: BatchWorld): Promise<number> {
  const given = readWords(OPTIONS, args, HELP, { operands: ["OUT.jsonl"], print: host.out });
  if (given === undefined) return 0;
  const output = given.operand("OUT.jsonl");
  const told = await jobStatus(output);
  host.out(given.json ? jsonLine(asJson(told)) : `${escaped(`${output}: ${asText(told)}`)}\n`);
  return 0;
}

function asJson({ state, total, counts, promptRate, outputRate, remaining, reason }: JobStatus) {
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

function asText({ state, total, counts, promptRate, outputRate, remaining, reason }: JobStatus): string {
  const done = `${counts.completed + counts.failed} of ${total} lines, ${counts.failed} failed; ` +
    `${counts.promptTokens} prompt and ${counts.outputTokens} output tokens`;
  const rates = promptRate === null || outputRate === null
    ? ""
    : `; ${Math.round(promptRate)} and ${Math.round(outputRate)} a second`;
  const left = remaining === null ? "" : `; about ${duration(remaining)} left`;
  return `${state}, ${done}${rates}${left}${reason === null ? "" : `; ${reason}`}`;
}
