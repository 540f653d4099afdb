import { parseArgs } from "@std/cli/parse_args.js";

/** Thrown for wrong usage of a command, which ends with exit code 2. */
export class UsageError extends Error {
  override name = "UsageError";
}

export interface FlagNames {
  /** Options that take a value. */
  readonly values?: readonly string[];
  /** Options of `values` that may be repeated. */
  readonly repeated?: readonly string[];
  readonly switches?: readonly string[];
  /** Required words that are not options, in order, named as in the help. */
  readonly operands?: readonly string[];
  /** An optional text after the operands, named as in the help. */
  readonly text?: string;
}

/** The parsed words of one command. Every command has `--help`, `-h` and `--json`. */
export class Flags {
  readonly help: boolean;
  readonly json: boolean;
  /** The optional text. */
  readonly word: string | undefined;
  readonly #operands: Record<string, string>;
  readonly #values: Record<string, string[]>;
  readonly #repeated: readonly string[];
  readonly #args: readonly string[];

  /** Throws UsageError for an unknown option, and for too many or too few other words. */
  constructor(args: readonly string[], names: FlagNames) {
    const { values = [], repeated = [], switches = [], operands = [], text } = names;
    const parsed = parseArgs(joinNegatives(args, values), {
      string: [...values, "_"],
      collect: [...values],
      boolean: [...switches, "json", "help"],
      alias: { help: "h" },
      unknown: refuseUnknown,
    }) as Record<string, unknown>;
    this.help = parsed.help === true;
    this.json = parsed.json === true;
    this.#values = parsed as Record<string, string[]>;
    this.#repeated = repeated;
    this.#args = args;
    const words = parsed._ as string[];
    this.#operands = Object.fromEntries(operands.map((name, i) => [name, words[i]]));
    this.word = text === undefined ? undefined : words[operands.length];
    if (this.help) return;
    const word = words[operands.length + (text === undefined ? 0 : 1)];
    if (word) {
      const advice = text === undefined ? "" : `; put ${text} in quotes where it has several words`;
      throw new UsageError(`Found "${word}", which belongs to no option${advice}`);
    }
    const missing = operands[words.length];
    if (missing) throw new UsageError(`${missing} is missing`);
  }

  operand(name: string): string {
    return this.#operands[name];
  }

  /** Returns the value of a switch in a list: `true`, or the text after `=`; empty if it was not given. */
  switched(name: string): string[] {
    const given = this.#args.filter((arg) => arg === dashed(name) || arg.startsWith(`${dashed(name)}=`));
    return given.slice(-1).map((arg) => arg.slice(dashed(name).length + 1) || "true");
  }

  texts(name: string): string[] {
    const values = this.#values[name];
    if (values.includes("")) {
      throw new UsageError(needsValue(dashed(name)));
    }
    if (values.length > 1 && !this.#repeated.includes(name)) {
      throw new UsageError(`${dashed(name)} may be given once (got ${values.length} times)`);
    }
    return values;
  }
}

function refuseUnknown(arg: string, key?: string): void {
  if (key !== undefined) throw new UsageError(`There is no option ${arg}`);
}

/**
 * Returns the words with `--port -1` as `--port=-1`: a negative number is the value of the option before it. A lone `-`
 * is a value too, as in `--log -`. Throws UsageError for other words after "-" in a value's place, because they may be
 * an option or a value.
 */
function joinNegatives(args: readonly string[], values: readonly string[]): string[] {
  const takesValue = new Set(values.map(dashed));
  const joined: string[] = [];
  for (let i = 0; i < args.length; i++) {
    const [option, next] = [args[i], args[i + 1] ?? ""];
    if (!takesValue.has(option) || !next.startsWith("-")) joined.push(option);
    else if (/^-(?:$|[\d.])/.test(next)) joined.push(`${option}=${args[++i]}`);
    else throw new UsageError(`${needsValue(option)} (got ${next})`);
  }
  return joined;
}

function needsValue(option: string): string {
  return `${option} needs a value; write one that begins with "-" as ${option}=VALUE`;
}

/** Returns the flag of a name: `n` -> `-n`, `port` -> `--port`. */
export function dashed(name: string): string {
  return name.length === 1 ? `-${name}` : `--${name}`;
}
