import { dirname, resolve as resolvePath } from "@std/path";
import { z } from "zod";
import { show } from "../../lib/serving.ts";
import { flagOf, Flags, UsageError } from "./flags.ts";
import { explained } from "../../lib/system_errors.ts";

/**
 * One setting of a command, described once: its name in a table, in camelCase, makes its flag (`--kv-mb`), its environment
 * variable (`COMPY_KV_MB`) and its key in the config file (`kv_mb`).
 */
export interface Setting<T = unknown> {
  /** What stands for the value in the help; undefined for a switch. */
  readonly placeholder: string | undefined;
  readonly help: string;
  /** Of the value as JSON. */
  readonly schema: z.ZodType;
  /** What the value must be, for whoever got it wrong. */
  readonly rule: string;
  /** The same for whoever wrote one value where there must be a list. */
  readonly listRule?: string;
  readonly fallback: T;
  /** A flag that may be given several times; commas separate the values in the environment. */
  readonly several: boolean;
  /** Never shown. */
  readonly secret: boolean;
  /** It is a path, relative to the config file's folder where it comes from there. */
  readonly path: PathSpec | undefined;
  /** A flag's or variable's text as JSON; the text itself where it is none, so that the schema refuses it. */
  readonly parse: (text: string) => unknown;
}

interface PathSpec {
  /** Values that are none, such as `none`. */
  readonly words?: readonly string[];
  /** The command writes there. */
  readonly writes?: boolean;
}

interface Spec<D> {
  readonly help: string;
  /** What holds where the setting is not given. */
  readonly default?: D;
}

const PLAIN = {
  several: false,
  secret: false,
  path: undefined,
  parse: (text: string): unknown => text,
};

/** A whole number from `min` to `max`. */
export function count<D extends number | undefined = undefined>(
  { min, max, help, default: fallback }: Spec<D> & { readonly min: number; readonly max: number },
): Setting<number | D> {
  return {
    ...PLAIN,
    placeholder: "N",
    help,
    schema: z.number().int().min(min).max(max),
    rule: `a whole number from ${min} to ${max}`,
    fallback: fallback as D,
    parse: (text) => /^\d{1,16}$/.test(text) ? Number(text) : text,
  };
}

/** One of several words. */
export function choice<const T extends string, D extends T | undefined = undefined>(
  placeholder: string,
  words: readonly T[],
  { help, default: fallback }: Spec<D>,
): Setting<T | D> {
  const rule = `one of ${words.join(", ")}`;
  return { ...PLAIN, placeholder, help, schema: z.enum(words), rule, fallback: fallback as D };
}

/** What texts must look like, and that in words. */
interface Look {
  readonly pattern: RegExp;
  readonly rule: string;
}

const ANY_TEXT: Look = { pattern: /^.+$/s, rule: "a text that is not empty" };

/** Any text but the empty one, or one that looks as it should. */
export function text<D extends string | undefined = undefined>(
  placeholder: string,
  { help, default: fallback, secret = false, look = ANY_TEXT }: Spec<D> & {
    readonly secret?: boolean;
    readonly look?: Look;
  },
): Setting<string | D> {
  const schema = z.string().regex(look.pattern);
  return { ...PLAIN, placeholder, help, schema, rule: look.rule, fallback: fallback as D, secret };
}

/** The path of a file or folder. */
export function path<D extends string | undefined = undefined>(
  placeholder: string,
  { words, writes, ...spec }: Spec<D> & PathSpec,
): Setting<string | D> {
  return { ...text(placeholder, spec), path: { words, writes } };
}

/** Several texts; none where the setting is not given. */
export function texts(
  placeholder: string,
  { help, look }: { readonly help: string; readonly look?: Look },
): Setting<readonly string[]> {
  return {
    ...PLAIN,
    placeholder,
    help,
    schema: z.array(z.string().regex((look ?? ANY_TEXT).pattern)).min(1),
    rule: look?.rule ?? "an array of texts that are not empty",
    listRule: look && `an array of ${look.rule}`,
    fallback: [],
    several: true,
  };
}

/** Several paths of files or folders; in the config file one of them may stand alone. */
export function paths(placeholder: string, spec: { readonly help: string }): Setting<readonly string[]> {
  const several = texts(placeholder, spec);
  const schema = z.preprocess((value) => typeof value === "string" ? [value] : value, several.schema);
  return { ...several, schema, rule: "a path, or an array of paths", path: {} };
}

/** Off where it is not given; `--NAME=false` turns off what the config file turns on. */
export function onOff({ help }: { readonly help: string }): Setting<boolean> {
  return {
    ...PLAIN,
    placeholder: undefined,
    help,
    schema: z.boolean(),
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

/** Where a value comes from; what comes later in this list wins. */
export type Source = "default" | "config file" | "environment" | "flag";

/** What holds, and where each value comes from. */
export interface Settings<Table extends SettingsTable> {
  readonly values: Values<Table>;
  readonly sources: Readonly<Record<keyof Table, Source>>;
}

/** The flags of a command that has these settings: `--config` and `--print-config` beside them. */
export function settingsFlags(table: SettingsTable, args: readonly string[]): Flags {
  const named = Object.entries(table).map(([name, setting]) => ({ flag: flagOf(name), ...setting }));
  return new Flags(args, {
    values: [
      "config",
      ...named.filter(({ placeholder }) => placeholder !== undefined).map(({ flag }) => flag),
    ],
    repeated: named.filter(({ several }) => several).map(({ flag }) => flag),
    switches: [
      "print-config",
      ...named.filter(({ placeholder }) => placeholder === undefined).map(({ flag }) => flag),
    ],
  });
}

/**
 * What flags, environment and config file (`--config`, COMPY_CONFIG) say together. Throws UsageError for a wrong value, with
 * where it stands and what is allowed, and for a key that there is not.
 */
export function readSettings<Table extends SettingsTable>(
  table: Table,
  flags: Flags,
  environment: (variable: string) => string | undefined,
): Settings<Table> {
  const file = flags.text("config") ?? (environment("COMPY_CONFIG") || undefined);
  const configured = file === undefined ? {} : readConfig(table, file);
  const values: Record<string, unknown> = {};
  const sources: Record<string, Source> = {};
  for (const [name, setting] of Object.entries(table)) {
    const found = fromFlag(name, setting, flags) ??
      fromEnvironment(name, setting, environment(variableOf(name))) ??
      (name in configured ? { value: configured[name], source: "config file" as const } : undefined) ??
      { value: setting.fallback, source: "default" as const };
    values[name] = found.value;
    sources[name] = found.source;
  }
  return { values: values as Values<Table>, sources: sources as Settings<Table>["sources"] };
}

interface Found {
  readonly value: unknown;
  readonly source: Source;
}

function fromFlag(name: string, setting: Setting, flags: Flags): Found | undefined {
  const flag = flagOf(name);
  const given = setting.placeholder === undefined ? flags.switched(flag) : flags.texts(flag);
  if (given === undefined || given.length === 0) return undefined;
  return { value: read(setting, given, `--${flag}`), source: "flag" };
}

/** An empty variable is as good as none. */
function fromEnvironment(name: string, setting: Setting, given: string | undefined): Found | undefined {
  if (!given) return undefined;
  const words = setting.several ? given.split(",").map((word) => word.trim()) : [given];
  return { value: read(setting, words, variableOf(name)), source: "environment" };
}

function read(setting: Setting, words: readonly string[], where: string): unknown {
  return setting.several
    ? checked(setting, words, where)
    : checked(setting, setting.parse(words[0]), where, words[0]);
}

/** The values of a config file, by their names in the table. */
function readConfig(table: SettingsTable, file: string): Record<string, unknown> {
  const content = parseConfig(file);
  const names = new Map(Object.keys(table).map((name) => [keyOf(name), name]));
  const values: Record<string, unknown> = {};
  for (const [key, value] of Object.entries(content)) {
    const name = names.get(key);
    if (name === undefined) {
      throw new UsageError(
        `There is no setting ${show(key)} (in "${file}"); there are ${[...names.keys()].join(", ")}`,
      );
    }
    const setting = table[name];
    values[name] = absolute(setting, checked(setting, value, `"${key}" in "${file}"`), dirname(file));
  }
  return values;
}

function parseConfig(file: string): object {
  let json: string;
  try {
    json = Deno.readTextFileSync(file);
  } catch (error) {
    throw explained(`Cannot read the config file "${file}"`, error);
  }
  let content: unknown;
  try {
    content = JSON.parse(json);
  } catch (error) {
    throw new UsageError(`The config file "${file}" is not valid JSON: ${(error as Error).message}`);
  }
  if (typeof content === "object" && content !== null && !Array.isArray(content)) return content;
  throw new UsageError(`The config file "${file}" must be a JSON object (got ${show(content)})`);
}

function checked(setting: Setting, value: unknown, where: string, written = value): unknown {
  const { success, data } = setting.schema.safeParse(value);
  if (success) return data;
  const got = setting.secret ? "" : ` (got ${show(written)})`;
  const rule = Array.isArray(value) ? setting.rule : setting.listRule ?? setting.rule;
  throw new UsageError(`${where} must be ${rule}${got}`);
}

function absolute({ path }: Setting, value: unknown, folder: string): unknown {
  if (path === undefined) return value;
  const resolved = (text: string) => path.words?.includes(text) ? text : resolvePath(folder, text);
  return Array.isArray(value) ? value.map(resolved) : resolved(value as string);
}

/** The paths that the command writes to. */
export function pathsWritten<Table extends SettingsTable>(table: Table, values: Values<Table>): string[] {
  return Object.entries(table).flatMap(([name, { path }]) => {
    const value = values[name] as string | undefined;
    return path?.writes && value !== undefined && !path.words?.includes(value) ? [value] : [];
  });
}

/** What holds and where it comes from, a setting a line, in the config file's names; or the same as JSON. */
export function describeSettings<Table extends SettingsTable>(
  table: Table,
  { values, sources }: Settings<Table>,
  json: boolean,
): string {
  const rows = Object.entries(table).map(([name, { secret }]) => {
    const value: unknown = values[name] ?? null;
    return { key: keyOf(name), value: secret && value !== null ? "(hidden)" : value, source: sources[name] };
  });
  if (json) {
    const fields = rows.map(({ key, value, source }) => [key, { value, source }]);
    return `${JSON.stringify(Object.fromEntries(fields), undefined, 2)}\n`;
  }
  const shown = rows.map(({ key, value, source }) => [key, JSON.stringify(value), source]);
  const widths = [0, 1].map((column) => Math.max(...shown.map((row) => row[column].length)));
  return shown.map(([key, value, source]) =>
    `${key.padEnd(widths[0])}  ${value.padEnd(widths[1])}  ${source}\n`
  ).join("");
}

const HELP_COLUMN = 21;
const HELP_WIDTH = 110;

/** The lines of `--help` on these settings. */
export function helpOf(table: SettingsTable): string {
  return Object.entries(table).map(([name, { placeholder, help }]) => {
    const flag = `  --${flagOf(name)}${placeholder === undefined ? "" : ` ${placeholder}`}`;
    return helpEntry(flag, help);
  }).join("");
}

/** One option: the flag in its column, its text wrapped beside it, or below where the flag is too long. */
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

/** `kvMb` -> `kv_mb`. */
function keyOf(name: string): string {
  return flagOf(name).replaceAll("-", "_");
}

/** `kvMb` -> `COMPY_KV_MB`. */
function variableOf(name: string): string {
  return `COMPY_${keyOf(name).toUpperCase()}`;
}
