import type { Engine, EngineState } from "../types.ts";
import { type HeldEngine, ModelError, type Models, type OfferedModel } from "./types.ts";

/** A server's models where there is but this one, which is loaded for good; whoever made the engine closes it. */
export function oneModel(engine: Engine, aliases: readonly string[] = []): Models {
  const held: HeldEngine = { engine, release: () => {} };
  const offered: OfferedModel = {
    get id() {
      return engine.model.id;
    },
    aliases,
    get path() {
      return engine.model.path;
    },
    get state() {
      return engine.state;
    },
    engine,
    get failure() {
      return engine.failure;
    },
    get created() {
      return engine.model.created;
    },
  };
  const find = (name: string) => name === engine.model.id || aliases.includes(name) ? offered : undefined;
  const check = (name: string | undefined) => {
    if (name !== undefined && find(name) === undefined) throw unknownModel(name, [offered]);
  };
  return {
    list: () => [offered],
    find,
    use: (name) => Promise.try(check, name).then(() => held),
    load: (name) => Promise.try(check, name),
    unload: async (name) => {
      await Promise.try(check, name);
      throw new ModelError("model_stays", `Cannot unload "${engine.model.id}": this server runs it alone`);
    },
    onState: (listener) => engine.onState((_: EngineState) => listener(offered)),
    drain: (graceMs) => engine.drain(graceMs),
    close: () => engine.close(),
  };
}

/** What a server runs, where that may be a single engine. */
export function modelsOf(served: Models | Engine): Models {
  return "use" in served ? served : oneModel(served);
}

/** Names in messages are strangers': short and escaped. */
export function unknownModel(name: string, offered: readonly OfferedModel[]): ModelError {
  const shown = JSON.stringify(name.length > 64 ? `${name.slice(0, 64)}…` : name);
  return new ModelError("model_not_found", `There is no model ${shown} here; use ${namesOf(offered)}`);
}

export function modelRequired(offered: readonly OfferedModel[]): ModelError {
  return new ModelError(
    "model_required",
    `Missing "model": this server has several; use ${namesOf(offered)}`,
  );
}

/** So many names are listed in a message. */
const LISTED = 20;

function namesOf(offered: readonly OfferedModel[]): string {
  const [first, ...others] = offered;
  if (first === undefined) return "a server that has one: its folder of models is empty";
  if (others.length === 0) return `"${first.id}", which this server runs`;
  const names = offered.slice(0, LISTED).map(({ id }) => `"${id}"`).join(", ");
  return `one of ${names}${offered.length > LISTED ? `, or another that GET /v1/models lists` : ""}`;
}
