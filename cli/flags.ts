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
}

/** The options of one command. `--help`, `-h` and `--json` are known to all. */
export class Flags {
  readonly help: boolean;
  readonly json: boolean;
  readonly #operands: Record<string, string>;
  readonly #values: Record<string, string[]>;
  readonly #switches: Record<string, boolean>;
  readonly #repeated: readonly string[];

  /** Throws UsageError for an option that the command does not have, and for too many or too few words beside them. */
  constructor(args: readonly string[], names: FlagNames) {
    const { values = [], repeated = [], switches = [], operands = [] } = names;
    const parsed = parseArgs([...args], {
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
    const words = parsed._ as string[];
    this.#operands = Object.fromEntries(operands.map((name, i) => [name, words[i]]));
    if (this.help) return;
    const word = words[operands.length];
    if (word) throw new UsageError(`Found "${word}", which belongs to no option`);
    const missing = operands[words.length];
    if (missing) throw new UsageError(`${missing} is missing`);
  }

  operand(name: string): string {
    return this.#operands[name];
  }

  is(name: string): boolean {
    return this.#switches[name];
  }

  has(name: string): boolean {
    return this.#values[name].length > 0;
  }

  texts(name: string): string[] {
    const values = this.#values[name];
    if (values.includes("")) {
      throw new UsageError(
        `${dashed(name)} needs a value; one that begins with "-" goes ${dashed(name)}=VALUE`,
      );
    }
    if (values.length > 1 && !this.#repeated.includes(name)) {
      throw new UsageError(`${dashed(name)} is given ${values.length} times, allowed is once`);
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
    throw new UsageError(`${dashed(name)} must be one of ${allowed.join(", ")}, found "${text}"`);
  }

  /** A whole number from `min` to `max`. */
  count(name: string, min: number, max: number): number | undefined {
    const text = this.text(name);
    return text === undefined ? undefined : readCount(text, dashed(name), min, max);
  }

  /** Whole numbers, separated by commas. */
  counts(name: string, min: number, max: number): number[] | undefined {
    return this.text(name)?.split(",").map((text) => readCount(text.trim(), dashed(name), min, max));
  }

  /** A decimal number from `min` to `max`. */
  number(name: string, min: number, max: number): number | undefined {
    const text = this.text(name);
    if (text === undefined) return undefined;
    const value = Number(text);
    if (!/^\d*\.?\d+$/.test(text) || value < min || value > max) {
      throw new UsageError(`${dashed(name)} must be a number from ${min} to ${max}, found "${text}"`);
    }
    return value;
  }
}

function readCount(text: string, name: string, min: number, max: number): number {
  const value = Number(text);
  if (!/^\d{1,16}$/.test(text) || value < min || value > max) {
    throw new UsageError(`${name} must be a whole number from ${min} to ${max}, found "${text}"`);
  }
  return value;
}

function refuseUnknown(arg: string, key?: string): void {
  if (key === undefined) return;
  const hint = arg.startsWith("--") ? "" : `; a value that begins with "-" goes --OPTION=${arg}`;
  throw new UsageError(`There is no option ${arg}${hint}`);
}

function dashed(name: string): string {
  return name.length === 1 ? `-${name}` : `--${name}`;
}
