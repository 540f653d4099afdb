import { createHash } from "node:crypto";
import {
  type Engine,
  type HeldEngine,
  ModelError,
  ModelRefused,
  type Models,
  type ModelUser,
  type OfferedModel,
} from "../../engine/mod.ts";
import { inputLimits } from "../../jobs/check.ts";
import type { Execute, LineRequest } from "../../jobs/run/dispatch.ts";
import type { ModelIdentity } from "../../jobs/model_identity.ts";
import type { ExecuteWith } from "../../jobs/run/forecast.ts";
import type { LineEngine } from "../../jobs/setup.ts";
import { whenReady } from "../../jobs/run/when_ready.ts";
import { execute, type ExecuteRequest, refusalBody } from "../../routes/execute.ts";
import { GENERATION_URLS } from "../../routes/generations.ts";
import { identityOf, loadedOf, type Model } from "../model.ts";

/** What lines of a batch file may be. */
export const LINE_LIMITS = { ...inputLimits(GENERATION_URLS), refusalBody };

/** An engine in this process that answers the lines of jobs. */
export interface OpenedEngine {
  readonly engine: Engine;
  readonly identity: ModelIdentity;
  /** What computes: an instruction set, or a GPU. */
  readonly processor?: string;
}

/** Returns the engine of a loaded model, for jobs. */
export async function openedEngine(model: Model): Promise<OpenedEngine> {
  const { engine, backend } = loadedOf(model);
  return { engine, identity: await identityOf(model), processor: backend.info.isa };
}

/** Returns what answers the lines of one job with an opened engine, which it closes. Lines wait while it loads. */
export function lineEngine(
  { engine, identity, processor }: OpenedEngine,
  answer: ExecuteWith = execute,
): LineEngine {
  return {
    execute: whenReady(engine, (request) => answer(engine, request)),
    settings: identity,
    processor,
    close: () => engine.close(),
  };
}

/**
 * Answers lines of batches, each with the model that it names; the model stays loaded meanwhile. A line waits while its
 * model loads (see whenReady), but not for a model that can never be loaded: other lines of the file would wait behind
 * it. `shared`: options of all lines.
 */
export function answerLines(models: Models, shared: Pick<ExecuteRequest, "account" | "warn"> = {}): Execute {
  const byEngine = new WeakMap<Engine, Execute>();
  const answererOf = (engine: Engine) => {
    const known = byEngine.get(engine);
    if (known) return known;
    // The engine is held, and does not know the aliases of its model.
    const held: ModelUser = { use: () => Promise.resolve({ engine, release: () => {} }) };
    const made = whenReady(
      engine,
      (request: LineRequest) =>
        execute(held, { ...request, cacheSalt: request.owner || undefined, ...shared }),
    );
    byEngine.set(engine, made);
    return made;
  };
  return async (request) => {
    const { model } = request.body;
    let held: HeldEngine;
    try {
      const name = typeof model === "string" ? model : undefined;
      held = await models.use(name, { signal: request.signal, priority: "batch" });
    } catch (error) {
      const answer = await execute({ use: () => Promise.reject(error) }, request);
      return { ...answer, final: error instanceof ModelError && error.more.lasting };
    }
    try {
      return await answererOf(held.engine)(request);
    } finally {
      held.release();
    }
  };
}

/** What answers depend on to lines that name these models: those of them that are offered now and can be loaded at all. */
export function identities(
  models: Models,
  identify: (model: OfferedModel) => Promise<ModelIdentity>,
): (names: readonly string[]) => Promise<ModelIdentity> {
  return async (names) => {
    const offered = models.list();
    const found = names.map((name) => name === "" && offered.length === 1 ? offered[0] : models.find(name));
    const named = [...new Set(found.filter((model) => model !== undefined))];
    const all = (await Promise.all(named.map(async (model) => {
      const identity = await identify(model).catch((error) => {
        if (!(error instanceof ModelRefused)) throw error;
      });
      return identity ? [{ id: model.id, identity }] : [];
    }))).flat();
    if (all.length === 1) return all[0].identity;
    return Object.fromEntries(all.map(({ id, identity }) => [id, digest(identity)]));
  };
}

/** An identity in few characters: of several there must be room in a journal's header. */
function digest(identity: ModelIdentity): string {
  return createHash("sha256").update(JSON.stringify(Object.entries(identity).sort())).digest("hex");
}
