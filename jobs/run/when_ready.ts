import { type Engine, type EngineState, wordingOf } from "../../engine/mod.ts";
import type { Answer } from "../answers.ts";
import { BatchError } from "../errors.ts";

/**
 * Returns `execute` wrapped for lines that an engine of this process answers. Lines wait while the engine loads.
 *
 * Lines in the engine when it fails are retried together. Lines that were in it at two failures are retried one at a
 * time. If the engine fails on such a lone line, but answers another line before its next failure, the lone line is
 * blamed: its failure is `final`. So a line that crashes the engine takes no other line with it, and no line is blamed
 * for an engine that answers nothing. Throws a resumable BatchError once the engine has failed for good.
 */
export function whenReady<Request extends { readonly signal: AbortSignal }>(
  engine: Engine,
  execute: (request: Request) => Promise<Answer>,
): (request: Request) => Promise<Answer> {
  const turns = new Turns();
  let inFlight = 0;
  /** Resolves when the next line has been answered. */
  let good = Promise.withResolvers<true>();

  async function ask(request: Request): Promise<Asked> {
    await ready(engine, request.signal);
    let down = false;
    const unlisten = engine.onState((state) => down ||= isDown(state));
    try {
      const answer = await execute(request);
      if (down && isFailure(answer)) return { failure: answer };
      good.resolve(true);
      good = Promise.withResolvers();
      return { answer };
    } finally {
      unlisten();
    }
  }

  async function askAlone(request: Request): Promise<Answer> {
    for (;;) {
      const { answer, failure } = await turns.alone(() => ask(request));
      if (answer) return answer;
      const isToBlame = inFlight === 1 || await beforeFailure(engine, good.promise, request.signal);
      await ready(engine, request.signal);
      if (isToBlame) return blamed(failure);
    }
  }

  return async (request) => {
    const together = async () => (await turns.together(() => ask(request))).answer;
    inFlight++;
    try {
      return await together() ?? await together() ?? await askAlone(request);
    } finally {
      inFlight--;
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

/** Returns the answer for a line that crashes the engine, in its API's error format. */
function blamed({ status, body }: Answer): Answer {
  const message = "The engine fails each time it answers this request";
  return { status, body: { ...body, error: { ...body.error as object, message } }, final: true };
}

/** Returns true when `event` happens before the reloaded engine fails again. Rejects with the signal's reason. */
async function beforeFailure(engine: Engine, event: Promise<true>, signal: AbortSignal): Promise<boolean> {
  if (engine.state === "failed") return false; // it has failed permanently and will not be reloaded
  const other = Promise.withResolvers<false>();
  const abort = () => other.reject(signal.reason);
  let isReady = engine.state === "ready";
  const unlisten = engine.onState((state) => {
    if (state === "failed" || (isReady && isDown(state))) other.resolve(false);
    isReady = state === "ready";
  });
  signal.addEventListener("abort", abort);
  try {
    return await Promise.race([event, other.promise]);
  } finally {
    unlisten();
    signal.removeEventListener("abort", abort);
  }
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
