/** The command line of a campaign: description, options with defaults, and the `--help` text from both. */
import { parseArgs } from "@std/cli/parse_args.js";

/** An option of a campaign: description and default. Numbers are integers, 0 or more. */
type Option = readonly [about: string, value: number | string | undefined];
type Value<O extends Option> = O[1] extends number ? number
  : O[1] extends string ? string
  : string | undefined;

export interface CampaignLine<T extends Record<string, Option>> {
  /** The campaign's task name in deno.json. */
  readonly task: string;
  /** Description of the campaign, one or more lines. */
  readonly does: string;
  /** Positional arguments, e.g. `MODEL.gguf`; without it none are allowed. Square brackets mark optional arguments. */
  readonly operands?: string;
  readonly options: T;
}

/** The parsed command line. Exits after `--help`, and with 2 for wrong usage. */
export function campaignLine<T extends Record<string, Option>>(
  line: CampaignLine<T>,
  args: readonly string[] = Deno.args,
): { [K in keyof T]: Value<T[K]> } & { operands: string[] } {
  const read = readLine(line, args);
  if (typeof read === "string") {
    const wrong = read !== "";
    const text = wrong ? `${read}\nSee: deno task ${line.task} --help\n` : helpOf(line);
    (wrong ? Deno.stderr : Deno.stdout).writeSync(new TextEncoder().encode(text));
    Deno.exit(wrong ? 2 : 0);
  }
  return read as { [K in keyof T]: Value<T[K]> } & { operands: string[] };
}

/** Returns the values of a command line, or its error; an empty string for `--help`. */
export function readLine<T extends Record<string, Option>>(
  { operands = "", options }: CampaignLine<T>,
  args: readonly string[],
): Record<string, unknown> | string {
  const unknown: string[] = [];
  const names = Object.keys(options);
  const flags = parseArgs([...args], {
    string: ["_", ...names],
    boolean: ["help"],
    unknown: (_: string, name?: string) => name === undefined || void unknown.push(name),
  });
  if (flags.help) return "";
  if (unknown.length > 0) {
    return `Unknown option --${unknown[0]}: allowed are ${names.map((name) => `--${name}`).join(", ")}`;
  }
  const values: Record<string, unknown> = { operands: flags._ };
  for (const [name, [, initial]] of Object.entries(options)) {
    const text = (flags as Record<string, unknown>)[name] as string | undefined;
    const value = typeof initial === "number" && text !== undefined ? Number(text || NaN) : text ?? initial;
    if (typeof initial === "number" && !(Number.isSafeInteger(value) && value as number >= 0)) {
      return `--${name} must be a whole number, 0 or more (got ${JSON.stringify(text)})`;
    }
    values[name] = value;
  }
  const places = operands.split(" ").filter((place) => place !== "");
  const least = places.filter((place) => !place.startsWith("[")).length;
  const most = operands.includes("…") ? Infinity : places.length;
  if (flags._.length < least) return `${operands} is missing`;
  if (flags._.length > most) return `There is no place for "${flags._[most]}"`;
  return values;
}

/** Returns the text of `--help`. */
export function helpOf<T extends Record<string, Option>>(
  { task, does, operands = "", options }: CampaignLine<T>,
): string {
  const rows = Object.entries(options).map((
    [name, [about, value]],
  ) => [
    `--${name} ${typeof value === "number" ? "N" : "TEXT"}`,
    value === undefined ? about : `${about} (default ${value})`,
  ]);
  const width = rows.reduce((most, [left]) => Math.max(most, left.length), 0);
  const usage = ["Usage: deno task", task, operands, rows.length > 0 ? "[options]" : ""].filter((part) =>
    part !== ""
  );
  const shown = rows.map(([left, right]) => `  ${left.padEnd(width)}   ${right}\n`).join("");
  return `${does}\n\n${usage.join(" ")}\n${shown === "" ? "" : `\n${shown}`}`;
}

/** Prints a line. */
export function say(line: string): void {
  Deno.stdout.writeSync(new TextEncoder().encode(`${line}\n`));
}
