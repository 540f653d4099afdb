import { fromFileUrl } from "@std/path";

const ROOT = fromFileUrl(new URL("../..", import.meta.url));

/** A server under `--supervise` on the demo model; Linux. */
export interface SupervisedServer {
  readonly url: string;
  /** The supervisor's process id. */
  readonly pid: number;
  /** The current server process; undefined during a restart. */
  child(): Promise<number | undefined>;
  /** Kills the server process and waits for its successor. Returns the milliseconds. */
  killChild(): Promise<number>;
  /** Ends the supervisor by a signal. Returns its exit code and standard error. */
  end(signal: Deno.Signal): Promise<{ code: number; stderr: string }>;
}

/** Starts a supervised server. `permissions` must allow its writes; the caller stops it. */
export async function startSupervised(
  args: readonly string[],
  permissions: readonly string[] = [],
): Promise<SupervisedServer> {
  const process = new Deno.Command(Deno.execPath(), {
    args: [
      "run",
      "-q",
      "-P=serve",
      ...permissions,
      "main.ts",
      "serve",
      "--port",
      "0",
      "--supervise",
      ...args,
    ],
    cwd: ROOT,
    env: { NO_COLOR: "1" },
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
  const stderr = new Response(process.stderr).text();
  const printed = new Listening(process.stdout);
  const url = await printed.times(1);
  if (url === undefined) throw new Error(`It did not start: ${await stderr}`);
  async function child(): Promise<number | undefined> {
    const { stdout } = await new Deno.Command("pgrep", { args: ["-P", `${process.pid}`] }).output();
    return Number(new TextDecoder().decode(stdout).trim()) || undefined;
  }
  let starts = 1;
  return {
    url,
    pid: process.pid,
    child,
    async killChild() {
      const pid = await child();
      if (pid === undefined) throw new Error("Nothing serves");
      const start = performance.now();
      Deno.kill(pid, "SIGKILL");
      if (await printed.times(++starts) !== url) throw new Error(`It is not back: ${await stderr}`);
      return performance.now() - start;
    },
    async end(signal) {
      process.kill(signal);
      return { code: (await process.status).code, stderr: await stderr };
    },
  };
}

/** Counts the lines with the server's address. */
class Listening {
  #text = "";
  #ended = false;
  #changed = Promise.withResolvers<void>();

  constructor(stdout: ReadableStream<Uint8Array<ArrayBuffer>>) {
    this.#read(stdout);
  }

  /** Returns the address in the n-th line "listening on …"; undefined if the output ends before. */
  async times(count: number): Promise<string | undefined> {
    for (;;) {
      const lines = [...this.#text.matchAll(/^listening on (\S+)$/gm)];
      if (lines.length >= count) return lines[count - 1][1];
      if (this.#ended) return undefined;
      await this.#changed.promise;
    }
  }

  async #read(stdout: ReadableStream<Uint8Array<ArrayBuffer>>): Promise<void> {
    for await (const text of stdout.pipeThrough(new TextDecoderStream())) {
      this.#text += text;
      this.#wake();
    }
    this.#ended = true;
    this.#wake();
  }

  #wake(): void {
    this.#changed.resolve();
    this.#changed = Promise.withResolvers();
  }
}
