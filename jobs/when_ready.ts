import type { Engine, EngineState } from "../engine/types.ts";
import type { Answer } from "./answers.ts";
import { BatchError } from "./errors.ts";

/**
 * `execute` for lines that an engine of this process answers. While it is loaded they wait. Those that were in it when it
 * failed are asked again together, and those that were in it twice each alone. If it fails with one of these, and answers
 * another line before it fails again, that one is to blame: its failure is `final`. So a line that the engine cannot bear takes
 * no other with it, and no line is to blame for an engine that answers none. Throws a resumable BatchError once the engine has
 * failed for good.
 */
export function whenReady<Request extends { readonly signal: AbortSignal }>(
  engine: Engine,
  execute: (request: Request) => Promise<Answer>,
): (request: Request) => Promise<Answer> {
  const turns = new Turns();
  let inFlight = 0;
  /** Resolves when the next line is answered. */
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

/** What came of a line; `failure` where the engine has failed meanwhile. */
type Asked =
  | { readonly answer: Answer; readonly failure?: undefined }
  | { readonly answer?: undefined; readonly failure: Answer };

/** Work that runs beside other such work, and work that wants to be alone, which goes first. */
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

/** The answer of a line that brings the engine down, in the shape of its API: all errors have a message there. */
function blamed({ status, body }: Answer): Answer {
  const message = "The engine fails whenever it answers this request";
  return { status, body: { ...body, error: { ...body.error as object, message } }, final: true };
}

/** Whether that happens before the engine, once it is ready, fails again. Rejects with the signal's reason. */
async function beforeFailure(engine: Engine, event: Promise<true>, signal: AbortSignal): Promise<boolean> {
  if (engine.state === "failed") return false; // for good: nothing more happens to it
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

/** Of the engine; a single answer can fail on a sound one too. */
function isFailure({ status, body }: Answer): boolean {
  const code = (body.error as { code?: unknown } | undefined)?.code;
  return status >= 500 && (code === "engine_failed" || code === "device_lost");
}

/** Resolves when the engine is not being loaded; rejects when it has failed for good, or with the signal's reason. */
async function ready(engine: Engine, signal: AbortSignal): Promise<void> {
  signal.throwIfAborted();
  if (engine.state === "loading") await loaded(engine, signal);
  if (engine.state !== "failed") return;
  const message = `${engine.failure?.message}. The answers so far are kept; run the same command again`;
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
