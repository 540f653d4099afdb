const encoder = new TextEncoder();

/** A raw TCP client: sends given bytes and collects the answer. */
export class RawClient {
  answer = "";
  /** Time at which the server closed the connection; undefined while it is open. */
  closedAt: number | undefined;
  readonly closed: Promise<void>;

  private constructor(private readonly tcp: Deno.TcpConn) {
    this.closed = this.#read();
  }

  static async connect(base: string): Promise<RawClient> {
    const { hostname, port } = new URL(base);
    return new RawClient(await Deno.connect({ hostname, port: Number(port) }));
  }

  async send(text: string): Promise<void> {
    await this.tcp.write(encoder.encode(text)).catch(() => {});
  }

  closeWrite(): Promise<void> {
    return this.tcp.closeWrite();
  }

  close(): void {
    try {
      this.tcp.close();
    } catch {
      // The server has already closed the connection.
    }
  }

  async #read(): Promise<void> {
    const decoder = new TextDecoder();
    const buffer = new Uint8Array(1 << 16);
    try {
      for (let n = await this.tcp.read(buffer); n !== null; n = await this.tcp.read(buffer)) {
        this.answer += decoder.decode(buffer.subarray(0, n), { stream: true });
      }
    } catch {
      // The connection was reset.
    }
    this.closedAt = performance.now();
    this.close();
  }
}

/** Returns the status of the first answer, or 0 without an answer. */
export function statusOf({ answer }: RawClient): number {
  return Number(/^HTTP\/1\.1 (\d+)/.exec(answer)?.[1] ?? 0);
}
