import type { Engine, EngineState } from "../engine/types.ts";
import { BatchError } from "./errors.ts";

interface Answer {
  readonly status: number;
  readonly body: Record<string, unknown>;
}

/**
 * `execute` for lines that an engine of this process answers. While it is loaded they wait. Those that were in it when it
 * failed are asked once more, one after the other: if one of them brought it down, it does not take the others with it. Throws a
 * resumable BatchError once the engine has failed for good.
 */
export function whenReady<Request extends { readonly signal: AbortSignal }>(
  engine: Engine,
  execute: (request: Request) => Promise<Answer>,
): (request: Request) => Promise<Answer> {
  let turn: Promise<unknown> = Promise.resolve();

  /** undefined where the engine failed meanwhile. */
  async function ask(request: Request): Promise<Answer | undefined> {
    await ready(engine, request.signal);
    let failed = false;
    const unlisten = engine.onState((state) => failed ||= state === "loading" || state === "failed");
    try {
      const answer = await execute(request);
      return failed && isFailure(answer) ? undefined : answer;
    } finally {
      unlisten();
    }
  }

  async function askAgain(request: Request): Promise<Answer> {
    await ready(engine, request.signal);
    return await execute(request);
  }

  return async (request) => {
    const answer = await ask(request);
    if (answer !== undefined) return answer;
    const again = turn.then(() => askAgain(request));
    turn = again.catch(() => {});
    return await again;
  };
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
