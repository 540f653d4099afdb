import { hash } from "node:crypto";

/**
 * What a job asks of each row besides what is in its file: options as the command line calls them, and their values in words. It
 * stands in the journal, so that a run that asks something else can be told what differs.
 */
export type Asked = Readonly<Record<string, string>>;

/** Longer values are shortened: a journal's header has room for a few hundred characters of each. */
const SHOWN = 60;

/** A value as the journal records it: equal exactly where the values are. */
export function askedValue(text: string): string {
  if (text.length <= SHOWN) return text;
  const digest = hash("sha256", text).slice(0, 12);
  return `${text.slice(0, SHOWN).toWellFormed()}… (${text.length} characters, SHA-256 ${digest}…)`;
}

/** What of `now` differs from `before`, with both values; undefined where nothing does. */
export function askedDifference(before: Asked, now: Asked): string | undefined {
  const names = [...new Set([...Object.keys(before), ...Object.keys(now)])];
  const differences = names.filter((name) => before[name] !== now[name])
    .map((name) => `${name} ${shown(before[name])} (now ${shown(now[name])})`);
  return differences.length > 0 ? differences.join(", ") : undefined;
}

function shown(value: string | undefined): string {
  return value === undefined ? "not given" : JSON.stringify(value);
}
