import { dirname } from "@std/path";
import { quoted } from "../shared/start.ts";
import type { HttpServer } from "../../lib/serving.ts";

/** The address of a server. */
export interface Address {
  readonly host: string;
  readonly port: number;
  /** Path of a Unix socket, instead of host and port. */
  readonly unix: string | undefined;
}

/**
 * Throws if the address cannot be used, before a large model is loaded. Removes a socket that has no listener
 * any more.
 */
export async function checkAddress(address: Address): Promise<void> {
  const { host, port, unix } = address;
  if (unix !== undefined) await removeStale(unix);
  listening(address, () => {
    (unix === undefined
      ? Deno.listen({ hostname: host, port })
      : Deno.listen({ transport: "unix", path: unix })).close();
  });
}

async function removeStale(path: string): Promise<void> {
  let found: Deno.FileInfo;
  try {
    found = Deno.lstatSync(path);
  } catch {
    return; // listen() reports the problem with the path
  }
  if (!found.isSocket) throw new Error(`Cannot listen on "${path}": something other than a socket is there`);
  try {
    (await Deno.connect({ transport: "unix", path })).close();
  } catch (error) {
    if (!(error instanceof Deno.errors.ConnectionRefused)) return;
    Deno.removeSync(path);
    return;
  }
  throw new Error(
    `Cannot listen on "${path}": another server listens there; choose another path with --unix`,
  );
}

/** Returns the result of `action`. An error says what to do if the address cannot be used. */
export function listening<T>({ host, port, unix }: Address, action: () => T): T {
  try {
    return action();
  } catch (error) {
    const reason = unix === undefined ? tcpReason(error) : unixReason(error, unix);
    if (reason === undefined) throw error;
    throw new Error(`Cannot listen on ${unix === undefined ? `${host}:${port}` : `"${unix}"`}: ${reason}`);
  }
}

function tcpReason(error: unknown): string | undefined {
  if (error instanceof Deno.errors.AddrInUse) {
    return "the port is in use; choose another with --port (0 takes any free one)";
  }
  if (error instanceof Deno.errors.NotCapable) {
    return "this task may listen on 127.0.0.1, localhost, 0.0.0.0, [::1] and [::] only; choose one of them " +
      "with --host, or add the address to the permissions in deno.json";
  }
  if (error instanceof Deno.errors.AddrNotAvailable) {
    return "this machine has no such address; choose another with --host";
  }
  if (error instanceof Deno.errors.PermissionDenied) {
    return "this user may not; choose a port from 1024 with --port";
  }
  return undefined;
}

function unixReason(error: unknown, path: string): string | undefined {
  if (error instanceof Deno.errors.NotCapable) {
    return "this task may listen at /run/compy/compy.sock only. Allow it with deno run -P=serve " +
      `--allow-net=${quoted(`unix:${path}`)} --allow-write=${quoted(`${dirname(path)},.compy`)} ` +
      `main.ts serve --unix ${quoted(path)}`;
  }
  if (error instanceof Deno.errors.NotFound) return "there is no such folder";
  if (error instanceof Deno.errors.PermissionDenied) return "this user may not write to that folder";
  if (error instanceof Deno.errors.AddrInUse) return "something is there already";
  return undefined;
}

/** Returns the URL for people and clients: `http://HOST:PORT` or `unix:PATH`. */
export function urlOf({ hostname, port }: HttpServer, { unix }: Address): string {
  if (unix !== undefined) return `unix:${unix}`;
  return `http://${hostname.includes(":") ? `[${hostname}]` : hostname}:${port}`;
}
