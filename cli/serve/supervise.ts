import { delay } from "@std/async/delay.js";
import { fromFileUrl, resolve } from "@std/path";
import { installedLibraries, LIBRARY_VARIABLE } from "../../lib/libraries.ts";
import { shipped, shippedModule } from "../../package.ts";
import { isLinked, LINKED } from "../shared/start.ts";
import { isOnTerminal, logLevel } from "../shared/terminal.ts";
import { listening } from "./address.ts";
import { SERVE_SETTINGS, type ServeSettings } from "./serve_settings.ts";
import { imageHosts, mayReach } from "../shared/image_hosts.ts";
import { pathsWritten } from "../shared/read_settings.ts";

const MAIN = fromFileUrl(shippedModule("main.ts"));
const CONFIG = fromFileUrl(shipped("deno.json"));
/**
 * Environment variable that marks a child. The child ends when its standard input closes, because its parent
 * is then gone.
 */
const SUPERVISED = "COMPY_SUPERVISED";

/** Milliseconds after becoming ready within which an ended child counts as failed at the start. */
const ALIVE_MS = 1000;
/** Milliseconds to wait before each restart, by failed starts in a row. After the last one the supervisor gives up. */
const WAITS_MS = [0, 500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000];
/** Signals that end a child before it handles signals. Such an end counts as a requested stop. */
const ASKED: readonly string[] = ["SIGTERM", "SIGINT"];
const SIGNALS = ["SIGTERM", "SIGINT", "SIGHUP"] as const;

/** A child's exit status. `readyMs`: milliseconds for which the child was ready; undefined if it never was. */
interface End extends Deno.CommandStatus {
  readonly readyMs: number | undefined;
}

/**
 * Runs the server as a child and restarts it when it is killed or fails. Signals are forwarded, and a child
 * that was asked to end is not restarted. Returns the child's exit code if it was never ready or failed too
 * often.
 */
export async function supervise(
  args: readonly string[],
  settings: ServeSettings,
  note: (message: string) => void,
): Promise<number> {
  const command = childCommand(args, settings);
  let child: Deno.ChildProcess | undefined;
  const stop = new AbortController();
  const handlers = SIGNALS.map((signal) =>
    [signal, () => {
      const hangsUp = signal === "SIGHUP" && isOnTerminal;
      if (signal !== "SIGHUP" || hangsUp) stop.abort();
      kill(child, hangsUp ? "SIGTERM" : signal);
    }] as const
  );
  for (const [signal, handler] of handlers) Deno.addSignalListener(signal, handler);
  try {
    for (const restarts = new Restarts();;) {
      child = command.spawn();
      const end = await untilEnd(child);
      child = undefined;
      if (stop.signal.aborted) return end.signal === null ? end.code : ASKED.includes(end.signal) ? 0 : 1;
      if (end.code === 0) return 0;
      const wait = restarts.waitAfter(end.readyMs);
      const how = end.signal === null ? `failed with exit code ${end.code}` : `was killed by ${end.signal}`;
      if (wait === undefined) {
        if (restarts.count > 0) {
          note(`The server ${how}, for the ${restarts.count}th time in a row, so it is not started again`);
        }
        return end.signal === null ? end.code : 1;
      }
      note(`The server ${how}; starting it again${wait > 0 ? ` in ${wait / 1000} s` : ""}`);
      await delay(wait, { signal: stop.signal }).catch(() => {});
      if (stop.signal.aborted) return 0;
    }
  } finally {
    for (const [signal, handler] of handlers) Deno.removeSignalListener(signal, handler);
  }
}

/** Decides when a child that has ended is restarted. */
export class Restarts {
  #wasReady = false;
  /** Number of failed starts in a row. */
  count = 0;

  /**
   * Returns the wait in milliseconds; undefined if the supervisor gives up. `readyMs`: milliseconds for which the child
   * was ready.
   */
  waitAfter(readyMs: number | undefined): number | undefined {
    this.#wasReady ||= readyMs !== undefined;
    // A child that was never ready has a wrong setting or a missing model, so another start would fail too.
    if (!this.#wasReady) return undefined;
    if (readyMs !== undefined && readyMs >= ALIVE_MS) this.count = 0;
    return WAITS_MS[this.count++];
  }
}

/**
 * Returns the command for the child, in its own process group, so that one Ctrl-C reaches it once, through its parent.
 */
function childCommand(args: readonly string[], { values }: ServeSettings): Deno.Command {
  const port = values.unix === undefined ? ["--port", `${portOf(values)}`] : [];
  const given = withoutPort(args);
  const libraries = installedLibraries();
  return new Deno.Command(Deno.execPath(), {
    args: [
      "run",
      "-q",
      "-P=serve",
      "--config",
      CONFIG,
      ...grants(values),
      ...libraries === undefined ? [] : [`--allow-ffi=${libraries}`],
      MAIN,
      ...isLinked() ? [LINKED] : [],
      "serve",
      ...given,
      ...port,
      "--supervise=false",
      "--log-level",
      logLevel(),
    ],
    env: { [SUPERVISED]: "1", ...libraries !== undefined && { [LIBRARY_VARIABLE]: libraries } },
    stdin: "piped",
    stdout: "piped",
    stderr: "inherit",
    detached: true,
  });
}

/** Returns the server's port. A free port is chosen once, so that the server keeps its address after a restart. */
function portOf({ host, port }: ServeSettings["values"]): number {
  if (port !== 0) return port;
  const listener = listening({ host, port, unix: undefined }, () => Deno.listen({ hostname: host, port }));
  listener.close();
  return listener.addr.port;
}

function withoutPort(args: readonly string[]): string[] {
  return args.filter((arg, i) =>
    arg !== "--port" && args[i - 1] !== "--port" && !arg.startsWith("--port=") && arg !== "--supervise" &&
    !arg.startsWith("--supervise=")
  );
}

/**
 * Returns permission flags beyond the task's own. The child needs them because deno's flags replace those of the task.
 */
function grants(values: ServeSettings["values"]): string[] {
  const { allowPull, models, allowImageHosts } = values;
  const pulled = allowPull && models !== undefined ? [models] : [];
  const written = [...pathsWritten(SERVE_SETTINGS, values), ...pulled].map((path) => resolve(path))
    .filter((path) => Deno.permissions.querySync({ name: "write", path }).state === "granted");
  const { host, unix } = values;
  const net = unix === undefined ? (host.includes(":") ? `[${host}]` : host) : `unix:${resolve(unix)}`;
  const pulls = allowPull && Deno.permissions.querySync({ name: "net" }).state === "granted";
  const mayListen = Deno.permissions.querySync({ name: "net", host: net }).state === "granted";
  const reached = [...(mayListen ? [net] : []), ...imageHosts(allowImageHosts).filter(mayReach)];
  return [
    ...(written.length > 0 ? [`--allow-write=${written.join(",")}`] : []),
    ...(pulls ? ["--allow-net"] : reached.length > 0 ? [`--allow-net=${reached.join(",")}`] : []),
  ];
}

/** Forwards the child's output. The child is ready when it prints its address. */
async function untilEnd(child: Deno.ChildProcess): Promise<End> {
  let readyAt: number | undefined;
  let printed = "";
  const decoder = new TextDecoder();
  const read = async () => {
    for await (const bytes of child.stdout) {
      await printAll(bytes);
      if (readyAt !== undefined) continue;
      printed += decoder.decode(bytes, { stream: true });
      if (/^listening on /m.test(printed)) readyAt = performance.now();
    }
  };
  const [status] = await Promise.all([child.status, read()]);
  await child.stdin.close().catch(() => {});
  return { ...status, readyMs: readyAt && performance.now() - readyAt };
}

/** Prints bytes. A missing reader, a hung-up terminal or a full disk must not stop the server. */
async function printAll(bytes: Uint8Array): Promise<void> {
  try {
    for (let done = 0; done < bytes.length;) done += await Deno.stdout.write(bytes.subarray(done));
  } catch {
    // No output is left for an error.
  }
}

function kill(child: Deno.ChildProcess | undefined, signal: Deno.Signal): void {
  try {
    child?.kill(signal);
  } catch {
    // The process has just ended.
  }
}

/** Returns whether a supervisor runs this process. */
export function isSupervised(): boolean {
  return Deno.env.get(SUPERVISED) === "1";
}

/** Calls `stop` when the parent of a supervised process has ended. */
export async function stopWithParent(stop: () => void): Promise<void> {
  if (!isSupervised()) return;
  const buffer = new Uint8Array(64);
  while (await Deno.stdin.read(buffer).catch(() => null) !== null);
  stop();
}
