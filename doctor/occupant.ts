import type { Occupant, Wanted } from "./types.ts";

type Address = Pick<Wanted, "host" | "port" | "unix">;

/** Milliseconds in which a server must identify itself. */
const PATIENCE_MS = 1000;
/** Number of first bytes of an answer that contain compy's header. */
const HEAD_BYTES = 4096;

/** Returns the program that answers at an address. Throws if no program can listen there. */
export async function occupantOf(address: Address): Promise<Occupant> {
  try {
    await tryListening(address);
    return "nobody";
  } catch (error) {
    if (!(error instanceof Deno.errors.AddrInUse)) throw error;
  }
  return await isCompy(address) ? "compy" : "another program";
}

/**
 * Tries to listen, and leaves nothing behind. A socket left by a killed server does not block the address.
 */
async function tryListening({ host, port, unix }: Address): Promise<void> {
  if (unix === undefined) return Deno.listen({ hostname: host, port }).close();
  if (await isStale(unix)) return;
  Deno.listen({ transport: "unix", path: unix }).close();
  await Deno.remove(unix).catch(() => {});
}

async function isStale(path: string): Promise<boolean> {
  try {
    if (!(await Deno.lstat(path)).isSocket) return false;
    (await Deno.connect({ transport: "unix", path })).close();
    return false;
  } catch (error) {
    return error instanceof Deno.errors.ConnectionRefused;
  }
}

/** Requests the server's health, and accepts any status. */
async function isCompy({ host, port, unix }: Address): Promise<boolean> {
  try {
    using connection = unix === undefined
      ? await Deno.connect({ hostname: reachable(host), port })
      : await Deno.connect({ transport: "unix", path: unix });
    const timer = setTimeout(() => connection.close(), PATIENCE_MS);
    try {
      const request = "GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
      await connection.write(new TextEncoder().encode(request));
      return /^x-request-id:/mi.test(await headOf(connection));
    } finally {
      clearTimeout(timer);
    }
  } catch {
    return false;
  }
}

async function headOf(connection: Deno.Conn): Promise<string> {
  const buffer = new Uint8Array(HEAD_BYTES);
  let head = "";
  while (head.length < HEAD_BYTES && !head.includes("\r\n\r\n")) {
    const read = await connection.read(buffer);
    if (read === null) break;
    head += new TextDecoder().decode(buffer.subarray(0, read));
  }
  return head;
}

/** Returns an address for reaching a server that listens on all interfaces. */
function reachable(host: string): string {
  return host === "0.0.0.0" ? "127.0.0.1" : host === "::" || host === "[::]" ? "::1" : host;
}
