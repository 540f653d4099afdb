/** Where to listen: TCP, or a Unix socket that only this user may use. */
export type ListenAddress =
  | { readonly hostname: string; readonly port: number }
  | { readonly unix: string };

/**
 * Maximum connections in the system's queue; the system has its own limit too. If it is full, a client's data is
 * dropped and resent seconds later, so the connection seems to send nothing.
 */
const BACKLOG = 4096;
/** The umask that denies other users any access. */
const PRIVATE = 0o177;

/** Removes a Unix socket's file. Deno removes it only if no accept() was pending. */
export function removeSocket(address: ListenAddress): void {
  if (!("unix" in address)) return;
  try {
    Deno.removeSync(address.unix);
  } catch {
    // The socket's file is already gone.
  }
}

/** Starts to listen. Throws Deno's errors when the address is not available. */
export function listenAt(address: ListenAddress): Deno.Listener<Deno.TcpConn | Deno.UnixConn> {
  if (!("unix" in address)) return Deno.listen({ ...address, tcpBacklog: BACKLOG });
  // The socket's mode must be right from the start: a later chmod would leave a gap.
  const before = Deno.umask(PRIVATE);
  try {
    return Deno.listen({ transport: "unix", path: address.unix });
  } finally {
    Deno.umask(before);
  }
}
