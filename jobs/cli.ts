import { parseArgs } from "@std/cli/parse_args.js";
import type { Engine } from "../engine/types.ts";
import { BatchError } from "./errors.ts";
import { JsonReporter, type Reporter, type Screen, TextReporter } from "./reporter.ts";
import { type Execute, runBatch } from "./runner.ts";

export interface EngineOptions {
  /** A GGUF file; without it, the one that comes with the program. */
  readonly model?: string;
  /** Lines that run side by side. */
  readonly parallel: number;
  /** Tokens of a line's prompt and answer together, and threads; without them, the engine's defaults. */
  readonly contextLength?: number;
  readonly threads?: number;
}

export type OpenEngine = (options: EngineOptions) => Promise<Engine>;

/** Answers a request as the server's endpoint would. */
export type ExecuteOn = (engine: Engine, request: Parameters<Execute>[0]) => ReturnType<Execute>;

/** What the command does with the world. */
export interface CommandHost extends Screen {
  /** Hears of Ctrl-C and SIGTERM until the returned function is called. */
  onInterrupt(handler: () => void): () => void;
  fileSize(path: string): Promise<number>;
}

const DEFAULT_PARALLEL = 16;
const MAX_PARALLEL = 1024;
const MAX_THREADS = 1024;
const MAX_CONTEXT = 16_777_216;
/** A terminal's Ctrl-C can reach the process twice, directly and through the task runner. */
const SAME_INTERRUPT_MS = 300;

const HELP = `Answer a file of requests, one JSON object a line, as OpenAI's batches do.

Usage: deno task batch run IN.jsonl --out OUT.jsonl [options]

  --out FILE       where the answers go, in the order of the input
  --errors FILE    where refused and failed lines go (default: OUT.errors.jsonl for OUT.jsonl);
                   written only when there are any
  --model FILE     the GGUF model (default: the one that comes with compy)
  --parallel N     lines in flight, 1 to ${MAX_PARALLEL} (default ${DEFAULT_PARALLEL}); more fill the engine better
  --ctx N          tokens that a line's prompt and answer may have together (default: the model's own, at most 4096)
  --threads N      threads that compute (default: one a core)
  --json           tell the progress as JSON lines on standard output
  --help           this text

A line of the input:
  {"custom_id":"q1","method":"POST","url":"/v1/chat/completions",
   "body":{"model":"demo","messages":[{"role":"user","content":"Hi"}],"max_tokens":50}}
A line of the output:
  {"id":"batch_req_…","custom_id":"q1","response":{"status_code":200,"request_id":"…","body":{…}},"error":null}

All lines are checked first. A bad one (no JSON, a custom_id twice, "stream":true, …) goes to the errors with its
number, and the others run.

Every answer is on the disk (OUT.jsonl.journal) before it is counted. After a stop, a crash or a power cut the same
command goes on where it was; OUT.jsonl appears when all lines are answered. The journal that stays behind is small:
it says that the job is done, so that running it again does nothing. Remove it and OUT.jsonl to run the job anew.

Ctrl-C once: end the lines in flight, then stop. Twice: stop now. Both can be resumed.
Exit code: 0 all lines are answered (with or without errors among them), 1 stopped or failed, 2 wrong usage.

Example:
  deno task batch run questions.jsonl --out answers.jsonl --model qwen3-4b-q4_0.gguf
`;

interface RunArguments {
  readonly input: string;
  readonly output: string;
  readonly errors: string;
  readonly engine: EngineOptions;
  readonly json: boolean;
}

class UsageError extends Error {}

/** `batch …` of the command line. Returns the exit code. */
export async function batchCommand(
  args: string[],
  openEngine: OpenEngine,
  execute: ExecuteOn,
  host: CommandHost = denoHost,
): Promise<number> {
  try {
    const run = parseArguments(args);
    if (run === "help") {
      host.out(HELP);
      return 0;
    }
    return await runCommand(run, openEngine, execute, host);
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    host.err(`Error: ${error.message}\nSee: deno task batch --help\n`);
    return 2;
  }
}

function parseArguments(args: string[]): RunArguments | "help" {
  const strings = ["out", "errors", "model", "parallel", "ctx", "threads"];
  const flags = parseArgs(args, {
    string: [...strings, "_"],
    boolean: ["json", "help"],
    alias: { help: "h" },
    unknown: (arg: string, key?: string) => {
      if (key !== undefined) throw new UsageError(`There is no option ${arg}`);
    },
  }) as Record<string, unknown> & { _: string[] };
  if (flags.help || args.length === 0) return "help";

  const [command, input, ...others] = flags._;
  if (command !== "run") throw new UsageError(`There is no command "${command ?? ""}"; the command is "run"`);
  if (input === undefined) {
    throw new UsageError("The input file is missing: batch run IN.jsonl --out OUT.jsonl");
  }
  if (others.length > 0) throw new UsageError(`One input file is allowed, found also "${others[0]}"`);
  const text = (name: string): string | undefined => {
    const value = flags[name];
    if (value === "") throw new UsageError(`--${name} needs a value`);
    return value as string | undefined;
  };
  const output = text("out");
  if (output === undefined) throw new UsageError("--out is missing: the file that the answers go to");
  const count = (name: string, max: number): number | undefined => {
    const value = text(name);
    if (value === undefined) return undefined;
    if (!/^\d{1,9}$/.test(value) || Number(value) < 1 || Number(value) > max) {
      throw new UsageError(`--${name} must be a number from 1 to ${max}, found "${value}"`);
    }
    return Number(value);
  };
  return {
    input,
    output,
    errors: text("errors") ?? `${output.replace(/\.jsonl$/, "")}.errors.jsonl`,
    engine: {
      model: text("model"),
      parallel: count("parallel", MAX_PARALLEL) ?? DEFAULT_PARALLEL,
      contextLength: count("ctx", MAX_CONTEXT),
      threads: count("threads", MAX_THREADS),
    },
    json: flags.json === true,
  };
}

async function runCommand(
  run: RunArguments,
  openEngine: OpenEngine,
  execute: ExecuteOn,
  host: CommandHost,
): Promise<number> {
  const reporter = run.json ? new JsonReporter(host, run) : new TextReporter(host, run);
  const { drainSignal, signal, release } = listenForInterrupts(host, reporter);
  const timer = setInterval(() => reporter.tick(), reporter.every);
  let engine: Engine | undefined;
  try {
    const result = await runBatch({
      input: run.input,
      output: run.output,
      errors: run.errors,
      parallel: run.engine.parallel,
      drainSignal,
      signal,
      onEvent: (event) => reporter.event(event),
      connect: async () => {
        const opened = engine = await openEngine(run.engine);
        const { id, path } = opened.model;
        return {
          execute: (request) => execute(opened, request),
          settings: { "model": id, "model file size": await host.fileSize(path) },
        };
      },
    });
    reporter.end(result);
    return result.state === "stopped" ? 1 : 0;
  } catch (error) {
    if (error instanceof BatchError && error.code === "same_file") throw new UsageError(error.message);
    reporter.fail(
      error instanceof Error ? error.message : String(error),
      (error as BatchError).resumable ?? true,
    );
    return 1;
  } finally {
    clearInterval(timer);
    await engine?.close();
    release();
  }
}

function listenForInterrupts(host: CommandHost, reporter: Reporter) {
  const drain = new AbortController();
  const now = new AbortController();
  let drainedAt = 0;
  const release = host.onInterrupt(() => {
    if (!drain.signal.aborted) {
      drainedAt = host.now();
      drain.abort();
      reporter.note("Stopping when the lines in flight have ended; Ctrl-C again stops now");
    } else if (host.now() - drainedAt > SAME_INTERRUPT_MS) {
      now.abort();
      // A third one ends the process as if nobody listened.
      release();
    }
  });
  return { drainSignal: drain.signal, signal: now.signal, release };
}

const denoHost: CommandHost = {
  out: (text) => writeAll(Deno.stdout, text),
  err: (text) => writeAll(Deno.stderr, text),
  columns: () => Deno.stderr.isTerminal() ? Deno.consoleSize().columns || 80 : undefined,
  now: () => performance.now(),

  onInterrupt(handler) {
    const signals: Deno.Signal[] = Deno.build.os === "windows" ? ["SIGINT"] : ["SIGINT", "SIGTERM"];
    for (const signal of signals) Deno.addSignalListener(signal, handler);
    return () => {
      for (const signal of signals) Deno.removeSignalListener(signal, handler);
    };
  },

  async fileSize(path) {
    return (await Deno.stat(path)).size;
  },
};

/** A reader that went away (a closed terminal, `| head`) is no reason to stop the job. */
function writeAll(stream: { writeSync(bytes: Uint8Array): number }, text: string): void {
  const bytes = new TextEncoder().encode(text);
  try {
    for (let done = 0; done < bytes.length;) done += stream.writeSync(bytes.subarray(done));
  } catch (error) {
    if (!(error instanceof Deno.errors.BrokenPipe)) throw error;
  }
}
