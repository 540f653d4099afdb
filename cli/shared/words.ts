import type { Settings, Words } from "../../engine/api/errors.ts";
import { messageOf } from "../../lib/system_errors.ts";
import { flagOf } from "./settings.ts";

/** Flags whose names differ from the library's option names. */
const FLAGS: Readonly<Partial<Record<keyof Settings, string>>> = {
  promptCache: "--cache-disk",
  library: "--library or COMPY_LIBRARY",
  output: "--out",
  aliases: "--alias",
  format: "--in-format",
  outputFormat: "--out-format",
  allowedHosts: "--allow-host",
  corsOrigins: "--cors",
  apiKeys: "--api-keys, --api-key or COMPY_API_KEY",
};

/** Words settings as command-line flags, for example `--parallel 1 --backend cpu`. Bytes become megabytes. */
export const asFlags: Words = (settings) =>
  Object.entries(settings).map(([name, value]) => {
    const flag = FLAGS[name as keyof Settings] ?? `--${flagOf(name.replace(/Bytes$/, "Mb"))}`;
    if (value === undefined) return flag;
    return `${flag} ${name.endsWith("Bytes") ? value / 1e6 : value ?? "none"}`;
  }).join(" ");

/** Returns an error's message for the command line, with descriptions of system errors. */
export function inFlags(error: unknown): string {
  return error instanceof Error ? messageOf(error, asFlags) : String(error);
}
