import { requireLimits } from "../doctor/checks/limits.ts";
import { kernelsLibrary } from "../lib/libraries.ts";
import { NAME, VERSION } from "../package.ts";
import { COMMANDS } from "./commands.ts";
import { UsageError } from "./shared/flags.ts";
import { asCalled } from "./shared/start.ts";
import { captured, err, LOG_LEVELS, note, out, setLogLevel } from "./shared/terminal.ts";
import { inFlags } from "./shared/words.ts";

const HELP = `compy: GGUF language models on Deno

Usage: deno task COMMAND [options]

${Object.entries(COMMANDS).map(([name, { summary }]) => `  ${name.padEnd(12)} ${summary}`).join("\n")}

Help for a command: deno task COMMAND --help
--version prints the versions of compy and Deno, and the path of the kernels.
After a command: --log-level LEVEL selects the messages on standard error: ${
  LOG_LEVELS.join(", ")
} (default: info;
debug also reports each request served); --library DIR is the folder of the native libraries (or COMPY_LIBRARY; it needs FFI permission).
Exit codes: 0 done, 1 failed, 2 wrong usage.
`;

/** Text that is printed when compy is called without words. */
const WELCOME = `compy runs GGUF language models on this machine.

  deno task chat                      talk with the small model that comes with it
  deno task chat --model FILE.gguf    talk with your own
  deno task serve --model FILE.gguf   serve OpenAI's API, and a page, on http://127.0.0.1:8080
  deno task batch run IN.jsonl --out OUT.jsonl --model FILE.gguf
                                      answer a file of prompts; stop it and go on at any time
  deno task pull                      download a model
  deno task doctor                    what this machine can do, and what is in the way

All commands: deno run main.ts --help
`;

/** Runs the command line and returns the exit code. Errors go to standard error. */
export async function commandLine(words: readonly string[]): Promise<number> {
  try {
    const [name, ...args] = withoutCommon(words);
    if (name === undefined) {
      out(asCalled(WELCOME));
      return 0;
    }
    if (isHelp(name)) {
      out(asCalled(HELP));
      return 0;
    }
    if (name === "--version" || name === "-V") {
      out(version());
      return 0;
    }
    if (!Object.hasOwn(COMMANDS, name)) {
      throw new UsageError(
        `There is no command "${name}"; the commands are ${Object.keys(COMMANDS).join(", ")}`,
      );
    }
    const { load, hasVerbs } = COMMANDS[name];
    if (!asksHelp(args) && !(hasVerbs && isHelp(args[0] ?? "help"))) {
      // The doctor reports them with its other checks.
      const limits = name === "doctor" ? undefined : requireLimits((message) => note(message, "warning"));
      const [command] = await Promise.all([load(), limits]);
      return await command(args);
    }
    const command = await load();
    let code = 0;
    out(asCalled(await captured(async () => code = await command(args))));
    return code;
  } catch (error) {
    // A closed reader (`| head`) needs no error message.
    if (error instanceof Deno.errors.BrokenPipe) return 1;
    if (error instanceof UsageError) {
      const name = words.find((word) => Object.hasOwn(COMMANDS, word));
      const help = name === undefined ? "deno run main.ts --help" : `deno task ${name} --help`;
      err(`Error: ${error.message}\n`);
      err(`See: ${help}\n`);
      return 2;
    }
    report(error);
    return 1;
  }
}

function isHelp(word: string): boolean {
  return word === "--help" || word === "-h" || word === "help";
}

function asksHelp(args: readonly string[]): boolean {
  const end = args.indexOf("--");
  return (end < 0 ? args : args.slice(0, end)).some((word) => word === "--help" || word === "-h");
}

/** Returns the facts for the beginning of a problem report. Looking for the kernels needs read permission. */
function version(): string {
  const { os, arch } = Deno.build;
  const { state } = Deno.permissions.querySync({ name: "read" });
  const kernels = state === "granted" ? [`kernels: ${kernelsLibrary() ?? "WebAssembly"}`] : [];
  const lines = [`${NAME} ${VERSION}`, `Deno ${Deno.version.deno} on ${os} ${arch}`, ...kernels];
  return lines.map((line) => `${line}\n`).join("");
}

/** Applies the options that all commands share, and returns the remaining words. */
function withoutCommon(words: readonly string[]): string[] {
  const [library, rest] = taken("library", "a folder: --library DIR", words);
  // This process and its children read the library's path from this variable.
  if (library !== undefined) Deno.env.set("COMPY_LIBRARY", library);
  const [level, others] = taken("log-level", `one of ${LOG_LEVELS.join(", ")}`, rest);
  const known = LOG_LEVELS.find((name) => name === level);
  if (known) setLogLevel(known);
  else if (level !== undefined) {
    throw new UsageError(`--log-level must be one of ${LOG_LEVELS.join(", ")} (got "${level}")`);
  }
  return others;
}

/** Returns an option's value, if it is present, and the words without the option. */
function taken(
  option: string,
  needs: string,
  words: readonly string[],
): [value: string | undefined, rest: string[]] {
  const flag = `--${option}`;
  const end = words.indexOf("--");
  const at = words.findIndex((word, i) =>
    (end < 0 || i < end) && (word === flag || word.startsWith(`${flag}=`))
  );
  if (at < 0) return [undefined, [...words]];
  const inside = words[at] !== flag;
  const value = inside ? words[at].slice(flag.length + 1) : words[at + 1];
  if (!value) throw new UsageError(`${flag} needs ${needs}`);
  return [value, words.filter((_, i) => i < at || i > at + (inside ? 0 : 1))];
}

/** Prints an error's message. Unexpected errors keep their stack, so that users can report them. */
function report(error: unknown): void {
  const bug = !(error instanceof Error) || error instanceof TypeError || error instanceof ReferenceError ||
    error instanceof RangeError;
  if (!bug) return err(`Error: ${inFlags(error)}\n`);
  err(
    `Error: this is a bug in compy, please report it:\n  ${error instanceof Error ? error.stack : error}\n`,
  );
}
