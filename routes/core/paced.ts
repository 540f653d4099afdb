import { AsyncLocalStorage } from "node:async_hooks";
import { finish, withPauses, writeLargeJson } from "../../engine/mod.ts";

/** The request whose work runs. */
interface Sender {
  /** Counts milliseconds of work against the sender's limits. */
  spent(ms: number): void;
  /** Aborted when the client has left: its work does not go on. */
  readonly signal: AbortSignal;
}

const sender = new AsyncLocalStorage<Sender>();

/** Handles a request whose work counts against the limits of its sender. */
export function workFor<T>(request: Sender, handle: () => Promise<T>): Promise<T> {
  return sender.run(request, handle);
}

/** Runs a synchronous action in slices, so that other requests are served meanwhile. See withPauses for its rules. */
export function paced<T>(action: () => T): Promise<T> {
  return withPauses(action, sender.getStore());
}

/** Returns an answer of JSON, which is written in slices. */
export async function jsonAnswer(value: unknown): Promise<Response> {
  const text = await paced(() => finish(writeLargeJson(value)));
  return new Response(text, { headers: { "content-type": "application/json" } });
}
