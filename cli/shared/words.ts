import type { Settings, Words } from "../../engine/api/errors.ts";
import { messageOf } from "../../lib/system_errors.ts";
import { flagOf } from "./flags.ts";

/** Flags that are not named like the library's option. */
const NAMES: Readonly<Partial<Record<keyof Settings, string>>> = {
  kvBytes: "kvMb",
  memoryBytes: "memoryMb",
  promptCache: "cacheDisk",
};

/** Words settings as flags, for example `--parallel 1 --backend cpu`. */
export const asFlags: Words = (settings) =>
  Object.entries(settings).map(([name, value]) => {
    const flag = `--${flagOf(NAMES[name as keyof Settings] ?? name)}`;
    if (value === undefined) return flag;
    return `${flag} ${name.endsWith("Bytes") ? value / 1e6 : value}`;
  }).join(" ");

/** Returns what to tell a person on the command line about an error. */
export function told(error: unknown): string {
  return error instanceof Error ? messageOf(error, asFlags) : String(error);
}
