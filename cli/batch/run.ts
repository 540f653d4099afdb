import { exitCodeOf, runJob } from "./job.ts";
import { CREDENTIALS_HELP, NATS_FLAGS, natsFlags, workersBackend } from "./nats.ts";
import { errorsPath } from "../../lib/batch/batch.ts";
import { type AnswerOrder, firstLines } from "../../lib/batch/jobs.ts";
import {
  AUTO_PARALLEL,
  type BatchWorld,
  ENGINE_FLAGS,
  ENGINE_HELP,
  ENGINE_SWITCHES,
  engineOptions,
} from "./world.ts";
import { dryRun } from "./dry_run.ts";
import { ALIAS_HELP, aliasesOf, examinerOf } from "./names.ts";
import { namedFiles, PIPE_HELP } from "./pipe.ts";
import { BOUND_NOTE, jobShape, noteTo, TABLE_FLAGS, TABLE_HELP } from "./table.ts";
import { CACHE_FLAGS } from "../serve/prompt_cache.ts";
import { Flags, UsageError } from "../shared/flags.ts";

/** Enough for several workers, and for what waits in the queue beside it. */
const NATS_PARALLEL = { default: 256, max: 65_536 };

/** More lines than a file may have. */
const MAX_LIMIT = 100_000_000;

const HELP =
  `Answer a file of requests, one JSON object a line, as OpenAI's batches do; or ask each row of a table.

Usage: deno task batch run IN.jsonl --out OUT.jsonl [options]
       deno task batch run IN.csv --prompt "… {column} …" --out OUT.csv [options]

  --out FILE       where the answers go
  --errors FILE    where refused and failed lines go (default: OUT.errors.jsonl for OUT.jsonl);
                   written only when there are any
${PIPE_HELP}
${ENGINE_HELP}
                   Without --parallel there are up to ${AUTO_PARALLEL} lines, as memory allows and as more make the job faster.
${ALIAS_HELP}
  --limit N        answer the first N lines or rows only, and write these; the same command with another limit, or without
                   one, goes on with the others
  --order ORDER    of the answers: input, or completed for that in which they came (default: input)
  --dry-run        say how many tokens that is, how long it would take here, and which lines cannot be answered, as those
                   that do not fit the context; answers some lines to measure that, and writes nothing
  --fail-on-errors exit code 1 when any line has failed
  --strict         refuse the whole job, before anything runs, when any line is bad
  --nats URL       let workers answer the lines, through this NATS server (nats://HOST[:PORT]), instead of this
                   process; --parallel is then the lines in flight in all of them (default ${NATS_PARALLEL.default})
  --nats-creds F   a credentials file for it
  --json           print the progress as JSON lines on standard output
  --help           this text

${TABLE_HELP}

A line of a JSONL input:
  {"custom_id":"q1","method":"POST","url":"/v1/chat/completions",
   "body":{"model":"demo","messages":[{"role":"user","content":"Hi"}],"max_tokens":50}}
A line of the output:
  {"id":"batch_req_…","custom_id":"q1","response":{"status_code":200,"request_id":"…","body":{…}},"error":null}

All lines are checked first. A bad one (invalid JSON, a custom_id twice, "stream":true, …) goes to the errors with its
number, and the others run; with --strict nothing runs then. Try it without a model: deno task batch check IN.jsonl with the
same --model, --alias and options of a table.

Every answer is on the disk (OUT.jsonl.journal) before it is counted. After a stop, a crash or a power cut the same
command resumes the job; OUT.jsonl appears when all lines are answered. The journal that stays behind is small: it says
that the job is done, so that running it again does nothing. Remove it and OUT.jsonl to run the job from scratch.

With --nats, start workers with deno task batch worker, before or after, here and on other machines; --model names
the file that they must have, of which this process reads the header only. Workers, the server and what is in its
queue may vanish at any moment: what they had in hand is handed out again, and nothing is answered twice.
${CREDENTIALS_HELP}

In a checkout without current native libraries the command builds them first. Where that fails, or with --backend wasm,
WebAssembly computes.

Ctrl-C once: end the lines in flight, then stop. Twice: stop now. Both can be resumed.
Exit code: 0 all lines are done, with or without errors among them; 1 stopped or failed, or no line was answered, or with
--fail-on-errors any has failed; 2 wrong usage.

Example:
  deno task batch run questions.jsonl --out answers.jsonl --model qwen3-4b-q4_0.gguf
  deno task batch run reviews.parquet --prompt "Classify: {text}" --schema sentiment.json --out labelled.parquet
  deno task batch run reviews.parquet --prompt "Classify: {text}" --max-tokens 5 --dry-run
  deno task batch run prompts.txt --max-tokens 200 --out answers.csv
  make-questions | deno task batch run - --job questions --out - > answers.jsonl
`;

/** `batch run …`. Returns the exit code. */
export async function runCommand(args: readonly string[], world: BatchWorld): Promise<number> {
  const values = [
    "out",
    "errors",
    "job",
    "order",
    "alias",
    "limit",
    ...ENGINE_FLAGS,
    ...NATS_FLAGS,
    ...TABLE_FLAGS,
  ];
  const flags = new Flags(args, {
    values,
    repeated: ["alias"],
    switches: ["strict", "dry-run", "fail-on-errors", ...ENGINE_SWITCHES],
    operands: ["IN"],
  });
  if (flags.help) {
    world.host.out(HELP);
    return 0;
  }
  const isDry = flags.is("dry-run");
  const nats = natsFlags(flags);
  const own = ["threads", "kv-mb", ...CACHE_FLAGS].find((name) => flags.has(name));
  if (nats !== undefined && own) {
    throw new UsageError(`--${own} is the workers' own; leave it out with --nats`);
  }
  if (nats !== undefined && isDry) {
    throw new UsageError(
      "--dry-run measures this machine; leave out --nats, which has the lines answered by others",
    );
  }
  const engine = engineOptions(flags, nats === undefined ? undefined : NATS_PARALLEL);
  if (nats !== undefined) workersBackend(engine.backend);
  const limit = flags.count("limit", 1, MAX_LIMIT);
  const aliases = aliasesOf(flags);
  const order = answerOrder(flags.text("order"));
  const { input, output, show } = await namedFiles(flags, world);
  const note = noteTo(world, flags);
  const { isTable, openInput, judged } = await jobShape(flags, input, output, note);
  if (isTable && !flags.has("max-tokens")) note(BOUND_NOTE);
  if (isDry || output === undefined) {
    const asked = limit === undefined ? openInput : firstLines(openInput, limit);
    return await dryRun({ input, openInput: asked, engine, aliases, json: flags.json }, world);
  }
  if (isTable && order === "completed") {
    throw new UsageError("--order completed is for JSONL: the rows of a table keep their order");
  }
  const job = {
    openInput,
    judged,
    aliases,
    examine: examinerOf(flags),
    limit,
    input,
    output,
    errors: flags.text("errors") ?? errorsPath(output),
    engine,
    nats,
    order,
    strict: flags.is("strict"),
    json: flags.json,
  };
  const result = await runJob(job, world);
  if (result === undefined) return 1;
  await show();
  return exitCodeOf(result.counts, flags.is("fail-on-errors"));
}

function answerOrder(given: string | undefined): AnswerOrder {
  if (given === undefined || given === "input" || given === "completed") return given ?? "input";
  throw new UsageError(`--order must be input or completed (got "${given}")`);
}
