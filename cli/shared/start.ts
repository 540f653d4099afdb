/**
 * Tells how compy was started, and how a user starts its commands. Old versions of Deno must be able to read this file.
 */
import { fromFileUrl, join } from "@std/path";
import { DENO_VERSION, FROM_SOURCE, installedWords, NAME, OLDEST_DENO, shipped } from "../../package.ts";

/** Word that the launcher of `deno task link` puts before the user's words. */
export const LINKED = "--linked";

/** How the user started a command from a checkout. */
export interface Start {
  readonly linked: boolean;
  /** The folder of the caller. */
  readonly caller: string;
  /** The folder of the checkout. */
  readonly root: string;
}

/** Whether `deno task link` made the command that started this process. */
export function isLinked(): boolean {
  return FROM_SOURCE && Deno.args[0] === LINKED;
}

/** Returns the text with its commands (`deno task serve`) in a form that the user can paste. */
export function asCalled(text: string): string {
  if (!FROM_SOURCE || !text.includes("deno ")) return text;
  const root = fromFileUrl(shipped("../")).replace(/\/$/, "");
  return calledFrom(text, { linked: isLinked(), caller: Deno.cwd(), root });
}

/**
 * Returns the text as asCalled does, for any start. Outside the checkout's folder, a task needs the checkout's
 * configuration.
 */
export function calledFrom(text: string, { linked, caller, root }: Start): string {
  const called = linked ? installedWords(text) : text;
  if (`${caller}/`.startsWith(`${root}/`)) return called;
  const config = quoted(join(root, "deno.json"));
  const main = quoted(join(root, "main.ts"));
  return called
    .replace(/\bdeno task (?:-q )?(?=[\w$])/g, () => `deno task --config ${config} `)
    .replace(/ main\.ts (?=[a-z$-])/g, () => ` ${main} `);
}

/** Returns a word quoted for a shell. */
export function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

/** Returns one line that says why the words cannot run and what to run instead; undefined if they can. */
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
