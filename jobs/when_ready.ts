import type { Engine, EngineState } from "../engine/types.ts";
import type { Answer } from "./answers.ts";
import { BatchError } from "./errors.ts";

/**
 * `execute` for lines that an engine of this process answers. While it is loaded they wait. Those that were in it when it
 * failed are asked again together, and those that were in it twice one after the other, until one brings it down alone: its
 * failure is `final`, and the others are together again. So a line that the engine cannot bear takes no other with it.
 * Throws a resumable BatchError once the engine has failed for good.
 */
export function whenReady<Request extends { readonly signal: AbortSignal }>(
  engine: Engine,
  execute: (request: Request) => Promise<Answer>,
): (request: Request) => Promise<Answer> {
  /** Ends with the line that is asked alone. */
  let turn: Promise<unknown> = Promise.resolve();
  let culprit = Promise.withResolvers<void>();

  /** `failed`: the answer is the failure of the engine, which has gone down meanwhile. */
  async function ask(request: Request): Promise<{ answer: Answer; failed: boolean }> {
    await ready(engine, request.signal);
    let down = false;
    const unlisten = engine.onState((state) => down ||= state === "loading" || state === "failed");
    try {
      const answer = await execute(request);
      return { answer, failed: down && isFailure(answer) };
    } finally {
      unlisten();
    }
  }

  async function askAlone(request: Request): Promise<Answer> {
    for (;;) {
      const before = Promise.race([turn.then(() => true), culprit.promise.then(() => false)]);
      const asked = before.then(async (alone) => {
        const { answer, failed } = await ask(request);
        if (!failed) return answer;
        if (!alone) return undefined;
        culprit.resolve(); // before the turn ends: whoever waits is not alone then
        culprit = Promise.withResolvers();
        return { ...answer, final: true };
      });
      turn = asked.catch(() => {});
      const answer = await asked;
      if (answer !== undefined) return answer;
    }
  }

  return async (request) => {
    for (let failures = 0; failures < 2; failures++) {
      const { answer, failed } = await ask(request);
      if (!failed) return answer;
    }
    return await askAlone(request);
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
