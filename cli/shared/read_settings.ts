/** Reads a command's settings from its flags, the environment and a config file. */
import { dirname, resolve as resolvePath } from "@std/path";
import { dashed, type FlagNames, Flags, UsageError } from "./flags.ts";
import { flagOf, helpEntry, keyOf, type Setting, type SettingsTable, type Values } from "./settings.ts";
import { out } from "./terminal.ts";
import { explained } from "../../lib/system_errors.ts";

/** Sources of a setting's value. A later one overrides an earlier one. */
export type Source = "default" | "config file" | "environment" | "flag";

/** The values of settings, and the source of each. */
export interface Settings<Table extends SettingsTable> {
  readonly values: Values<Table>;
  readonly sources: Readonly<Record<keyof Table, Source>>;
}

/** Parses a command's words by its settings. `words` names other words and flags of the command. */
export function settingsFlags(
  table: SettingsTable,
  args: readonly string[],
  { values = [], switches = [], ...words }: FlagNames = {},
): Flags {
  const named = Object.entries(table).flatMap(([name, setting]) =>
    namesOf(name, setting).map((flag) => ({ flag, ...setting }))
  );
  const flagsOf = (which: (setting: Setting) => boolean) => named.filter(which).map(({ flag }) => flag);
  return new Flags(args, {
    ...words,
    values: [...values, ...flagsOf(({ placeholder }) => placeholder !== undefined)],
    repeated: flagsOf(({ several }) => several),
    switches: [...switches, ...flagsOf(({ placeholder }) => placeholder === undefined)],
  });
}

/** Flags of a command that also reads a config file and the environment. */
export const CONFIG_FLAGS: FlagNames = { values: ["config"], switches: ["print-config"] };

/** The `--help` lines of the config file's flags. */
export const CONFIG_HELP =
  helpEntry("  --config FILE", "a JSON file of settings; its keys are the options' names with _ for -") +
  helpEntry(
    "  --print-config",
    "print each setting and where its value comes from, then exit; with --json as JSON",
  );

/**
 * Returns the values of a command's settings, as set by flags. With `environment`, variables and the config file
 * (`--config`, COMPY_CONFIG) set the values that no flag sets. Throws UsageError for an unknown key or a value that is
 * not allowed; the message names the source and the allowed values.
 */
export function readSettings<Table extends SettingsTable>(
  table: Table,
  flags: Flags,
  environment?: (variable: string) => string | undefined,
): Settings<Table> {
  const file = environment && (flags.texts("config")[0] ?? (environment("COMPY_CONFIG") || undefined));
  const configured = file === undefined ? {} : readConfig(table, file);
  const values: Record<string, unknown> = {};
  const sources: Record<string, Source> = {};
  for (const [name, setting] of Object.entries(table)) {
    const found = fromFlag(name, setting, flags) ??
      fromEnvironment(name, setting, environment?.(variableOf(name))) ??
      (name in configured ? { value: configured[name], source: "config file" as const } : undefined) ??
      { value: setting.fallback, source: "default" as const };
    values[name] = found.value;
    sources[name] = found.source;
  }
  return { values: values as Values<Table>, sources: sources as Settings<Table>["sources"] };
}

/** The values of a command's settings, and its words that are not options. */
export type Given<Table extends SettingsTable> = Settings<Table> & Pick<Flags, "json" | "word" | "operand">;

/** Reads the words of a command. If the words ask for help, prints the help and returns undefined. Throws UsageError. */
export function readWords<Table extends SettingsTable>(
  table: Table,
  args: readonly string[],
  help: string,
  { print = out, ...words }: Pick<FlagNames, "operands" | "text"> & {
    readonly print?: (text: string) => void;
  } = {},
): Given<Table> | undefined {
  const flags = settingsFlags(table, args, words);
  if (flags.help) return void print(help);
  const { json, word } = flags;
  return { ...readSettings(table, flags), json, word, operand: (name) => flags.operand(name) };
}

interface Found {
  readonly value: unknown;
  readonly source: Source;
}

function fromFlag(name: string, setting: Setting, flags: Flags): Found | undefined {
  const given = namesOf(name, setting).map((flag) => ({
    flag,
    texts: setting.placeholder === undefined ? flags.switched(flag) : flags.texts(flag),
  })).filter(({ texts }) => texts.length > 0);
  if (given.length > 1) {
    throw new UsageError(`Give one of ${given.map(({ flag }) => dashed(flag)).join(" and ")}`);
  }
  return given.length === 0
    ? undefined
    : { value: read(setting, given[0].texts, dashed(given[0].flag)), source: "flag" };
}

/** Returns the flags that set the setting. */
function namesOf(name: string, { short }: Setting): string[] {
  return short === undefined ? [flagOf(name)] : [short, flagOf(name)];
}

/** Returns a setting's value from the environment. An empty variable counts as unset. */
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

/** Returns the values of a config file by their names in the table. */
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

/** Returns the accepted value. Throws UsageError with the setting's rule, and `where` as the place. */
export function checked(
  setting: Pick<Setting, "accept" | "rule" | "listRule"> & Partial<Setting>,
  value: unknown,
  where: string,
  written = value,
): unknown {
  const accepted = setting.accept(value);
  if (accepted !== undefined) return accepted;
  const got = setting.secret ? "" : ` (got ${show(written)})`;
  const rule = Array.isArray(value) ? setting.rule : setting.listRule ?? setting.rule;
  throw new UsageError(`${where} must be ${rule}${got}`);
}

function absolute({ path }: Setting, value: unknown, folder: string): unknown {
  if (path === undefined) return value;
  const resolved = (text: string) => {
    if (path.words?.includes(text)) return text;
    const at = path.named ? text.indexOf("=") + 1 : 0;
    return text.slice(0, at) + resolvePath(folder, text.slice(at));
  };
  return Array.isArray(value) ? value.map(resolved) : resolved(value as string);
}

/** Returns the paths that the command writes to. */
export function pathsWritten<Table extends SettingsTable>(table: Table, values: Values<Table>): string[] {
  return Object.entries(table).flatMap(([name, { path }]) => {
    const value = values[name] as string | undefined;
    return path?.writes && value !== undefined && !path.words?.includes(value) ? [value] : [];
  });
}

/** Returns one setting per line under its config-file name, with value and source; or the same as JSON. */
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

/** Returns the name of a setting's environment variable: `kvMb` -> `COMPY_KV_MB`. */
function variableOf(name: string): string {
  return `COMPY_${keyOf(name).toUpperCase()}`;
}

/** Returns a value for a message, shortened if it is long. */
export function show(value: unknown): string {
  if (typeof value === "string") return JSON.stringify(value.length > 60 ? `${value.slice(0, 60)}…` : value);
  if (Array.isArray(value)) return `an array of ${value.length}`;
  return typeof value === "object" && value !== null ? "an object" : String(value);
}
