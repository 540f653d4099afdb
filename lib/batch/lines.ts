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
import type { Answer } from "../../jobs/answers.ts";
import { inputLimits } from "../../jobs/check.ts";
import type { Execute } from "../../jobs/run/dispatch.ts";
import type { ModelIdentity } from "../../jobs/model_identity.ts";
import { whenReady } from "../../jobs/run/when_ready.ts";
import { execute, type ExecuteRequest, refusalBody } from "../../routes/execute.ts";
import { GENERATION_URLS } from "../../routes/generations.ts";

/** What lines of a batch file may be. */
export const LINE_LIMITS = { ...inputLimits(GENERATION_URLS), refusalBody };

/** A line of a batch. */
export type LineRequest = ExecuteRequest & { readonly signal: AbortSignal };

/**
 * More lines in flight than an engine runs at once: the next ones wait in it for a place, so that no step has a gap, and those that
 * are done wait for the disk.
 */
export function linesInFlight(parallel: number): number {
  return Math.ceil(1.5 * parallel);
}

/**
 * Answers lines of batches, each with the model that it names, which is held meanwhile; see whenReady. Lines wait for a model, but
 * not for one that can never be loaded: others of their file would wait behind them.
 */
export function answerLines(models: Models): (request: LineRequest) => Promise<Answer> {
  const byEngine = new WeakMap<Engine, (request: LineRequest) => Promise<Answer>>();
  const answererOf = (held: HeldEngine) => {
    const known = byEngine.get(held.engine);
    if (known) return known;
    const only: ModelUser = { use: () => Promise.resolve({ engine: held.engine, release: () => {} }) };
    const made = whenReady(held.engine, (request: LineRequest) => execute(only, request));
    byEngine.set(held.engine, made);
    return made;
  };
  return async (request) => {
    const { model } = (request.body ?? {}) as { model?: unknown };
    let held: HeldEngine;
    try {
      const name = typeof model === "string" ? model : undefined;
      held = await models.use(name, { signal: request.signal, priority: "batch" });
    } catch (error) {
      const answer = await execute({ use: () => Promise.reject(error) }, request);
      return { ...answer, final: error instanceof ModelError && error.more.lasting };
    }
    try {
      return await answererOf(held)(request);
    } finally {
      held.release();
    }
  };
}

/**
 * Answers as `execute` does; lines that name one of the aliases are for the model that answers, as those that name none.
 */
export function withAliases(aliases: readonly string[], execute: Execute): Execute {
  if (aliases.length === 0) return execute;
  return (request) => {
    const { model, ...body } = request.body;
    return execute(aliases.some((alias) => alias === model) ? { ...request, body } : request);
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
