import { type CacheReport, reportCache, wipeCache } from "../lib/prompt_folder.ts";
import { Flags, UsageError } from "./shared/flags.ts";
import { explained } from "../lib/system_errors.ts";
import { out } from "./shared/terminal.ts";

const HELP = `Look into a folder of prompts (--cache-disk), or empty it.

Usage: deno task cache VERB DIR [--json]

  list   how much is there, and when it was used; a server may be using it
  wipe   remove all prompts, of all models and keys; refused while a server or a job uses the folder

  --json  {"parts","bytes","oldest","newest","in_use"}; the times in ISO 8601, or null
  --help  this text

Names and contents tell nothing of the texts without the keys that they were made with, so there is nothing to list by text.
Exit code: 0 done, 1 failed, 2 wrong usage.
`;

const VERBS = { list: reportCache, wipe: wipeCache };

/** `cache …` of the command line. Returns the exit code. */
export async function cacheCommand([verb, ...args]: readonly string[]): Promise<number> {
  if (verb === undefined || verb === "--help" || verb === "-h") {
    out(HELP);
    return 0;
  }
  if (!isVerb(verb)) throw new UsageError(`Invalid verb "${verb}": must be list or wipe`);
  const flags = new Flags(args, { operands: ["DIR"] });
  if (flags.help) {
    out(HELP);
    return 0;
  }
  const folder = flags.operand("DIR");
  let report: CacheReport;
  try {
    report = await VERBS[verb](folder);
  } catch (error) {
    throw explained(`Cannot ${verb} the prompts in "${folder}"`, error);
  }
  out(flags.json ? `${JSON.stringify(asJson(report))}\n` : `${asText(folder, verb, report)}\n`);
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
