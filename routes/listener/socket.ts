/** Where connections come from: TCP, or a socket in the file system that this user alone may use. */
export type ListenAddress =
  | { readonly hostname: string; readonly port: number }
  | { readonly unix: string };

/**
 * Connections that wait in the system's queue; the system has a bound of its own. What a client sends while that is full is
 * lost at first and comes seconds later, so that its connection looks like one that sends nothing.
 */
const BACKLOG = 4096;
/** Others may neither read nor write. */
const PRIVATE = 0o177;

/** Takes the socket out of the file system; Deno does so only where nobody waited for a connection. */
export function removeSocket(address: ListenAddress): void {
  if (!("unix" in address)) return;
  try {
    Deno.removeSync(address.unix);
  } catch {
    // It is gone already.
  }
}

/** Throws Deno's errors where the address cannot be had. */
export function listenAt(address: ListenAddress): Deno.Listener<Deno.TcpConn | Deno.UnixConn> {
  if (!("unix" in address)) return Deno.listen({ ...address, tcpBacklog: BACKLOG });
  // From its first moment on: a mode that is set afterwards would come too late.
  const before = Deno.umask(PRIVATE);
  try {
    return Deno.listen({ transport: "unix", path: address.unix });
  } finally {
    Deno.umask(before);
  }
}
