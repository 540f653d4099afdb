/*
 * A real nats-server on loopback, for tests. Debian's package installs it in /usr/sbin; COMPY_NATS_SERVER names another
 * program.
 */
const PLACES = [
  "/usr/sbin/nats-server",
  "/usr/bin/nats-server",
  "/usr/local/bin/nats-server",
  "/opt/homebrew/bin/nats-server",
];

/** Returns the path of nats-server; undefined if it is missing. */
export function natsServerPath(): string | undefined {
  const named = Deno.env.get("COMPY_NATS_SERVER");
  return (named ? [named] : PLACES).find((path) => {
    try {
      return Deno.statSync(path).isFile;
    } catch {
      return false;
    }
  });
}

export class NatsServer implements AsyncDisposable {
  private constructor(
    private readonly folder: string,
    private process: Deno.ChildProcess,
    /** The first start takes any free port, later ones the same port. */
    readonly port: number,
    private args: readonly string[],
  ) {}

  get url(): string {
    return `nats://127.0.0.1:${this.port}`;
  }

  /** `more` are additional arguments; JetStream needs `-js`. */
  static async start(more: readonly string[] = ["-js"]): Promise<NatsServer> {
    const folder = await Deno.makeTempDir({ prefix: "compy-nats-" });
    const process = spawn([...more, ...place(folder), "-p", "-1", "--ports_file_dir", folder]);
    const port = await readPort(`${folder}/nats-server_${process.pid}.ports`);
    return new NatsServer(folder, process, port, more);
  }

  /** Kills and restarts the server, optionally with other arguments. Its memory is lost. */
  async restart(more: readonly string[] = this.args): Promise<void> {
    this.process.kill("SIGKILL");
    await this.process.status;
    this.args = more;
    this.process = spawn([...more, ...place(this.folder), "-p", String(this.port)]);
    await this.answering();
  }

  /** Stops the server; its URL then stops working. */
  async stop(): Promise<void> {
    try {
      this.process.kill("SIGKILL");
    } catch {
      // The process has already ended.
    }
    await this.process.status;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
    await Deno.remove(this.folder, { recursive: true });
  }

  private async answering(): Promise<void> {
    await retry(`nats-server on port ${this.port}`, async () => {
      (await Deno.connect({ hostname: "127.0.0.1", port: this.port })).close();
    });
  }
}

function place(folder: string): string[] {
  return ["-a", "127.0.0.1", "-sd", folder];
}

function spawn(args: string[]): Deno.ChildProcess {
  const options = { args, stdin: "null", stdout: "null", stderr: "null" } as const;
  return new Deno.Command(natsServerPath()!, options).spawn();
}

async function readPort(path: string): Promise<number> {
  return await retry("nats-server", async () => {
    const { nats } = JSON.parse(await Deno.readTextFile(path));
    return Number(new URL(nats[0].replace("nats:", "http:")).port);
  });
}

async function retry<T>(what: string, action: () => Promise<T>): Promise<T> {
  for (const until = performance.now() + 10_000;;) {
    try {
      return await action();
    } catch (error) {
      if (performance.now() > until) throw new Error(`${what} does not start`, { cause: error });
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }
}
