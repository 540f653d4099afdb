import { hash } from "node:crypto";
import type { Wording } from "../engine/api/errors.ts";

/**
 * The options that a job adds to each row of its input file, under their command-line names, with their values as text.
 * The journal stores them, so that a run with other options can report the difference.
 */
export type Asked = Readonly<Record<string, string>>;

/** Maximum characters of an option's value in a journal header; longer values are shortened. */
const SHOWN = 60;

/** Returns an option's value as the journal stores it. Two stored values are equal exactly when the originals are. */
export function askedValue(text: string): string {
  if (text.length <= SHOWN) return text;
  const digest = hash("sha256", text).slice(0, 12);
  return `${text.slice(0, SHOWN).toWellFormed()}… (${text.length} characters, SHA-256 ${digest}…)`;
}

/** Returns the options that differ, with both values; undefined if none differs. */
export function askedDifference(before: Asked, now: Asked): Wording | undefined {
  const names = [...new Set([...Object.keys(before), ...Object.keys(now)])];
  const differences = names.filter((name) => before[name] !== now[name]).flatMap((name, i) => [
    ...(i === 0 ? [] : [", "]),
    { [optionOf(name)]: undefined },
    ` ${shown(before[name])} (now ${shown(now[name])})`,
  ]);
  return differences.length > 0 ? differences : undefined;
}

/** Returns the library's name of an option that a journal stores under its command-line name. */
function optionOf(name: string): string {
  if (name === "--in-format") return "format";
  return name.replace(/^--/, "").replace(/-(\w)/g, (_, letter: string) => letter.toUpperCase());
}

function shown(value: string | undefined): string {
  return value === undefined ? "not given" : JSON.stringify(value);
}
