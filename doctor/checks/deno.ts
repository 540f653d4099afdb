import type { Finding, World } from "../types.ts";

/** The oldest Deno version that compy is tested with. */
export const OLDEST_DENO = "2.9.6";

/** Checks Deno's version. */
export function checkDeno({ denoVersion, os, arch }: Pick<World, "denoVersion" | "os" | "arch">): Finding {
  const figures = { version: denoVersion, os, arch };
  const found = `${denoVersion} on ${os} ${arch}`;
  if (!isOlder(denoVersion, OLDEST_DENO)) return { status: "ok", found, figures };
  return {
    status: "wrong",
    found: `${found}; compy needs ${OLDEST_DENO} or newer`,
    advice: `deno upgrade ${OLDEST_DENO}, or the deno package of npm`,
    figures,
  };
}

function isOlder(version: string, than: string): boolean {
  return version.localeCompare(than, "en", { numeric: true }) < 0;
}
