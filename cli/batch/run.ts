import { exitCodeOf, runCommandJob } from "./job.ts";
import { CREDENTIALS_HELP, NATS_SETTINGS, natsOption, workersBackend } from "./nats.ts";
import { errorsPath } from "../../lib/batch/batch.ts";
import { firstLines } from "../../lib/batch/jobs.ts";
import { type BatchWorld, ENGINE_SETTINGS, engineOptions } from "./world.ts";
import { dryRun } from "./dry_run.ts";
import { IMAGE_FOLDER, withImageFolder, withImageHosts } from "./images.ts";
import { IMAGE_HOSTS } from "../shared/image_hosts.ts";
import { ALIAS, aliasesOf, examinerOf } from "./names.ts";
import { JOB, namedFiles } from "./pipe.ts";
import { BOUND_NOTE, jobShape, noteTo, TABLE_HELP, TABLE_SETTINGS } from "./table.ts";
import { STRICT_PARAMETERS } from "../shared/engine_settings.ts";
import { UsageError } from "../shared/flags.ts";
import { readWords } from "../shared/read_settings.ts";
import { choice, count, flagOf, HELP_LINE, helpOf, onOff, path } from "../shared/settings.ts";

/** Default number of lines in progress with --nats: enough for several workers and their queued lines. */
const NATS_PARALLEL = { default: 256, max: 65_536 };

/** Maximum of --limit, larger than the number of lines in any file. */
const MAX_LIMIT = 100_000_000;

const OPTIONS = {
  out: path("FILE", { help: "the file for the answers" }),
  errors: path("FILE", {
    help:
      "the file for refused and failed lines, written if there are any (default: OUT.errors.jsonl for OUT.jsonl)",
  }),
  job: JOB,
  ...ENGINE_SETTINGS,
  alias: ALIAS,
  images: IMAGE_FOLDER,
  allowImageHosts: IMAGE_HOSTS,
  limit: count({
    min: 1,
    max: MAX_LIMIT,
    help:
      "answer only the first N lines or rows, and write these; the same command with another limit, or without one, " +
      "continues with the others",
  }),
  order: {
    ...choice("ORDER", ["input", "completed"], {
      help: "order of the answers: input, or completed for the order in which they finished (default: input)",
    }),
    rule: "input or completed",
  },
  dryRun: onOff({
    help:
      "answer some lines to measure the speed, and print the number of tokens, the time for all lines, and the lines that " +
      "cannot be answered, such as those that exceed the context; writes nothing",
  }),
  failOnErrors: onOff({ help: "exit code 1 if any line has failed" }),
  strict: onOff({ help: "refuse the whole job before anything runs if any line is bad" }),
  strictParameters: STRICT_PARAMETERS,
  ...NATS_SETTINGS,
  json: onOff({ help: "print the progress as JSON lines on standard output" }),
};

/** The option --parallel with --nats: it counts the lines of all workers. */
const PARALLEL_WITH_NATS = count({ min: 1, ...NATS_PARALLEL, help: OPTIONS.parallel.help });

/** Options that apply only to an engine in this process. */
const OWN = ["threads", "kvMb", "cacheDisk", "cacheDiskMb"] as const;

const HELP =
  `Answer a file of requests, one JSON object per line, in OpenAI's batch format; or ask a question about each row of a table.

Usage: deno task batch run IN.jsonl --out OUT.jsonl [options]
       deno task batch run IN.csv --prompt "… {column} …" --out OUT.csv [options]

${helpOf(OPTIONS)}${HELP_LINE}
${TABLE_HELP}

A line of a JSONL input:
  {"custom_id":"q1","method":"POST","url":"/v1/chat/completions",
   "body":{"model":"demo","messages":[{"role":"user","content":"Hi"}],"max_tokens":50}}
A line of the output:
  {"id":"batch_req_…","custom_id":"q1","response":{"status_code":200,"request_id":"…","body":{…}},"error":null}

All lines are checked first. Bad ones (invalid JSON, a duplicate custom_id, "stream":true, …) go to the errors with their
numbers, and the others run; with --strict nothing runs. To check without a model: deno task batch check IN.jsonl with the same
--model, --alias and table options.

Every answer is on the disk (OUT.jsonl.journal) before it is counted. After a stop, a crash or a power cut the same command
resumes the job. OUT.jsonl appears when all lines are answered. A small journal remains and records that the job is done, so that
running it again does nothing. Remove it and OUT.jsonl to run the job from scratch.

With --nats, start workers with deno task batch worker, before or after, on this machine and others. --parallel is then the number
of lines that all workers run at once (default: ${NATS_PARALLEL.default}). --model names the file that the workers must have; this process reads only
its header. Workers, the server and its queue may disappear at any moment: their lines are handed out again, and no line is
answered twice.
${CREDENTIALS_HELP}

In a checkout without current native libraries the command builds them first. If that fails, or with --backend wasm,
WebAssembly computes.

Ctrl-C once: end the running lines, then stop. Twice: stop now. Both can be resumed.
Exit code: 0 all lines are done, with or without errors; 1 stopped or failed, or no line was answered, or any line has failed
with --fail-on-errors; 2 wrong usage.

Example:
  deno task batch run questions.jsonl --out answers.jsonl --model qwen3-4b-q4_0.gguf
  deno task batch run reviews.parquet --prompt "Classify: {text}" --schema sentiment.json --out labelled.parquet
  deno task batch run reviews.parquet --prompt "Classify: {text}" --max-tokens 5 --dry-run
  deno task batch run prompts.txt --max-tokens 200 --out answers.csv
  make-questions | deno task batch run - --job questions --out - > answers.jsonl
`;

/** Runs `batch run …`. Returns the exit code. */
export async function runCommand(args: readonly string[], here: BatchWorld): Promise<number> {
  const usesNats = args.some((word) => /^--nats(=|$)/.test(word));
  const table = { ...OPTIONS, ...TABLE_SETTINGS, ...usesNats ? { parallel: PARALLEL_WITH_NATS } : {} };
  const given = readWords(table, args, HELP, { operands: ["IN"], print: here.host.out });
  if (given === undefined) return 0;
  const { values, sources } = given;
  const { dryRun: isDry, limit, order = "input" } = values;
  const nats = natsOption(values);
  const own = OWN.find((name) => sources[name] === "flag");
  if (nats !== undefined && own) {
    throw new UsageError(`--${flagOf(own)} is an option of the workers; leave it out with --nats`);
  }
  if (nats !== undefined && isDry) {
    throw new UsageError(
      "--dry-run measures this machine, but with --nats other machines answer the lines: leave out --nats",
    );
  }
  if (nats !== undefined && values.allowImageHosts !== undefined) {
    throw new UsageError("--allow-image-hosts cannot be used with --nats: workers fetch no images");
  }
  const world = await withImageHosts(values.allowImageHosts, await withImageFolder(values.images, here));
  const engine = engineOptions(values);
  if (nats !== undefined) workersBackend(engine.backend);
  const aliases = aliasesOf(values);
  const { input, output, show } = await namedFiles(given, world);
  const note = noteTo(world, given.json);
  const { isTable, openInput, judge } = await jobShape(values, input, output, note);
  if (isTable && values.maxTokens === undefined) note(BOUND_NOTE);
  if (isDry || output === undefined) {
    const asked = limit === undefined ? openInput : firstLines(openInput, limit);
    return await dryRun({ input, openInput: asked, engine, aliases, json: given.json }, world);
  }
  if (isTable && order === "completed") {
    throw new UsageError("--order completed is for JSONL: the rows of a table keep their order");
  }
  const job = {
    openInput,
    judge,
    aliases,
    examine: examinerOf(values, note),
    limit,
    input,
    output,
    errors: values.errors ?? errorsPath(output),
    engine,
    nats,
    order,
    strict: values.strict,
    strictParameters: values.strictParameters,
    json: given.json,
  };
  const result = await runCommandJob(job, world);
  if (result === undefined) return 1;
  await show();
  return exitCodeOf(result.counts, values.failOnErrors);
}
