import { BatchError } from "../jobs/errors.ts";
import { forgetCancel, requestCancel } from "../jobs/job_control.ts";
import { runBatch } from "../jobs/runner.ts";
import { type JobState, readJobState } from "../jobs/status.ts";
import { diskStorage } from "../jobs/storage.ts";
import { unanswered } from "../lib/job_link.ts";
import { errorsPath } from "../lib/batch.ts";
import { LINE_LIMITS } from "../lib/lines.ts";
import { type BatchWorld } from "./batch_world.ts";
import { jobShape, noteTo, TABLE_FLAGS } from "./batch_table.ts";
import { Flags, UsageError } from "./flags.ts";

const HELP =
  `End a job for good: what was answered goes to its output, the rest to its errors as "batch_cancelled".

Usage: deno task batch cancel IN --out OUT [options]

  --out FILE      the --out of the job
  --errors FILE   the --errors of the job (default: OUT.errors.jsonl for OUT.jsonl)
  --json          one JSON object: {"event":"cancelled","completed","failed"}
  --help          this text
  of a table      the options of batch run that say what is asked: --prompt, --system, --schema, …

Works on a job that another process runs, which ends it then (this command waits for that), and on one that has
stopped; no model is loaded. To stop a job that is to be resumed later, press Ctrl-C where it runs.
Exit code: 0 cancelled, 1 there is no such job or it has ended before, 2 wrong usage.

Example:
  deno task batch cancel questions.jsonl --out answers.jsonl
`;

const POLL_MS = 100;
/** Lines that get no answer cost only their place in the journal. */
const PARALLEL = 256;

/** `batch cancel …`. Returns the exit code. */
export async function cancelCommand(args: readonly string[], world: BatchWorld): Promise<number> {
  const { host } = world;
  const flags = new Flags(args, { values: ["out", "errors", ...TABLE_FLAGS], operands: ["IN"] });
  if (flags.help) {
    host.out(HELP);
    return 0;
  }
  const output = flags.text("out");
  if (output === undefined) throw new UsageError("--out is missing: the output of the job");
  const input = flags.operand("IN");
  const errors = flags.text("errors") ?? errorsPath(output);

  let state = await readJobState(diskStorage, output);
  if (state.ended !== undefined) throw hasEnded(output, state);
  await requestCancel(output);
  while (state.running) {
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    state = await readJobState(diskStorage, output);
  }
  if (state.ended === undefined) {
    const { settings } = state.identity;
    const execute = () => Promise.reject(unanswered());
    const connect = () => Promise.resolve({ execute, settings });
    const { openInput } = await jobShape(flags, input, output, noteTo(world, flags));
    await runBatch({ input, output, errors, openInput, parallel: PARALLEL, limits: LINE_LIMITS, connect });
    state = await readJobState(diskStorage, output);
  }
  await forgetCancel(output);
  if (state.ended?.state !== "done") throw hasEnded(output, state);
  const { completed, failed } = state.ended.counts;
  host.out(
    flags.json
      ? `${JSON.stringify({ event: "cancelled", completed, failed })}\n`
      : `Cancelled: ${completed} answers in ${output}, ${failed} lines in ${errors}\n`,
  );
  return 0;
}

function hasEnded(output: string, { ended }: JobState): BatchError {
  const how = ended?.state === "failed" ? `has failed: ${ended.reason}` : "is done";
  return new BatchError("job_failed", `Cannot cancel the job of "${output}": it ${how}`, false);
}
