import { fromFileUrl } from "@std/path";
import OpenAI from "openai";

const ROOT = fromFileUrl(new URL("..", import.meta.url));

/** A server process on the demo model, with OpenAI's client. */
export interface LiveServer {
  /** Address of the server: `http://127.0.0.1:PORT`. */
  readonly url: string;
  readonly client: OpenAI;
  /** Posts JSON and reads the answer with any status. */
  // deno-lint-ignore no-explicit-any -- shapes are what the tests are about
  post(path: string, body: unknown): Promise<any>;
  /** Returns the value of one metric, summed over its labels. */
  metric(name: string): Promise<number>;
  /** Waits until nothing runs or waits; throws after ten seconds. */
  idle(): Promise<void>;
  /** Returns the number of open file descriptors; Linux only. */
  descriptors(): Promise<number>;
  /** Returns the resident memory in bytes; Linux only. */
  resident(): Promise<number>;
}

/** A server's end: its exit code (undefined after a kill), and its output after the line about the model. */
export interface ServerEnd {
  readonly code: number | undefined;
  readonly complaints: string;
}

/**
 * Runs `test` against `serve …`. Throws if the server did not stop cleanly or printed errors. `data` is the folder of
 * files and batches; `descriptors` limits open files. `test` may kill the process with `kill`.
 */
export async function withLiveServer(
  args: readonly string[],
  test: (server: LiveServer, kill: () => void) => Promise<void>,
  data = "none",
  descriptors?: number,
): Promise<void> {
  const { code, complaints } = await runLiveServer(["main.ts", "serve"], args, test, data, descriptors);
  if (code === undefined || (code === 0 && complaints === "")) return;
  throw new Error(`serve ended with ${code}: ${complaints}`);
}

/** Runs `test` as `withLiveServer` does, for another `program`, which may end by itself. */
export async function runLiveServer(
  program: readonly string[],
  args: readonly string[],
  test: (server: LiveServer, kill: () => void) => Promise<void>,
  data = "none",
  descriptors?: number,
): Promise<ServerEnd> {
  const allowed = data === "none" ? [] : [`--allow-write=${data}`];
  const limit = descriptors === undefined ? "" : `ulimit -n ${descriptors};`;
  const run = ["run", "-q", "-P=serve", ...allowed, ...program, "--port", "0", "--data", data, ...args];
  const child = new Deno.Command("sh", {
    args: ["-c", `${limit} exec "$0" "$@"`, Deno.execPath(), ...run],
    cwd: ROOT,
    env: { NO_COLOR: "1", XDG_RUNTIME_DIR: "/tmp" }, // Vulkan drivers complain if XDG_RUNTIME_DIR is missing
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
  const stderr = new Response(child.stderr).text();
  let ended = false;
  const status = child.status.finally(() => ended = true);
  let killed = false;
  const reader = child.stdout.pipeThrough(new TextDecoderStream()).getReader();
  try {
    const url = /listening on (\S+)\n/.exec(await firstLine(reader))?.[1];
    if (!url) throw new Error(`serve did not start: ${await stderr}`);
    await test(serverAt(url, child.pid), () => {
      killed = true;
      child.kill("SIGKILL");
    });
  } catch (error) {
    if (!ended) child.kill("SIGTERM");
    const { code } = await status;
    throw new Error(`The server ended with ${code} and said: ${await stderr}`, { cause: error });
  } finally {
    if (!killed && !ended) child.kill("SIGTERM");
    await reader.cancel();
  }
  const { code } = await status;
  const complaints = (await stderr).split("\n").slice(1).join("\n"); // the first line is about the model
  return { code: killed ? undefined : code, complaints };
}

async function firstLine(reader: ReadableStreamDefaultReader<string>): Promise<string> {
  let line = "";
  while (!line.includes("\n")) {
    const { value, done } = await reader.read();
    if (done) break;
    line += value;
  }
  return line;
}

function serverAt(url: string, pid: number): LiveServer {
  async function post(path: string, body: unknown) {
    const headers = { "content-type": "application/json" };
    const response = await fetch(url + path, { method: "POST", headers, body: JSON.stringify(body) });
    return await response.json();
  }
  async function metric(name: string): Promise<number> {
    const text = await (await fetch(`${url}/metrics`)).text();
    const series = text.split("\n").filter((line) =>
      line.startsWith(`${name} `) || line.startsWith(`${name}{`)
    );
    if (series.length === 0) throw new Error(`/metrics has no ${name}`);
    return series.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(" ") + 1)), 0);
  }
  async function idle(): Promise<void> {
    const names = ["compy_requests_running", "compy_requests_waiting", "compy_kv_blocks_used"];
    for (const end = performance.now() + 10_000;;) {
      const figures = await Promise.all(names.map(metric));
      if (figures.every((figure) => figure === 0)) return;
      if (performance.now() > end) throw new Error(`Not idle after ten seconds: ${names} are ${figures}`);
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  }
  async function descriptors(): Promise<number> {
    const { stdout } = await new Deno.Command("ls", { args: [`/proc/${pid}/fd`] }).output();
    return new TextDecoder().decode(stdout).trimEnd().split("\n").length;
  }
  async function resident(): Promise<number> {
    // Deno cannot read another process's files in /proc, so `cat` reads them.
    const { stdout } = await new Deno.Command("cat", { args: [`/proc/${pid}/status`] }).output();
    return 1024 * Number(/^VmRSS:\s+(\d+) kB$/m.exec(new TextDecoder().decode(stdout))![1]);
  }
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "unused", maxRetries: 0 });
  return { url, client, post, metric, idle, descriptors, resident };
}
