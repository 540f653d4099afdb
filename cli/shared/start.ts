/** How compy was started, and what a user types to start a command. An old Deno reads this file too. */
import { fromFileUrl, join } from "@std/path";
import { DENO_VERSION, FROM_SOURCE, installedWords, NAME, OLDEST_DENO, shipped } from "../../package.ts";

/** The launcher of `deno task link` puts this in front of the user's words. */
export const LINKED = "--linked";

/** Where and how a command was started from a checkout. */
export interface Start {
  readonly linked: boolean;
  /** The caller's folder. */
  readonly caller: string;
  /** The checkout's folder. */
  readonly root: string;
}

/** Whether `deno task link` made the command that started this process. */
export function isLinked(): boolean {
  return FROM_SOURCE && Deno.args[0] === LINKED;
}

/** The text with its commands (`deno task serve`) as the user can paste them where they stand. */
export function asCalled(text: string): string {
  if (!FROM_SOURCE || !text.includes("deno ")) return text;
  const root = fromFileUrl(shipped("../")).replace(/\/$/, "");
  return calledFrom(text, { linked: isLinked(), caller: Deno.cwd(), root });
}

/** As asCalled, for any start. Outside of the checkout's folder a task needs the checkout's configuration. */
export function calledFrom(text: string, { linked, caller, root }: Start): string {
  const called = linked ? installedWords(text) : text;
  if (`${caller}/`.startsWith(`${root}/`)) return called;
  const config = quoted(join(root, "deno.json"));
  const main = quoted(join(root, "main.ts"));
  return called
    .replace(/\bdeno task (?:-q )?(?=[\w$])/g, () => `deno task --config ${config} `)
    .replace(/ main\.ts (?=[a-z$-])/g, () => ` ${main} `);
}

/** A word as a shell reads it back. */
export function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

/** Why these words cannot be run, and what to run instead, in one line; undefined where they can. */
export function obstacle(
  words: readonly string[],
  { deno, mayRead, isCommand }: {
    deno: string;
    mayRead: boolean;
    isCommand: (word: string) => boolean;
  },
): string | undefined {
  const [major, minor] = deno.split(".").map(Number);
  const [oldestMajor, oldestMinor] = OLDEST_DENO.split(".").map(Number);
  if (major < oldestMajor || (major === oldestMajor && minor < oldestMinor)) {
    return `${NAME} needs Deno ${OLDEST_DENO} or newer (this is ${deno}): run deno upgrade, or ` +
      `npx -y deno@${DENO_VERSION} in place of deno`;
  }
  const at = words.findIndex(isCommand);
  // Help and usage errors need no permissions.
  if (mayRead || at < 0) return undefined;
  const others = words.filter((_, i) => i !== at).map(quoted);
  // deno-lint-ignore no-control-regex
  const rest = others.some((word) => /[\x00-\x1f]/.test(word)) ? ["…"] : others;
  return `Deno gave no permissions to ${words[at]}. Run it as a task, which has those it needs: ` +
    asCalled(["deno task", words[at], ...rest].join(" "));
}
