import type { EngineLoadOptions } from "../../lib/model.ts";
import { quoted } from "../shared/start.ts";
import type { Flags } from "../shared/flags.ts";
import { explained } from "../../lib/system_errors.ts";

/** Prompts that the disk keeps without `--cache-disk-mb`, in units of 10^6 bytes. */
export const DEFAULT_CACHE_MB = 10_000;
export const MAX_CACHE_MB = 2 ** 30;

export const CACHE_FLAGS = ["cache-disk", "cache-disk-mb"];
export const CACHE_SWITCHES = ["cache-disk-eager"];

export const CACHE_HELP =
  `  --cache-disk DIR keep prompts there, so that a later process need not compute them (docs/PROMPT_CACHE.md)
  --cache-disk-mb N
                   what they may take, in units of 10^6 bytes (default ${DEFAULT_CACHE_MB}); what was used least recently goes
  --cache-disk-eager
                   write prompts at once, and not only when they come a second time`;

interface Asked {
  readonly folder: string | undefined;
  readonly megabytes: number | undefined;
  readonly eager: boolean;
  readonly keepMs?: number;
}

/** Where prompts are kept; undefined where they are not. Throws where nothing can be written there. */
export function promptCache({ folder, megabytes, eager, keepMs }: Asked): EngineLoadOptions["promptCache"] {
  if (folder === undefined) return undefined;
  checkFolder(folder);
  return { folder, bytes: 1e6 * (megabytes ?? DEFAULT_CACHE_MB), eager, keepMs };
}

/** The same from a command's flags. */
export function promptCacheOption(flags: Flags): EngineLoadOptions["promptCache"] {
  return promptCache({
    folder: flags.text("cache-disk"),
    megabytes: flags.count("cache-disk-mb", 1, MAX_CACHE_MB),
    eager: flags.is("cache-disk-eager"),
  });
}

function checkFolder(path: string): void {
  const what = `Cannot keep prompts in "${path}"`;
  if (Deno.permissions.querySync({ name: "write", path }).state !== "granted") {
    throw new Error(
      `${what}: this task may write to .compy only. Choose a folder in there, such as .compy/prompts, or allow it: ` +
        `deno run -P=serve --allow-write=${quoted(path)} main.ts serve --cache-disk ${quoted(path)}`,
    );
  }
  try {
    Deno.mkdirSync(path, { recursive: true, mode: 0o700 });
  } catch (error) {
    throw explained(what, error, "choose another folder with --cache-disk");
  }
}
