import { errorsPath } from "../../lib/batch/batch.ts";
import { cancelJob, jobIdentity } from "../../lib/batch/jobs.ts";
import { type BatchWorld } from "./world.ts";
import { jobShape, noteTo, TABLE_FLAGS } from "./table.ts";
import { Flags, UsageError } from "../shared/flags.ts";

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

  const recorded = (await jobIdentity(output))?.asked;
  const { openInput } = await jobShape(flags, input, output, noteTo(world, flags), recorded);
  const { completed, failed } = await cancelJob({ input, output, errors }, openInput);
  host.out(
    flags.json
      ? `${JSON.stringify({ event: "cancelled", completed, failed })}\n`
      : `Cancelled: ${completed} answers in ${output}, ${failed} lines in ${errors}\n`,
  );
  return 0;
}
