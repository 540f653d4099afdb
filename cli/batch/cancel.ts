import { errorsPath } from "../../lib/batch/batch.ts";
import { cancelJob, jobIdentity } from "../../lib/batch/jobs.ts";
import { type BatchWorld } from "./world.ts";
import { jobShape, noteTo, SAME_TABLE_HELP, TABLE_SETTINGS } from "./table.ts";
import { UsageError } from "../shared/flags.ts";
import { readWords } from "../shared/read_settings.ts";
import { HELP_LINE, helpOf, onOff, path } from "../shared/settings.ts";
import { escaped, jsonLine } from "../shared/escape.ts";

const OPTIONS = {
  out: path("FILE", { help: "the --out of the job" }),
  errors: path("FILE", { help: "the --errors of the job (default: OUT.errors.jsonl for OUT.jsonl)" }),
  json: onOff({ help: 'print one JSON object: {"event":"cancelled","completed","failed"}' }),
};

const HELP =
  `End a job for good: write its answers to the output, and all other lines to the errors as "batch_cancelled".

Usage: deno task batch cancel IN --out OUT [options]

${helpOf(OPTIONS)}${HELP_LINE}${SAME_TABLE_HELP}

Works on a stopped job, and on a job that another process runs: that process ends it, and this command waits for that. No model
is loaded. To stop a job and resume it later, press Ctrl-C where it runs.
Exit code: 0 cancelled, 1 the job does not exist or has already ended, 2 wrong usage.

Example:
  deno task batch cancel questions.jsonl --out answers.jsonl
`;

/** Runs `batch cancel …`. Returns the exit code. */
export async function cancelCommand(args: readonly string[], world: BatchWorld): Promise<number> {
  const { host } = world;
  const table = { ...OPTIONS, ...TABLE_SETTINGS };
  const given = readWords(table, args, HELP, { operands: ["IN"], print: host.out });
  if (given === undefined) return 0;
  const { values } = given;
  const output = values.out;
  if (output === undefined) throw new UsageError("--out is missing: the output of the job");
  const input = given.operand("IN");
  const errors = values.errors ?? errorsPath(output);

  const recorded = (await jobIdentity(output))?.asked;
  const { openInput } = await jobShape(values, input, output, noteTo(world, given.json), recorded);
  const { completed, failed } = await cancelJob({ input, output, errors }, openInput);
  host.out(
    given.json
      ? jsonLine({ event: "cancelled", completed, failed })
      : `Cancelled: ${completed} answers in ${escaped(output)}, ${failed} lines in ${escaped(errors)}\n`,
  );
  return 0;
}
