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

/** Limits of a batch file's lines. */
export const LINE_LIMITS = { ...inputLimits(GENERATION_URLS), refusalBody };

/** An engine in this process that answers the lines of jobs. */
export interface OpenedEngine {
  readonly engine: Engine;
  readonly identity: ModelIdentity;
  /** The instruction set or GPU that computes. */
  readonly processor?: string;
}

/** Returns the engine of a loaded model, for jobs. */
export async function openedEngine(model: Model): Promise<OpenedEngine> {
  const { engine, backend } = loadedOf(model);
  return { engine, identity: await identityOf(model), processor: backend.info.isa };
}

/**
 * Returns an engine for the lines of one job. Closing it closes the opened engine. Lines wait while the
 * engine loads.
 */
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

/** Returns an engine that refuses lines with parameters that their endpoint does not support. */
export function refuseUnsupported(engine: LineEngine): LineEngine {
  const noModel: ModelUser = { use: () => Promise.reject(new Error("Only the body is checked")) };
  return {
    ...engine,
    execute: async (request) => {
      const checked = await execute(noModel, { ...request, strictParameters: true });
      return checked.status === 400 ? checked : await engine.execute(request);
    },
  };
}

/** Options that apply to all lines. */
export interface LineOptions
  extends Pick<ExecuteRequest, "account" | "strictParameters" | "warn" | "fetchImage"> {
  /** Returns an owner's share of the engine, relative to other owners'. */
  readonly weightOf?: (owner: string) => number;
}

/**
 * Returns a function that answers batch lines, each with the model that it names. The model stays loaded meanwhile. A
 * line waits while its model loads (see whenReady), but not for a model that can never be loaded, which would block
 * other lines.
 */
export function answerLines(
  models: Models,
  { weightOf, ...shared }: LineOptions = {},
): Execute {
  const byEngine = new WeakMap<Engine, Execute>();
  const answererOf = (engine: Engine) => {
    const known = byEngine.get(engine);
    if (known) return known;
    // The engine is already held, but does not know its model's aliases.
    const held: ModelUser = { use: () => Promise.resolve({ engine, release: () => {} }) };
    const made = whenReady(
      engine,
      (request: LineRequest) => {
        const { owner = "" } = request;
        const sender = { cacheSalt: owner || undefined, weight: weightOf?.(owner) };
        const warn = (message: string) => shared.warn?.(message, owner || "batches");
        return execute(held, { ...request, ...sender, ...shared, warn });
      },
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

/** Returns the identities of the named models that are offered now and can be loaded. */
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

/** Returns a short digest of an identity, because a journal's header must hold several. */
function digest(identity: ModelIdentity): string {
  return createHash("sha256").update(JSON.stringify(Object.entries(identity).sort())).digest("hex");
}
