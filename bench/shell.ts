/** Helpers of the benchmark commands: running programs and printing. */
import { parseArgs } from "@std/cli/parse_args.js";
import { fromFileUrl } from "@std/path";

/** Path of the repository. */
export const ROOT = fromFileUrl(new URL("..", import.meta.url));

/** Thrown for wrong usage of a command; its exit code is 2. */
export class UsageError extends Error {}

export function print(text: string): void {
  Deno.stdout.writeSync(new TextEncoder().encode(text));
}

export function say(text: string): void {
  Deno.stderr.writeSync(new TextEncoder().encode(`${text}\n`));
}

/** Returns the number of processes that want to run, averaged over a minute. */
export function loadAverage(): number {
  return Deno.loadavg()[0];
}

/** A program's output. */
export interface Ran {
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs a program to its end. If it fails, throws with its error output, unless every exit code is accepted. */
export async function runBoth(
  program: string,
  args: readonly string[],
  cwd = ROOT,
  { anyCode = false } = {},
): Promise<Ran> {
  let result;
  try {
    const options: Deno.CommandOptions = {
      args: [...args],
      cwd,
      stdin: "null",
      stdout: "piped",
      stderr: "piped",
    };
    const child = new Deno.Command(program, options).spawn();
    using _ = endingWithThis(child);
    result = await child.output();
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
    throw new Error(`Cannot run ${program}: there is no such program`);
  }
  const { success, code, signal } = result;
  const [stdout, stderr] = [result.stdout, result.stderr].map((bytes) => new TextDecoder().decode(bytes));
  if (success || anyCode) return { stdout, stderr };
  throw new Error(`${program} ${args[0]} failed (${signal ?? `exit code ${code}`}):\n${stderr.trim()}`);
}

/** Runs a program to its end and returns what it printed on its standard output. Throws as runBoth() does. */
export async function run(program: string, args: readonly string[], cwd = ROOT): Promise<string> {
  return (await runBoth(program, args, cwd)).stdout;
}

// On Windows, a program cannot listen for SIGTERM.
const SIGNALS = ([["SIGINT", 130], ["SIGTERM", 143]] as const).slice(0, Deno.build.os === "windows" ? 1 : 2);
const children = new Set<Deno.ChildProcess>();

/**
 * Ends the child program if a signal ends this one, which then runs no `finally`. Otherwise the child would keep
 * computing and disturb the next measurement. Dispose of the result when the program has ended.
 */
export function endingWithThis(child: Deno.ChildProcess): Disposable {
  if (children.size === 0) {
    for (const [signal, code] of SIGNALS) Deno.addSignalListener(signal, listeners[code]);
  }
  children.add(child);
  return {
    [Symbol.dispose]() {
      children.delete(child);
      if (children.size > 0) return;
      for (const [signal, code] of SIGNALS) Deno.removeSignalListener(signal, listeners[code]);
    },
  };
}

const listeners = { 130: () => endAll(130), 143: () => endAll(143) };

function endAll(code: number): never {
  for (const child of children) child.kill("SIGTERM");
  Deno.exit(code);
}

/** Path of the program that measures kernels, built by the tasks that need it. */
export const KERNEL_BENCH = `${ROOT}rust-kernels/target/release/bench`;

/** The options of a command. All except --json and `switches` have a value. */
export class Options {
  readonly json: boolean;
  readonly #values: Record<string, readonly string[] | undefined>;
  readonly #switches: Record<string, unknown>;

  /** Parses a command's options. Throws UsageError for an unknown one. */
  constructor(args: readonly string[], names: readonly string[], switches: readonly string[] = []) {
    const parsed = parseArgs([...args], {
      string: [...names],
      collect: [...names],
      boolean: ["json", ...switches],
      unknown: (arg: string) => {
        throw new UsageError(`There is no option ${arg}`);
      },
    }) as Record<string, unknown>;
    this.json = parsed.json === true;
    this.#switches = parsed;
    this.#values = parsed as Record<string, string[] | undefined>;
  }

  switched(name: string): boolean {
    return this.#switches[name] === true;
  }

  /** Returns the option's value, the last one if it was given several times. */
  text(name: string): string | undefined {
    return this.texts(name).at(-1) || undefined;
  }

  /** Returns all values of an option that may be repeated. */
  texts(name: string): readonly string[] {
    return this.#values[name] ?? [];
  }

  /** Returns the option's value, which must be one of `allowed`. */
  choice<T extends string>(name: string, allowed: readonly T[], fallback: T): T {
    const text = this.text(name) ?? fallback;
    const found = allowed.find((word) => word === text);
    if (found !== undefined) return found;
    throw new UsageError(`--${name} must be one of ${allowed.join(", ")}, found "${text}"`);
  }

  /** Returns the option's whole numbers from 1 to `most`, which are separated by commas. */
  counts(name: string, most: number, fallback: string): number[] {
    return (this.text(name) ?? fallback).split(",").map((text) => {
      const value = Number(text);
      if (/^\d+$/.test(text) && value >= 1 && value <= most) return value;
      throw new UsageError(`--${name} must be a whole number from 1 to ${most}, found "${text}"`);
    });
  }

  count(name: string, most: number, fallback: number): number {
    const [value, ...more] = this.counts(name, most, String(fallback));
    if (more.length === 0) return value;
    throw new UsageError(`--${name} must be one whole number, found "${this.text(name)}"`);
  }
}

/** Runs a command: prints its help for --help, prints its error, and ends the process with its exit code. */
export async function command(name: string, help: string, body: () => Promise<void>): Promise<never> {
  if (Deno.args.includes("--help") || Deno.args.includes("-h")) {
    print(help);
    Deno.exit(0);
  }
  try {
    await body();
  } catch (error) {
    const usage = error instanceof UsageError;
    const hint = usage ? `\nSee: deno task ${name} --help` : "";
    say(`Error: ${error instanceof Error ? error.message : error}${hint}`);
    Deno.exit(usage ? 2 : 1);
  }
  Deno.exit(0);
}
