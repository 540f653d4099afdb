import { exitCodeOf, runCommandJob } from "./job.ts";
import { errorsPath } from "../../lib/batch/batch.ts";
import { READ_LIMITS, readAhead, readsAhead } from "./prefill.ts";
import { diskStorage, jobIdentity, LINE_LIMITS, Retry, RETRY_AGAIN } from "../../lib/batch/jobs.ts";
import { type BatchWorld, ENGINE_SETTINGS, engineOptions } from "./world.ts";
import { IMAGE_FOLDER, withImageFolder, withImageHosts } from "./images.ts";
import { IMAGE_HOSTS } from "../shared/image_hosts.ts";
import { ALIAS, aliasesOf } from "./names.ts";
import { jobShape, noteTo, SAME_TABLE_HELP, TABLE_SETTINGS } from "./table.ts";
import { UsageError } from "../shared/flags.ts";
import { readWords } from "../shared/read_settings.ts";
import { HELP_LINE, helpOf, onOff, path } from "../shared/settings.ts";
import { escaped, jsonLine } from "../shared/escape.ts";

const OPTIONS = {
  out: path("FILE", { help: "the --out of a job that is done" }),
  errors: path("FILE", { help: "the --errors of the job (default: OUT.errors.jsonl for OUT.jsonl)" }),
  ...ENGINE_SETTINGS,
  alias: ALIAS,
  images: IMAGE_FOLDER,
  allowImageHosts: IMAGE_HOSTS,
  failOnErrors: onOff({ help: "exit code 1 if any line of the job still has an error" }),
  json: onOff({
    help: 'print the progress as JSON lines, and at the end {"event":"merged","completed","failed"}',
  }),
};

const HELP = `Answer the failed lines of a job again, and replace their errors with the new answers.

Usage: deno task batch retry-errors IN --out OUT [options]

${helpOf(OPTIONS)}${HELP_LINE}${SAME_TABLE_HELP}

Only lines in the error file are answered again; lines with a good answer do not change. Lines that the check refused would be
refused again and stay errors. These options may differ from the job's: all options of the engine, --alias, and for a table
--max-tokens, --temperature and --effort, which by default are the job's. The question (--prompt, --system, --schema) must be the
same. A stopped retry resumes with the options that it began with. The new answers first go to OUT.jsonl.retry, as safely as any
job's: after a stop the same command resumes, and the merge replaces each file as a whole. In a job with --order completed they
follow the old answers. The job's journal must still exist: it records the input and the order. Lines of batch prefill are
prefilled again, into the folder of --cache-disk.
Exit code: 0 merged (or nothing to do), 1 stopped or failed, or no line of the job is answered, or any line still has an error
with --fail-on-errors; 2 wrong usage.

Example:
  deno task batch retry-errors questions.jsonl --out answers.jsonl --ctx 8192
`;

/** Runs `batch retry-errors …`. Returns the exit code. */
export async function retryCommand(args: readonly string[], here: BatchWorld): Promise<number> {
  const table = { ...OPTIONS, ...TABLE_SETTINGS };
  const given = readWords(table, args, HELP, { operands: ["IN"], print: here.host.out });
  if (given === undefined) return 0;
  const { values } = given;
  const output = values.out;
  if (output === undefined) throw new UsageError("--out is missing: the output of the job");
  const asked = engineOptions(values);
  const identity = await jobIdentity(output);
  const isAhead = readsAhead(identity?.settings);
  const seeing = await withImageHosts(values.allowImageHosts, await withImageFolder(values.images, here));
  const { engine, world } = isAhead ? await readAhead(asked, seeing) : { engine: asked, world: seeing };
  const limits = isAhead ? READ_LIMITS : LINE_LIMITS;
  const job = {
    input: given.operand("IN"),
    output,
    errors: values.errors ?? errorsPath(output),
  };
  const note = noteTo(world, given.json);
  const shape = await jobShape(values, job.input, output, note, identity?.asked);
  const retry = await Retry.open(diskStorage, job, limits, shape.openInput);
  try {
    if (!retry.merged) {
      if (!await retry.prepare(shape.revision)) {
        tellNothingToRetry(retry.counts, job, given.json, here);
        return exitCodeOf(retry.counts, values.failOnErrors);
      }
      const { files, order } = retry;
      const aliases = aliasesOf(values);
      const run = { ...files, judge: shape.judge, order, engine, aliases, limits, strict: false };
      if (await runCommandJob({ ...run, json: given.json }, world) === undefined) {
        if (await retry.hasFailed()) note(`${RETRY_AGAIN}; it begins anew`);
        return 1;
      }
      await retry.merge();
    }
    const { completed, failed } = retry.counts;
    const errors = failed > 0 ? ` in ${job.errors}` : "";
    world.host.out(
      given.json
        ? jsonLine({ event: "merged", completed, failed })
        : `${escaped(`Merged: ${completed} answers in ${output}, ${failed} errors${errors}`)}\n`,
    );
    return exitCodeOf(retry.counts, values.failOnErrors);
  } finally {
    retry.close();
  }
}

/** Prints why there is nothing to retry. */
function tellNothingToRetry(
  counts: Retry["counts"],
  { errors }: { errors: string },
  json: boolean,
  { host }: BatchWorld,
): void {
  const { completed, failed } = counts;
  const why = failed === 0
    ? `all ${completed} lines have their answers`
    : `the check refuses all lines in ${errors} (${failed}), and would refuse them again; put corrected lines into a new input and run it`;
  host.out(
    json
      ? jsonLine({ event: "nothing_to_retry", completed, failed, message: why })
      : `No line to retry: ${escaped(why)}\n`,
  );
}
