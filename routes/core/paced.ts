import { AsyncLocalStorage } from "node:async_hooks";
import { finish, withPauses, writeLargeJson } from "../../engine/mod.ts";

/** The request on which the server works. */
interface Sender {
  /** Counts milliseconds of work against the sender's limits. */
  spent(ms: number): void;
  /** Aborted when the client has disconnected. The work then stops. */
  readonly signal: AbortSignal;
}

const sender = new AsyncLocalStorage<Sender>();

/** Handles a request, and charges the work for it to its sender's limits. */
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
