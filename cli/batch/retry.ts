import { exitCodeOf, runJob } from "./job.ts";
import { errorsPath } from "../../lib/batch/batch.ts";
import { READ_LIMITS, readAhead, readsAhead } from "./prefill.ts";
import { diskStorage, jobIdentity, LINE_LIMITS, Retry, RETRY_AGAIN } from "../../lib/batch/jobs.ts";
import { type BatchWorld, ENGINE_FLAGS, ENGINE_HELP, ENGINE_SWITCHES, engineOptions } from "./world.ts";
import { ALIAS_HELP, aliasesOf } from "./names.ts";
import { jobShape, noteTo, TABLE_FLAGS } from "./table.ts";
import { Flags, UsageError } from "../shared/flags.ts";

const HELP = `Answer the failed lines of a job again, and replace their errors by the new answers.

Usage: deno task batch retry-errors IN --out OUT [options]

  --out FILE       the --out of a job that is done
  --errors FILE    the --errors of the job (default: OUT.errors.jsonl for OUT.jsonl)
${ENGINE_HELP}
${ALIAS_HELP}
  --fail-on-errors exit code 1 when any line of the job still has an error
  --json           print the progress as JSON lines, at last {"event":"merged","completed","failed"}
  --help           this text
  of a table       the options of batch run that say what is asked: --prompt, --system, --schema, …

Only lines in the error file are asked again; those that have a good answer are neither asked nor changed. Lines that
the check refused would be refused again, and stay errors. So these may differ from the job's: --model, --ctx and all other
options of the engine, --alias, and of a table --max-tokens, --temperature and --effort, which are the job's where they are
left out. What is asked (--prompt, --system, --schema) must be the same. A retry that was stopped goes on with the options
that it was begun with. The answers come into OUT.jsonl.retry first, as durably as any job's: after a stop the same command
resumes, and the merge replaces each file as a whole. In a job with --order completed they stand behind the old ones.
The job's journal must still be there: it says which input and which order the outputs have. Lines of batch prefill are read
ahead again, into the folder that --cache-disk names.
Exit code: 0 merged (or nothing to do), 1 stopped or failed, or no line of the job is answered, or with --fail-on-errors any
still has an error; 2 wrong usage.

Example:
  deno task batch retry-errors questions.jsonl --out answers.jsonl --ctx 8192
`;

/** `batch retry-errors …`. Returns the exit code. */
export async function retryCommand(args: readonly string[], here: BatchWorld): Promise<number> {
  const flags = new Flags(args, {
    values: ["out", "errors", "alias", ...ENGINE_FLAGS, ...TABLE_FLAGS],
    repeated: ["alias"],
    switches: ["fail-on-errors", ...ENGINE_SWITCHES],
    operands: ["IN"],
  });
  if (flags.help) {
    here.host.out(HELP);
    return 0;
  }
  const output = flags.text("out");
  if (output === undefined) throw new UsageError("--out is missing: the output of the job");
  const given = engineOptions(flags);
  const identity = await jobIdentity(output);
  const isAhead = readsAhead(identity?.settings);
  const { engine, world } = isAhead ? await readAhead(given, here) : { engine: given, world: here };
  const limits = isAhead ? READ_LIMITS : LINE_LIMITS;
  const job = {
    input: flags.operand("IN"),
    output,
    errors: flags.text("errors") ?? errorsPath(output),
  };
  const note = noteTo(world, flags);
  const shape = await jobShape(flags, job.input, output, note, identity?.asked);
  const retry = await Retry.open(diskStorage, job, limits, shape.openInput);
  try {
    if (!retry.merged) {
      if (!await retry.prepare(shape.revision)) return nothingToRetry(retry.counts, job, flags, here);
      const { files, order } = retry;
      const aliases = aliasesOf(flags);
      const run = { ...files, judged: shape.judged, order, engine, aliases, limits, strict: false };
      if (await runJob({ ...run, json: flags.json }, world) === undefined) {
        if (await retry.hasFailed()) note(`${RETRY_AGAIN}; it begins anew`);
        return 1;
      }
      await retry.merge();
    }
    const { completed, failed } = retry.counts;
    const errors = failed > 0 ? ` in ${job.errors}` : "";
    world.host.out(
      flags.json
        ? `${JSON.stringify({ event: "merged", completed, failed })}\n`
        : `Merged: ${completed} answers in ${output}, ${failed} errors${errors}\n`,
    );
    return exitCodeOf(retry.counts, flags.is("fail-on-errors"));
  } finally {
    retry.close();
  }
}

/** Says why there is none. Returns the exit code. */
function nothingToRetry(
  counts: Retry["counts"],
  { errors }: { errors: string },
  flags: Flags,
  { host }: BatchWorld,
): number {
  const { completed, failed } = counts;
  const why = failed === 0
    ? `all ${completed} lines have their answers`
    : `the check refuses all lines in ${errors} (${failed}), and would again; correct them in an input of their own, and run that`;
  host.out(
    flags.json
      ? `${JSON.stringify({ event: "nothing_to_retry", completed, failed, message: why })}\n`
      : `No line to retry: ${why}\n`,
  );
  return exitCodeOf(counts, flags.is("fail-on-errors"));
}
