/** A proxy port that drops connections on demand. */
export interface LossyProxy extends AsyncDisposable {
  /** Address of the proxy: `http://127.0.0.1:PORT`. */
  readonly base: string;
  /** Ends all connections at once. */
  cut(): void;
  /** Drops and refuses all connections until `up`. */
  down(): void;
  /** Accepts connections again, optionally for another server. */
  up(target?: string): void;
}

/** `target`: an address as `http://127.0.0.1:PORT`. */
export function lossyProxy(target: string): LossyProxy {
  const hostname = "127.0.0.1";
  const open = new Set<Deno.Conn>();
  let listener = listen(0);
  const { port } = listener.addr;

  function listen(port: number): Deno.TcpListener {
    const listener = Deno.listen({ hostname, port });
    accept(listener);
    return listener;
  }

  async function accept(listener: Deno.TcpListener): Promise<void> {
    for await (const client of listener) join(client).catch(() => {});
  }

  async function join(client: Deno.Conn): Promise<void> {
    const server = await Deno.connect({ hostname, port: Number(new URL(target).port) });
    open.add(client).add(server);
    const ended = [client.readable.pipeTo(server.writable), server.readable.pipeTo(client.writable)];
    await Promise.allSettled(ended);
    open.delete(client);
    open.delete(server);
  }

  function cut(): void {
    for (const connection of open) {
      try {
        connection.close();
      } catch {
        // The other end has just closed the connection.
      }
    }
    open.clear();
  }

  function down(): void {
    listener.close();
    cut();
  }

  return {
    base: `http://${hostname}:${port}`,
    cut,
    down,
    up(other = target) {
      target = other;
      listener = listen(port);
    },
    [Symbol.asyncDispose]: () => {
      down();
      return Promise.resolve();
    },
  };
}
