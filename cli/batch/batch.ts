import { type BatchWorld, realWorld } from "./world.ts";
import { UsageError } from "../shared/flags.ts";

/** A verb of `batch`; its code is loaded when the verb is called. */
interface Verb {
  readonly summary: string;
  readonly load: () => Promise<(args: readonly string[], world: BatchWorld) => Promise<number>>;
}

const VERBS: Readonly<Record<string, Verb>> = {
  run: {
    summary: "answer a file of requests, or resume a job that was stopped",
    load: async () => (await import("./run.ts")).runCommand,
  },
  prefill: {
    summary: "prefill documents and system prompts, for later questions about them",
    load: async () => (await import("./prefill.ts")).prefillCommand,
  },
  status: {
    summary: "show the progress of a job, or how it ended",
    load: async () => (await import("./status.ts")).statusCommand,
  },
  cancel: {
    summary: "end a job for good: lines without an answer get none",
    load: async () => (await import("./cancel.ts")).cancelCommand,
  },
  "retry-errors": {
    summary: "answer the failed lines of a job again",
    load: async () => (await import("./retry.ts")).retryCommand,
  },
  check: {
    summary: "check a file for bad lines without running it",
    load: async () => (await import("./check.ts")).checkCommand,
  },
  worker: {
    summary: "answer lines of batches that run elsewhere, through NATS",
    load: async () => (await import("./worker.ts")).workerCommand,
  },
};

const HELP = `Answer files of requests, one JSON object per line, in OpenAI's batch format.

Usage: deno task batch VERB … [options]

${Object.entries(VERBS).map(([name, { summary }]) => `  ${name.padEnd(14)} ${summary}`).join("\n")}

Help for a verb: deno task batch run --help
Exit code: 0 done, 1 stopped or failed, or no line was answered, 2 wrong usage.

Example:
  deno task batch run questions.jsonl --out answers.jsonl --model qwen3-4b-q4_0.gguf
`;

/** Runs `batch …` as a task. Returns the exit code. Without NATS it first gives up the network permission. */
export async function batchTask(args: readonly string[]): Promise<number> {
  const usesNats = args[0] === "worker" || args.some((arg) => /^--nats(=|$)/.test(arg));
  if (!usesNats) await Deno.permissions.revoke({ name: "net" });
  return await batchCommand(args);
}

/** Runs `batch …` of the command line. Returns the exit code. */
export async function batchCommand(
  [name, ...args]: readonly string[],
  world: BatchWorld = realWorld,
): Promise<number> {
  if (name === undefined || name === "--help" || name === "-h" || name === "help") {
    world.host.out(HELP);
    return 0;
  }
  try {
    if (name.startsWith("-")) throw new UsageError(`There is no option ${name}`);
    if (!Object.hasOwn(VERBS, name)) {
      throw new UsageError(`Invalid verb "${name}": must be one of ${Object.keys(VERBS).join(", ")}`);
    }
    const verb = await VERBS[name].load();
    return await verb(args, world);
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    const help = Object.hasOwn(VERBS, name) ? `${name} --help` : "--help";
    world.host.err(`Error: ${error.message}\n`);
    world.host.err(`See: deno task batch ${help}\n`);
    return 2;
  }
}
