import { runJob } from "./batch_job.ts";
import { errorsPath } from "../lib/batch.ts";
import { READ_LIMITS, readAhead, readsAhead } from "./batch_prefill.ts";
import { diskStorage, jobSettings, LINE_LIMITS, Retry, RETRY_AGAIN } from "../lib/jobs.ts";
import { type BatchWorld, ENGINE_FLAGS, ENGINE_HELP, ENGINE_SWITCHES, engineOptions } from "./batch_world.ts";
import { jobShape, noteTo, TABLE_FLAGS } from "./batch_table.ts";
import { Flags, UsageError } from "./flags.ts";

const HELP = `Answer the failed lines of a job again, and replace their errors by the new answers.

Usage: deno task batch retry-errors IN --out OUT [options]

  --out FILE       the --out of a job that is done
  --errors FILE    the --errors of the job (default: OUT.errors.jsonl for OUT.jsonl)
${ENGINE_HELP}
  --json           print the progress as JSON lines, at last {"event":"merged","completed","failed"}
  --help           this text
  of a table       the options of batch run that say what is asked: --prompt, --system, --schema, …

Only lines in the error file are asked again; those that have a good answer are neither asked nor changed. Lines that
the check refused would be refused again, and stay errors. Another --ctx or --model than the job's is allowed: longer
prompts may fit now. The answers come into OUT.jsonl.retry first, as durably as any job's: after a stop the same command
resumes, and the merge replaces each file as a whole. In a job with --order completed they stand behind the old ones.
The job's journal must still be there: it says which input and which order the outputs have. Lines of batch prefill are read
ahead again, into the folder that --cache-disk names.
Exit code: 0 merged (or nothing to do), 1 stopped or failed, 2 wrong usage.

Example:
  deno task batch retry-errors questions.jsonl --out answers.jsonl --ctx 8192
`;

/** `batch retry-errors …`. Returns the exit code. */
export async function retryCommand(args: readonly string[], here: BatchWorld): Promise<number> {
  const flags = new Flags(args, {
    values: ["out", "errors", ...ENGINE_FLAGS, ...TABLE_FLAGS],
    switches: ENGINE_SWITCHES,
    operands: ["IN"],
  });
  if (flags.help) {
    here.host.out(HELP);
    return 0;
  }
  const output = flags.text("out");
  if (output === undefined) throw new UsageError("--out is missing: the output of the job");
  const given = engineOptions(flags);
  const isAhead = readsAhead(await jobSettings(output));
  const { engine, world } = isAhead ? await readAhead(given, here) : { engine: given, world: here };
  const limits = isAhead ? READ_LIMITS : LINE_LIMITS;
  const job = {
    input: flags.operand("IN"),
    output,
    errors: flags.text("errors") ?? errorsPath(output),
  };
  const note = noteTo(world, flags);
  const { openInput, judged } = await jobShape(flags, job.input, output, note);
  const retry = await Retry.open(diskStorage, job, limits, openInput);
  try {
    if (!retry.merged) {
      if (!await retry.prepare()) {
        world.host.out(
          flags.json ? `${JSON.stringify({ event: "nothing_to_retry" })}\n` : "No line to retry\n",
        );
        return 0;
      }
      const { files, order } = retry;
      const code = await runJob(
        { ...files, judged, order, engine, limits, strict: false, json: flags.json },
        world,
      );
      if (code !== 0) {
        if (await retry.hasFailed()) note(`${RETRY_AGAIN}; it begins anew`);
        return code;
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
    return 0;
  } finally {
    retry.close();
  }
}
