import { type Engine, type EngineState, wordingOf } from "../../engine/mod.ts";
import type { Answer } from "../answers.ts";
import { BatchError } from "../errors.ts";

/**
 * Returns `execute` wrapped for lines that an engine of this process answers. Lines wait while the engine loads.
 *
 * Lines in the engine when it fails are retried together. Lines that were in it at two failures are retried one at a
 * time. A lone line on which the engine fails is a suspect. The next answer to any line shows that the engine works, and
 * blames all suspects: their failures are `final`. If every line is a suspect, the line that was answered last is asked
 * again in their place, and its answer is dropped; without such a line, the oldest suspect is tried again. So a line that
 * crashes the engine takes no other line with it, and no line is blamed for an engine that answers nothing. Throws a
 * resumable BatchError once the engine has failed for good.
 */
export function whenReady<Request extends { readonly signal: AbortSignal }>(
  engine: Engine,
  execute: (request: Request) => Promise<Answer>,
): (request: Request) => Promise<Answer> {
  const turns = new Turns();
  const loneFailures = new LoneFailures();
  /** The request that was answered last. */
  let good: Request | undefined;

  async function ask(request: Request): Promise<Asked> {
    await ready(engine, request.signal);
    let down = false;
    const unlisten = engine.onState((state) => down ||= isDown(state));
    try {
      const answer = await execute(request);
      if (down && isFailure(answer)) return { failure: answer };
      loneFailures.blameAll();
      good = request;
      return { answer };
    } finally {
      unlisten();
    }
  }

  async function askAlone(request: Request): Promise<Answer> {
    for (;;) {
      const { answer, failure } = await turns.alone(() => ask(request));
      if (answer) return answer;
      if (await loneFailures.verdict(engine, request.signal) || await works(request.signal)) {
        await ready(engine, request.signal);
        return blamed(failure);
      }
      await ready(engine, request.signal);
    }
  }

  /** Returns whether the engine still answers the request that it answered last. */
  async function works(signal: AbortSignal): Promise<boolean> {
    const known = good;
    return known !== undefined && (await turns.alone(() => ask({ ...known, signal }))).answer !== undefined;
  }

  return async (request) => {
    const together = async () => (await turns.together(() => ask(request))).answer;
    loneFailures.lines++;
    try {
      return await together() ?? await together() ?? await askAlone(request);
    } finally {
      loneFailures.lines--;
      loneFailures.retryIfAll();
    }
  };
}

/** Result of one attempt; `failure` if the engine failed meanwhile. */
type Asked =
  | { readonly answer: Answer; readonly failure?: undefined }
  | { readonly answer?: undefined; readonly failure: Answer };

/** Schedules work that may run in parallel, and work that must run alone. Work that must run alone goes first. */
class Turns {
  private running = 0;
  private loners = 0;
  private changed = Promise.withResolvers<void>();

  together<T>(work: () => Promise<T>): Promise<T> {
    return this.run(() => this.loners === 0, work);
  }

  async alone<T>(work: () => Promise<T>): Promise<T> {
    this.loners++;
    try {
      return await this.run(() => this.running === 0, work);
    } finally {
      this.loners--;
      this.change();
    }
  }

  private async run<T>(may: () => boolean, work: () => Promise<T>): Promise<T> {
    while (!may()) await this.changed.promise;
    this.running++;
    try {
      return await work();
    } finally {
      this.running--;
      this.change();
    }
  }

  private change(): void {
    this.changed.resolve();
    this.changed = Promise.withResolvers();
  }
}

/** Lines on which the engine failed although no other line was in it. They wait until they are blamed or tried again. */
class LoneFailures {
  /** Lines that have no answer yet, suspects included. */
  lines = 0;
  private waiting: ((isToBlame: boolean) => void)[] = [];

  /** Returns whether the line is to blame for the failure. Returns false, too, once the engine has failed for good. */
  async verdict(engine: Engine, signal: AbortSignal): Promise<boolean> {
    if (this.lines === 1) return true;
    const { promise, resolve } = Promise.withResolvers<boolean>();
    const giveUp = () => resolve(false);
    const unlisten = engine.onState((state) => state === "failed" && giveUp());
    signal.addEventListener("abort", giveUp);
    this.waiting.push(resolve);
    this.retryIfAll();
    if (engine.state === "failed" || signal.aborted) giveUp();
    try {
      return await promise;
    } finally {
      unlisten();
      signal.removeEventListener("abort", giveUp);
      this.waiting = this.waiting.filter((other) => other !== resolve);
    }
  }

  blameAll(): void {
    for (const blame of this.waiting.splice(0)) blame(true);
  }

  /** Tries the oldest suspect again if no other line could show that the engine works. */
  retryIfAll(): void {
    if (this.waiting.length === this.lines) this.waiting.shift()?.(false);
  }
}

/** Returns the answer for a line that crashes the engine, in its API's error format. */
function blamed({ status, body }: Answer): Answer {
  const message = "The engine fails each time it answers this request";
  return { status, body: { ...body, error: { ...body.error as object, message } }, final: true };
}

function isDown(state: EngineState): boolean {
  return state === "loading" || state === "failed";
}

/** Returns true when the engine failed. A single answer can also fail on a working engine. */
function isFailure({ status, body }: Answer): boolean {
  const code = (body.error as { code?: unknown } | undefined)?.code;
  return status >= 500 && (code === "engine_failed" || code === "device_lost");
}

/** Resolves when the engine is not loading. Throws BatchError when it has failed for good, or the signal's reason. */
async function ready(engine: Engine, signal: AbortSignal): Promise<void> {
  signal.throwIfAborted();
  if (engine.state === "loading") await loaded(engine, signal);
  if (engine.state !== "failed") return;
  const advice = ". The answers so far are kept; run the same command again";
  const message = [...wordingOf(engine.failure), advice];
  throw new BatchError("engine_unavailable", message, true, { cause: engine.failure });
}

function loaded(engine: Engine, signal: AbortSignal): Promise<EngineState> {
  return new Promise((resolve, reject) => {
    const end = () => {
      unlisten();
      signal.removeEventListener("abort", abort);
    };
    const abort = () => {
      end();
      reject(signal.reason);
    };
    const unlisten = engine.onState((state) => {
      if (state === "loading") return;
      end();
      resolve(state);
    });
    signal.addEventListener("abort", abort);
  });
}
