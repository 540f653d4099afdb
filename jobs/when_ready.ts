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

  /** undefined where the engine has failed meanwhile. */
  async function ask(request: Request): Promise<Answer | undefined> {
    await ready(engine, request.signal);
    let down = false;
    const unlisten = engine.onState((state) => down ||= isDown(state));
    try {
      const answer = await execute(request);
      if (down && isFailure(answer)) return undefined;
      good.resolve(true);
      good = Promise.withResolvers();
      return answer;
    } finally {
      unlisten();
    }
  }

  async function askAlone(request: Request): Promise<Answer> {
    for (;;) {
      const answer = await turns.alone(() => ask(request));
      if (answer !== undefined) return answer;
      const isToBlame = inFlight === 1 || await beforeFailure(engine, good.promise, request.signal);
      await ready(engine, request.signal);
      if (isToBlame) return BLAMED;
    }
  }

  return async (request) => {
    const together = () => turns.together(() => ask(request));
    inFlight++;
    try {
      return await together() ?? await together() ?? await askAlone(request);
    } finally {
      inFlight--;
    }
  };
}

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

/** The answer of a line that brings the engine down. */
const BLAMED: Answer = {
  status: 500,
  body: {
    error: {
      message: "The engine fails whenever it answers this request",
      type: "server_error",
      param: null,
      code: "engine_failed",
    },
  },
  final: true,
};

/** Whether that happens before the engine, once it is ready, fails again. Rejects with the signal's reason. */
async function beforeFailure(engine: Engine, event: Promise<true>, signal: AbortSignal): Promise<boolean> {
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
  return status >= 500 && (body.error as { code?: unknown } | undefined)?.code === "engine_failed";
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
