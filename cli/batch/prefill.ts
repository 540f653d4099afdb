import { resolve } from "@std/path";
import { exitCodeOf, runCommandJob } from "./job.ts";
import { errorsPath } from "../../lib/batch/batch.ts";
import { inputLimits, jobIdentity, jobStatus, type ModelIdentity } from "../../lib/batch/jobs.ts";
import { reportCache } from "../../lib/prompt_folder.ts";
import { type BatchWorld, ENGINE_SETTINGS, type EngineOptions, engineOptions } from "./world.ts";
import { UsageError } from "../shared/flags.ts";
import { readWords } from "../shared/read_settings.ts";
import { HELP_LINE, helpOf, onOff, path } from "../shared/settings.ts";

/** Limits for lines whose prompts can be prefilled. */
export const READ_LIMITS = inputLimits(["/v1/chat/completions", "/v1/completions", "/v1/messages"]);
/** Name of the job setting that records where prefilled prompts are stored. */
const KEPT_IN = "prompts kept in";
/** Milliseconds for which a stopped job's prompts stay in the folder, so that the job can resume. */
const KEEP_MS = 24 * 3600_000;
/** Fields that request generated tokens or several answers. */
const ANSWERED = ["max_completion_tokens", "n", "echo", "logprobs", "top_logprobs"];

const OPTIONS = {
  out: path("FILE", { help: "the file for the answers (default: IN.prefilled.jsonl for IN.jsonl)" }),
  errors: path("FILE", {
    help: "the file for refused and failed lines (default: OUT.errors.jsonl for OUT.jsonl)",
  }),
  ...ENGINE_SETTINGS,
  failOnErrors: onOff({ help: "exit code 1 if any line has failed" }),
  json: onOff({ help: "print the progress as JSON lines on standard output" }),
};

const HELP =
  `Prefill the prompts of a file of requests and store them, so that later requests that begin with them start at once.

Usage: deno task batch prefill IN.jsonl --cache-disk DIR [options]

${helpOf(OPTIONS)}${HELP_LINE}
The lines are those of deno task batch run: documents and system prompts, in the form in which later requests begin. No answer is
generated (max_tokens is 0). Each line's answer says in usage.prompt_tokens_details (in usage for /v1/messages) how many tokens
are on the disk (stored_tokens), and for which model, KV type, kernels and instruction set (stored_in): engines with the same
ones find the prompts through --cache-disk DIR.

A line is done when its prompt is safely on the disk. After a stop, a crash or a power cut the same command resumes the job. If a
prompt does not fit beside the prompts that were used within a day, its line fails: raise --cache-disk-mb. Stop a server that uses
the folder first, or send it the lines as a batch with "max_tokens": 0.

Exit code: 0 all lines are done, with or without errors; 1 stopped or failed, or no line was done, or any line has failed with
--fail-on-errors; 2 wrong usage.

Example:
  deno task batch prefill documents.jsonl --cache-disk .compy/prompts --model qwen3-4b-q4_0.gguf
  deno task serve --cache-disk .compy/prompts --model qwen3-4b-q4_0.gguf
`;

/** Runs `batch prefill …`. Returns the exit code. */
export async function prefillCommand(args: readonly string[], world: BatchWorld): Promise<number> {
  const given = readWords(OPTIONS, args, HELP, { operands: ["IN.jsonl"], print: world.host.out });
  if (given === undefined) return 0;
  const { values } = given;
  const ahead = await readAhead(engineOptions(values), world);
  const input = given.operand("IN.jsonl");
  const output = values.out ?? `${input.replace(/\.jsonl$/, "")}.prefilled.jsonl`;
  await checkDone(output, ahead.engine.promptCache.folder);
  const job = {
    input,
    output,
    errors: values.errors ?? errorsPath(output),
    engine: ahead.engine,
    limits: READ_LIMITS,
    strict: false,
    json: given.json,
  };
  const result = await runCommandJob(job, ahead.world);
  return result === undefined ? 1 : exitCodeOf(result.counts, values.failOnErrors);
}

/** Throws if the job is done but `folder` does not contain its prompts, because the command would do nothing. */
async function checkDone(output: string, folder: string): Promise<void> {
  const settings = (await jobIdentity(output))?.settings;
  if (settings === undefined || (await jobStatus(output)).state !== "done") return;
  const isThere = settings[KEPT_IN] === resolve(folder) && (await reportCache(folder)).parts > 0;
  if (isThere) return;
  throw new Error(
    `The job of "${output}" is done, and its prompts are not in "${folder}": to prefill them again, give another --out, or ` +
      `remove "${output}.journal" and the job's outputs`,
  );
}

/** Returns whether a job with these settings only prefills prompts. */
export function readsAhead(settings: ModelIdentity | undefined): boolean {
  return settings?.[KEPT_IN] !== undefined;
}

/**
 * Returns the engine options and the dependencies of a job that prefills prompts. Throws if the folder is not given
 * or is in use.
 */
export async function readAhead(engine: EngineOptions, world: BatchWorld) {
  const { promptCache } = engine;
  if (!promptCache) throw new UsageError("--cache-disk is missing: the folder for the prompts");
  const { folder } = promptCache;
  if ((await reportCache(folder)).inUse) {
    throw new Error(
      `Cannot keep prompts in "${folder}": a server or another job uses it; stop that, or send the lines to the server as ` +
        'a batch with "max_tokens": 0',
    );
  }
  return {
    // Each block is written at once, so that a killed job does not restart a long document.
    engine: { ...engine, promptCache: { ...promptCache, eager: true, keepMs: KEEP_MS } },
    world: reading(world, folder),
  };
}

/** Returns the dependencies of a job that only prefills its requests. */
function reading(world: BatchWorld, folder: string): BatchWorld {
  return {
    ...world,
    openEngine: async (options) => {
      const opened = await world.openEngine(options);
      return { ...opened, identity: { ...opened.identity, [KEPT_IN]: resolve(folder) } };
    },
    execute: (engine, request) => world.execute(engine, { ...request, body: onlyRead(request.body) }),
  };
}

function onlyRead(body: Record<string, unknown>): Record<string, unknown> {
  const asked = Object.entries(body).filter(([field]) => !ANSWERED.includes(field));
  return { ...Object.fromEntries(asked), max_tokens: 0 };
}
