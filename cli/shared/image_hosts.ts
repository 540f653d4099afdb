import type { FetchImage } from "../../lib/batch/image_hosts.ts";
import { text } from "./settings.ts";
import { DENO_VERSION } from "../../package.ts";
import { asCalled } from "./start.ts";

export const IMAGE_HOSTS = text("HOST,…", {
  look: { pattern: /^[a-z0-9.-]+(,[a-z0-9.-]+)*$/i, rule: "host names, separated by commas" },
  help:
    "fetch images at https URLs from these hosts; the hosts' addresses must be public (default: such URLs are refused)",
});

/** Returns the hosts that the option names. */
export function imageHosts(given: string | undefined): readonly string[] {
  return given?.split(",") ?? [];
}

/**
 * Returns a function that fetches images from the hosts, or undefined without hosts. Throws an Error if this process may
 * not connect to a host. The error shows the result of `command`: a command line with permission for the hosts.
 */
export async function fetcherOf(
  given: string | undefined,
  command: (hosts: string) => string,
): Promise<FetchImage | undefined> {
  const hosts = imageHosts(given);
  if (hosts.length === 0) return undefined;
  const barred = hosts.find((host) => !mayReach(host));
  if (barred !== undefined) {
    throw new Error(
      `Cannot fetch images: this task may not reach ${barred}. Allow it: ${
        asCalled(command(hosts.join(",")))
      }`,
    );
  }
  if (Deno.version.deno.localeCompare(DENO_VERSION, "en", { numeric: true }) < 0) {
    // Deno 2.9.0 ends the process when a connection is closed early.
    throw new Error(`Cannot fetch images with Deno ${Deno.version.deno}: use Deno ${DENO_VERSION} or newer`);
  }
  const { imageFetcher } = await import("../../lib/batch/image_hosts.ts"); // loads Node's HTTP client
  return imageFetcher(hosts);
}

/** Returns whether this process may connect to the host by https. */
export function mayReach(host: string): boolean {
  return Deno.permissions.querySync({ name: "net", host: `${host}:443` }).state === "granted";
}
