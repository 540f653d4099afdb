import { parseArgs } from "@std/cli/parse_args.js";

/** A command that was called wrongly: exit code 2. */
export class UsageError extends Error {
  override name = "UsageError";
}

export interface FlagNames {
  /** Options with a value. */
  readonly values?: readonly string[];
  /** Of these, the ones that may be given several times. */
  readonly repeated?: readonly string[];
  readonly switches?: readonly string[];
  /** Words that are no option, in their order, as the help calls them; all are required. */
  readonly operands?: readonly string[];
  /** A word after these that may be missing: a text, in quotes where it has several words. */
  readonly text?: string;
}

/** The options of one command. `--help`, `-h` and `--json` are known to all. */
export class Flags {
  readonly help: boolean;
  readonly json: boolean;
  /** The word that may be missing. */
  readonly word: string | undefined;
  readonly #operands: Record<string, string>;
  readonly #values: Record<string, string[]>;
  readonly #switches: Record<string, boolean>;
  readonly #repeated: readonly string[];
  readonly #args: readonly string[];

  /** Throws UsageError for an option that the command does not have, and for too many or too few words beside them. */
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
    this.#switches = parsed as Record<string, boolean>;
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

  is(name: string): boolean {
    return this.#switches[name];
  }

  /** What was given of a switch, as a list of one word: `true`, or what stands after `=`; none where it was not given. */
  switched(name: string): string[] {
    const given = this.#args.filter((arg) => arg === dashed(name) || arg.startsWith(`${dashed(name)}=`));
    return given.slice(-1).map((arg) => arg.slice(dashed(name).length + 1) || "true");
  }

  has(name: string): boolean {
    return this.#values[name].length > 0;
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

  text(name: string): string | undefined {
    return this.texts(name)[0];
  }

  /** One of several words. */
  choice<T extends string>(name: string, allowed: readonly T[]): T | undefined {
    const text = this.text(name);
    const found = allowed.find((word) => word === text);
    if (text === undefined || found !== undefined) return found;
    throw new UsageError(`${dashed(name)} must be one of ${allowed.join(", ")} (got "${text}")`);
  }

  /** A whole number from `min` to `max`. */
  count(name: string, min: number, max: number): number | undefined {
    const text = this.text(name);
    if (text === undefined) return undefined;
    const value = toCount(text, min, max);
    if (value !== undefined) return value;
    throw new UsageError(`${dashed(name)} must be a whole number from ${min} to ${max} (got "${text}")`);
  }

  /** Whole numbers, separated by commas. */
  counts(name: string, min: number, max: number): number[] | undefined {
    const text = this.text(name);
    return text?.split(",").map((word) => {
      const value = toCount(word.trim(), min, max);
      if (value !== undefined) return value;
      const what = `whole numbers from ${min} to ${max}, with commas between them`;
      throw new UsageError(`${dashed(name)} must be ${what} (got "${text}")`);
    });
  }

  /** A decimal number from `min` to `max`. */
  number(name: string, min: number, max: number): number | undefined {
    const text = this.text(name);
    if (text === undefined) return undefined;
    const value = Number(text);
    if (!/^\d*\.?\d+$/.test(text) || value < min || value > max) {
      throw new UsageError(`${dashed(name)} must be a number from ${min} to ${max} (got "${text}")`);
    }
    return value;
  }
}

function toCount(text: string, min: number, max: number): number | undefined {
  const value = Number(text);
  return /^\d{1,16}$/.test(text) && value >= min && value <= max ? value : undefined;
}

function refuseUnknown(arg: string, key?: string): void {
  if (key !== undefined) throw new UsageError(`There is no option ${arg}`);
}

/**
 * `--port -1` as `--port=-1`: a negative number is the value of the option before it, so that the option says what is wrong
 * with it. `-` alone is one too, as in `--log -`. Throws UsageError for other words after "-" in a value's place: they may be meant as an option or as the value.
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

/** `kvMb` -> `kv-mb`. */
export function flagOf(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
}

function dashed(name: string): string {
  return name.length === 1 ? `-${name}` : `--${name}`;
}
