/** Types and constructors of a command's options. */

/**
 * One setting of a command. Its name in a table, in camelCase, gives its flag (`--kv-mb`) and, for commands with a
 * config file, its environment variable (`COMPY_KV_MB`) and its key in the file (`kv_mb`).
 */
export interface Setting<T = unknown> {
  /** Placeholder of the value in the help; undefined for a switch. */
  readonly placeholder: string | undefined;
  readonly help: string;
  /**
   * Returns the value, or undefined if it is not allowed. Accepts JSON of a config file and the parsed text
   * of a flag.
   */
  readonly accept: (value: unknown) => unknown;
  /** The allowed values in words, for messages: `must be …`. */
  readonly rule: string;
  /** The rule in words for a single value that was given instead of a list. */
  readonly listRule?: string;
  readonly fallback: T;
  /** Whether the flag may be repeated. Commas separate the values in the environment. */
  readonly several: boolean;
  /** Whether the value must never be shown. */
  readonly secret: boolean;
  /** Describes the path, if the value is one. Paths in a config file are relative to the file's folder. */
  readonly path: PathSpec | undefined;
  /** A second flag of one letter for the setting. */
  readonly short?: string;
  /** Returns the value of a flag's or variable's text; the text itself if it is malformed. */
  readonly parse: (text: string) => unknown;
}

interface PathSpec {
  /** Words that are allowed besides paths, such as `none`. */
  readonly words?: readonly string[];
  /** Whether a value may be NAME=PATH. */
  readonly named?: boolean;
  /** Whether the command writes to the path. */
  readonly writes?: boolean;
}

interface Spec<D> {
  readonly help: string;
  /** The default value of the setting. */
  readonly default?: D;
}

interface Range {
  readonly min: number;
  readonly max: number;
}

const PLAIN = {
  several: false,
  secret: false,
  path: undefined,
  parse: (text: string): unknown => text,
};

const isCount = (value: unknown, { min, max }: Range) =>
  Number.isInteger(value) && Number(value) >= min && Number(value) <= max;

const toCount = (text: string): unknown => /^\d{1,16}$/.test(text) ? Number(text) : text;

/** Returns a setting for a whole number from `min` to `max`. */
export function count<D extends number | undefined = undefined>(
  { min, max, help, default: fallback, placeholder = "N", short }: Spec<D> & Range & {
    readonly placeholder?: string;
    readonly short?: string;
  },
): Setting<number | D> {
  return {
    ...PLAIN,
    placeholder,
    help,
    short,
    accept: (value) => isCount(value, { min, max }) ? value : undefined,
    rule: `a whole number from ${min} to ${max}`,
    fallback: fallback as D,
    parse: toCount,
  };
}

/** Returns a setting for whole numbers from `min` to `max`, separated by commas. */
export function counts<D extends readonly number[] | undefined = undefined>(
  placeholder: string,
  { min, max, help, default: fallback }: Spec<D> & Range,
): Setting<readonly number[] | D> {
  return {
    ...PLAIN,
    placeholder,
    help,
    accept: (value) =>
      Array.isArray(value) && value.every((one) => isCount(one, { min, max })) ? value : undefined,
    rule: `whole numbers from ${min} to ${max}, with commas between them`,
    fallback: fallback as D,
    parse: (text) => text.split(",").map((word) => toCount(word.trim())),
  };
}

/** Returns a setting for a decimal number from `min` to `max`. */
export function number<D extends number | undefined = undefined>(
  placeholder: string,
  { min, max, help, default: fallback }: Spec<D> & Range,
): Setting<number | D> {
  return {
    ...PLAIN,
    placeholder,
    help,
    accept: (value) => typeof value === "number" && value >= min && value <= max ? value : undefined,
    rule: `a number from ${min} to ${max}`,
    fallback: fallback as D,
    parse: (text) => /^\d*\.?\d+$/.test(text) ? Number(text) : text,
  };
}

/** Returns a setting for one of several words. */
export function choice<const T extends string, D extends T | undefined = undefined>(
  placeholder: string,
  words: readonly T[],
  { help, default: fallback }: Spec<D>,
): Setting<T | D> {
  const rule = `one of ${words.join(", ")}`;
  const accept = (value: unknown) => words.find((word) => word === value);
  return { ...PLAIN, placeholder, help, accept, rule, fallback: fallback as D };
}

/** A pattern for texts, and its description for messages. */
interface Look {
  readonly pattern: RegExp;
  readonly rule: string;
}

const ANY_TEXT: Look = { pattern: /^.+$/s, rule: "a text that is not empty" };

const acceptText = ({ pattern }: Look) => (value: unknown) =>
  typeof value === "string" && pattern.test(value) ? value : undefined;

/** Returns a setting for a text that is not empty or that matches a pattern. */
export function text<D extends string | undefined = undefined>(
  placeholder: string,
  { help, default: fallback, secret = false, look = ANY_TEXT }: Spec<D> & {
    readonly secret?: boolean;
    readonly look?: Look;
  },
): Setting<string | D> {
  const accept = acceptText(look);
  return { ...PLAIN, placeholder, help, accept, rule: look.rule, fallback: fallback as D, secret };
}

/** Returns a setting for the path of a file or folder. */
export function path<D extends string | undefined = undefined>(
  placeholder: string,
  { words, writes, ...spec }: Spec<D> & PathSpec,
): Setting<string | D> {
  return { ...text(placeholder, spec), path: { words, writes } };
}

/** Returns a setting for several texts, by default none. */
export function texts(
  placeholder: string,
  { help, look }: { readonly help: string; readonly look?: Look },
): Setting<readonly string[]> {
  const accept = acceptText(look ?? ANY_TEXT);
  return {
    ...PLAIN,
    placeholder,
    help,
    accept: (value) =>
      Array.isArray(value) && value.length > 0 && value.every((one) => accept(one) !== undefined)
        ? value
        : undefined,
    rule: look?.rule ?? "an array of non-empty texts",
    listRule: look && `an array of ${look.rule}`,
    fallback: [],
    several: true,
  };
}

/** Returns a setting for several paths. In the config file, a single path need not be in an array. */
export function paths(placeholder: string, spec: { readonly help: string }): Setting<readonly string[]> {
  const several = texts(placeholder, spec);
  const accept = (value: unknown) => several.accept(typeof value === "string" ? [value] : value);
  return { ...several, accept, rule: "a path, or an array of paths", path: {} };
}

/** Returns a switch that is off by default; `--NAME=false` overrides the config file. */
export function onOff({ help }: { readonly help: string }): Setting<boolean> {
  return {
    ...PLAIN,
    placeholder: undefined,
    help,
    accept: (value) => typeof value === "boolean" ? value : undefined,
    rule: "true or false",
    fallback: false,
    parse: (text) => SWITCH_WORDS.get(text.toLowerCase()) ?? text,
  };
}

const SWITCH_WORDS = new Map([["true", true], ["1", true], ["false", false], ["0", false]]);

export type SettingsTable = Readonly<Record<string, Setting>>;
export type Values<Table extends SettingsTable> = {
  readonly [Name in keyof Table]: Table[Name] extends Setting<infer T> ? T : never;
};

/** Returns the flag of a setting without dashes: `kvMb` -> `kv-mb`. */
export function flagOf(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
}

/** Returns the config-file key of a setting: `kvMb` -> `kv_mb`. */
export function keyOf(name: string): string {
  return flagOf(name).replaceAll("-", "_");
}

const HELP_COLUMN = 21;
const HELP_WIDTH = 110;

/** Returns the lines of `--help` for these settings. */
export function helpOf(table: SettingsTable): string {
  return Object.entries(table).map(([name, { short, placeholder, help }]) => {
    const flag = `${short === undefined ? "" : `-${short}, `}--${flagOf(name)}`;
    return helpEntry(`  ${flag}${placeholder === undefined ? "" : ` ${placeholder}`}`, help);
  }).join("");
}

/**
 * Returns the help of one option: the flag, and its text wrapped in the next column, or below a long flag.
 */
export function helpEntry(flag: string, help: string): string {
  const indent = " ".repeat(HELP_COLUMN);
  const lines = [flag.length < HELP_COLUMN ? flag.padEnd(HELP_COLUMN) : `${flag}\n${indent}`];
  for (const word of help.split(" ")) {
    const line = lines.at(-1)!;
    const [used, begun] = [line.length - line.lastIndexOf("\n") - 1, !line.endsWith(" ")];
    if (used + 1 + word.length > HELP_WIDTH) lines.push(indent + word);
    else lines[lines.length - 1] = `${line}${begun ? " " : ""}${word}`;
  }
  return `${lines.join("\n")}\n`;
}

/** The help text of the option `--help`. */
export const HELP_LINE = helpEntry("  --help", "print this text");
