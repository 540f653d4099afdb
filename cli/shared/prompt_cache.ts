import type { EngineLoadOptions } from "../../lib/model.ts";
import { quoted } from "./start.ts";
import { explained } from "../../lib/system_errors.ts";

/** Default of `--cache-disk-mb`, in units of 10^6 bytes. */
export const DEFAULT_CACHE_MB = 10_000;
export const MAX_CACHE_MB = 2 ** 30;

interface Asked {
  readonly cacheDisk?: string;
  readonly cacheDiskMb?: number;
  readonly cacheDiskEager?: boolean;
}

/**
 * Returns the options of the prompt cache; undefined without `--cache-disk`. Throws if the folder is not
 * writable.
 */
export function promptCache(
  { cacheDisk: folder, cacheDiskMb = DEFAULT_CACHE_MB, cacheDiskEager: eager }: Asked,
): EngineLoadOptions["promptCache"] {
  if (folder === undefined) return undefined;
  checkFolder(folder);
  return { folder, bytes: 1e6 * cacheDiskMb, eager };
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
