import { jetstreamManager } from "@nats-io/jetstream";
import { natsTarget } from "../../cli/batch/nats_target.ts";
import { type Connection, openConnection } from "../../jobs/nats/connection.ts";
import { Coordinator } from "../../jobs/nats/coordinator.ts";
import { runWorker, type WorkerOptions } from "../../jobs/nats/worker.ts";
import type { Execute } from "../../jobs/run/runner.ts";
import { NatsServer } from "./nats_server.ts";

export const MODEL = { model: "fake" };
export const URL = "/v1/completions";
export const GOOD: Execute = ({ body }) => Promise.resolve({ status: 200, body: { n: body.n } });

/** A nats-server, with coordinators and workers in this process. The end of a test closes them, workers first. */
export class Bench implements AsyncDisposable {
  readonly notes: string[] = [];
  private readonly workers: { stop: () => void; ended: Promise<unknown> }[] = [];
  private readonly coordinators: Coordinator[] = [];
  private readonly connections: Connection[] = [];

  private constructor(readonly server: NatsServer) {}

  static async start(args: string[] = ["-js"]): Promise<Bench> {
    return new Bench(await NatsServer.start(args));
  }

  async connect(url = this.server.url): Promise<Connection> {
    const note = (text: string) => void this.notes.push(text);
    const connection = await openConnection(natsTarget(url, undefined, () => undefined), "test", note);
    this.connections.push(connection);
    return connection;
  }

  async coordinator(options: { connection?: Connection; leaseMs?: number; drainSignal?: AbortSignal } = {}) {
    const note = (text: string) => void this.notes.push(text);
    const drainSignal = new AbortController().signal;
    const connection = options.connection ?? await this.connect();
    const made = await Coordinator.open({ model: MODEL, note, drainSignal, ...options, connection });
    this.coordinators.push(made);
    return made;
  }

  async worker(name: string, answerer: Execute, options: Partial<WorkerOptions> = {}) {
    const stop = new AbortController();
    const connection = options.connection ?? await this.connect();
    const counts = { lines: 0 };
    const ended = runWorker({
      model: MODEL,
      name,
      parallel: 8,
      answerer,
      note: (text) => void this.notes.push(`${name}: ${text}`),
      counts,
      drainSignal: stop.signal,
      signal: new AbortController().signal,
      ...options,
      connection,
    });
    ended.catch(() => {}); // callers that await it get the error
    this.workers.push({ stop: () => stop.abort(), ended });
    return { ended, counts, stop: () => stop.abort() };
  }

  /** The streams on the server. */
  async streams(url = this.server.url): Promise<string[]> {
    const { nats } = await this.connect(url);
    const found = await Array.fromAsync((await jetstreamManager(nats)).streams.list());
    return found.map(({ config }) => config.name);
  }

  /** Ends the workers. */
  async stop(): Promise<void> {
    for (const { stop } of this.workers) stop();
    await Promise.allSettled(this.workers.map(({ ended }) => ended));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
    for (const coordinator of this.coordinators) await coordinator.close();
    for (const { nats } of this.connections) await nats.close();
    await this.server[Symbol.asyncDispose]();
  }
}

export const never = new AbortController().signal;

export function ask(coordinator: Coordinator, n: number, signal = never) {
  return coordinator.execute({ url: URL, body: { n }, priority: "batch", signal });
}

export function askAll(coordinator: Coordinator, lines: number) {
  return Promise.all(Array.from({ length: lines }, (_, n) => ask(coordinator, n)));
}

export async function seconds(action: () => Promise<unknown>): Promise<number> {
  const start = performance.now();
  await action();
  return (performance.now() - start) / 1000;
}
