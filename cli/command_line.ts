import { UsageError } from "./flags.ts";
import { messageOf } from "../lib/system_errors.ts";
import { err, out } from "./terminal.ts";

/** Runs a command with the words after its name; returns the exit code. */
type Command = (args: readonly string[]) => Promise<number>;

/** Loaded when called: what serves need not be read to generate. */
const COMMANDS: Readonly<Record<string, { summary: string; load: () => Promise<Command> }>> = {
  serve: {
    summary: "serve the OpenAI API over one model",
    load: async () => (await import("./serve.ts")).serveCommand,
  },
  chat: {
    summary: "chat with a model on the terminal",
    load: async () => (await import("./chat.ts")).chatCommand,
  },
  generate: {
    summary: "generate text from one prompt",
    load: async () => (await import("./generate.ts")).generateCommand,
  },
  tokenize: {
    summary: "turn text into token ids",
    load: async () => (await import("./tokenize.ts")).tokenizeCommand,
  },
  batch: {
    summary: "answer a file of requests, as OpenAI's batches do",
    load: async () => (await import("./batch.ts")).batchTask,
  },
  embed: {
    summary: "turn a file of texts into vectors",
    load: async () => (await import("./embed.ts")).embedCommand,
  },
  cache: {
    summary: "look into a folder of prompts, or empty it",
    load: async () => (await import("./cache.ts")).cacheCommand,
  },
  inspect: {
    summary: "describe a model file and what running it takes",
    load: async () => (await import("./inspect.ts")).inspectCommand,
  },
  doctor: {
    summary: "say what this machine can do, what is slow or wrong, and what to do about it",
    load: async () => (await import("./doctor.ts")).doctorCommand,
  },
  pull: {
    summary: "download a model, checked and resumable; list and remove models",
    load: async () => (await import("./pull.ts")).pullCommand,
  },
  convert: {
    summary: "convert a checkpoint of Hugging Face or MLX into a GGUF file",
    load: async () => (await import("./convert.ts")).convertCommand,
  },
  bench: {
    summary: "measure how fast a model runs here",
    load: async () => (await import("./bench.ts")).benchCommand,
  },
};

const HELP = `compy: GGUF language models on Deno

Usage: deno task COMMAND [options]

${Object.entries(COMMANDS).map(([name, { summary }]) => `  ${name.padEnd(10)} ${summary}`).join("\n")}

Each explains itself: deno task COMMAND --help
All know --library DIR: the folder of the native libraries (or COMPY_LIBRARY; FFI is to be allowed there).
Exit codes: 0 done, 1 failed, 2 wrong usage.
`;

/** Runs the command line and returns the exit code; what goes wrong is told on standard error. */
export async function commandLine(words: readonly string[]): Promise<number> {
  try {
    const [name, ...args] = withoutLibrary(words);
    if (name === undefined || name === "--help" || name === "-h" || name === "help") {
      out(HELP);
      return 0;
    }
    if (!Object.hasOwn(COMMANDS, name)) {
      throw new UsageError(
        `There is no command "${name}"; the commands are ${Object.keys(COMMANDS).join(", ")}`,
      );
    }
    const command = await COMMANDS[name].load();
    return await command(args);
  } catch (error) {
    // A reader that left (`| head`) has heard enough.
    if (error instanceof Deno.errors.BrokenPipe) return 1;
    if (error instanceof UsageError) {
      const name = words.find((word) => Object.hasOwn(COMMANDS, word));
      const help = name === undefined ? "deno run main.ts --help" : `deno task ${name} --help`;
      err(`Error: ${error.message}\nSee: ${help}\n`);
      return 2;
    }
    err(describe(error));
    return 1;
  }
}

/** Takes `--library DIR` from the words; the look-up, here and in processes that this one starts, reads the variable. */
function withoutLibrary(words: readonly string[]): string[] {
  const end = words.indexOf("--");
  const at = words.findIndex((word, i) => (end < 0 || i < end) && /^--library(=|$)/.test(word));
  if (at < 0) return [...words];
  const inside = words[at].includes("=");
  const folder = inside ? words[at].slice("--library=".length) : words[at + 1];
  if (!folder) throw new UsageError("--library needs a folder: --library DIR");
  Deno.env.set("COMPY_LIBRARY", folder);
  return words.filter((_, i) => i < at || i > at + (inside ? 0 : 1));
}

/** Errors that only a bug throws come with their stack, so that they can be reported. */
function describe(error: unknown): string {
  const bug = !(error instanceof Error) || error instanceof TypeError || error instanceof ReferenceError ||
    error instanceof RangeError;
  if (!bug) return `Error: ${messageOf(error)}\n`;
  return `Error: this is a bug in compy, please report it:\n${
    error instanceof Error ? error.stack : String(error)
  }\n`;
}
