import { type CacheReport, reportCache, wipeCache } from "../lib/prompt_folder.ts";
import { UsageError } from "./shared/flags.ts";
import { readWords } from "./shared/read_settings.ts";
import { HELP_LINE, helpOf, onOff } from "./shared/settings.ts";
import { explained } from "../lib/system_errors.ts";
import { out } from "./shared/terminal.ts";
import { escaped, jsonLine } from "./shared/escape.ts";

const OPTIONS = {
  json: onOff({
    help:
      'print one JSON object: {"parts","bytes","oldest","newest","in_use"}; times are in ISO 8601, or null',
  }),
};

const HELP = `Show or empty a folder of stored prompts (--cache-disk).

Usage: deno task cache VERB DIR [--json]

  list               show its size and when it was used; works while a server uses it
  wipe               remove all prompts, of all models and keys; refused while a server or a job uses the folder

${helpOf(OPTIONS)}${HELP_LINE}
Names and contents reveal nothing about the texts without the keys that they were made with, so texts cannot be listed.
Exit code: 0 done, 1 failed, 2 wrong usage.
`;

const VERBS = { list: reportCache, wipe: wipeCache };

/** Runs `cache …` of the command line. Returns the exit code. */
export async function cacheCommand([verb, ...args]: readonly string[]): Promise<number> {
  if (verb === undefined || verb === "--help" || verb === "-h") {
    out(HELP);
    return 0;
  }
  if (!isVerb(verb)) throw new UsageError(`Invalid verb "${verb}": must be list or wipe`);
  const given = readWords(OPTIONS, args, HELP, { operands: ["DIR"] });
  if (given === undefined) return 0;
  const folder = given.operand("DIR");
  let report: CacheReport;
  try {
    report = await VERBS[verb](folder);
  } catch (error) {
    throw explained(`Cannot ${verb} the prompts in "${folder}"`, error);
  }
  out(given.json ? jsonLine(asJson(report)) : `${escaped(asText(folder, verb, report))}\n`);
  return 0;
}

function isVerb(word: string): word is keyof typeof VERBS {
  return Object.hasOwn(VERBS, word);
}

function asJson({ parts, bytes, oldest, newest, inUse }: CacheReport) {
  return { parts, bytes, oldest: iso(oldest), newest: iso(newest), in_use: inUse };
}

function asText(folder: string, verb: string, { parts, bytes, oldest, newest, inUse }: CacheReport): string {
  const sum = `${parts} KV block${parts === 1 ? "" : "s"} and states, ${(bytes / 1e6).toFixed(1)} MB`;
  if (verb === "wipe") return `${folder}: removed ${sum}`;
  const used = parts === 0 ? "" : `; used between ${iso(oldest)} and ${iso(newest)}`;
  return `${folder}: ${sum}${used}${inUse ? "; a process writes to it now" : ""}`;
}

function iso(time: number | undefined): string | null {
  return time === undefined ? null : new Date(time).toISOString();
}
