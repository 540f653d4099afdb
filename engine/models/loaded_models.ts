import type { AdapterInfo, Engine, EngineState } from "../api/engine.ts";
import { adaptedEngine, adapterNamed } from "./adapted_engine.ts";
import { type HeldEngine, ModelError, type Models, type OfferedModel } from "./types.ts";

/** Returns a server's only model, always loaded. The caller who created the engine closes it. */
export function oneModel(engine: Engine, aliases: readonly string[] = []): Models {
  return loadedModels([engine], aliases);
}

/**
 * Returns a server's models, which are always loaded. The caller who created the engines closes them. Ids must differ;
 * `aliases` belong to the first.
 */
export function loadedModels(engines: readonly Engine[], aliases: readonly string[] = []): Models {
  const offered = engines.map((engine, i) => new Loaded(engine, i === 0 ? aliases : []));
  const list = offered.map(({ offered }) => offered);
  const find = (name: string) =>
    findNamed(name, (name) => {
      for (const model of offered) {
        const held = model.held(name);
        if (held) return { offered: model.offered, held };
      }
    });
  const use = (name: string | undefined) =>
    Promise.resolve().then(() => {
      if (name === undefined && offered.length !== 1) throw modelRequired(list);
      const found = find(name ?? offered[0].offered.id);
      if (found === undefined) throw unknownModel(name!, list);
      return found;
    });
  return {
    list: () => list,
    find: (name) => find(name)?.offered,
    use: (name) => use(name).then(({ held }) => held),
    load: (name) => use(name).then(() => {}),
    unload: async (name) => {
      const { offered: { id } } = await use(name);
      throw new ModelError(
        "model_stays",
        `Cannot unload "${id}": this server keeps it loaded until it stops`,
      );
    },
    onState: (listener) => {
      const unlisten = offered.map(({ offered, engine }) =>
        engine.onState((_: EngineState) => listener(offered))
      );
      return () => unlisten.forEach((stop) => stop());
    },
    drain: async (graceMs) => {
      await Promise.all(engines.map((engine) => engine.drain(graceMs)));
    },
    close: async () => {
      await Promise.all(engines.map((engine) => engine.close()));
    },
  };
}

/** A loaded model with its adapters. */
class Loaded {
  readonly offered: OfferedModel;
  readonly #held = new Map<string, HeldEngine>();

  constructor(readonly engine: Engine, aliases: readonly string[]) {
    this.offered = offeredModel(engine, aliases);
  }

  /** Returns the engine for a name of the model, or MODEL:ADAPTER; undefined for other names. */
  held(name: string): HeldEngine | undefined {
    if (this.#isName(name)) return this.#engineOf();
    const at = name.lastIndexOf(":");
    const adapter = this.#isName(name.slice(0, at))
      ? adapterNamed(this.engine, name.slice(at + 1))
      : undefined;
    return adapter && this.#engineOf(adapter);
  }

  #isName(name: string): boolean {
    const { id, aliases } = this.offered;
    return name === id || aliases.includes(name);
  }

  /** Returns the same engine for the same adapter, because others keep figures by engine. */
  #engineOf(adapter?: AdapterInfo): HeldEngine {
    const name = adapter?.name ?? "";
    const known = this.#held.get(name);
    if (known) return known;
    const engine = adapter ? adaptedEngine(this.engine, adapter) : this.engine;
    const held = { engine, release: () => {} };
    this.#held.set(name, held);
    return held;
  }
}

function offeredModel(engine: Engine, aliases: readonly string[]): OfferedModel {
  return {
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
}

/** Returns the models that a server runs, also for a single engine. */
export function modelsOf(served: Models | Engine): Models {
  return "use" in served ? served : oneModel(served);
}

const LATEST = ":latest";

/** Finds a model by a name. Ollama's clients add the tag `:latest` to names, also at OpenAI's paths. */
export function findNamed<T>(name: string, find: (name: string) => T | undefined): T | undefined {
  const found = find(name);
  return found === undefined && name.endsWith(LATEST) ? find(name.slice(0, -LATEST.length)) : found;
}

/** Returns the error for an unknown model. Its names are untrusted, so they are shortened and escaped. */
export function unknownModel(name: string, offered: readonly OfferedModel[]): ModelError {
  const shown = JSON.stringify(name.length > 64 ? `${name.slice(0, 64)}…` : name);
  return new ModelError("model_not_found", `There is no model ${shown} here; use ${namesOf(offered)}`);
}

export function modelRequired(offered: readonly OfferedModel[]): ModelError {
  const why = offered.length === 0
    ? "this server has none yet: its folder of models is empty"
    : `this server has several; use ${namesOf(offered)}`;
  return new ModelError("model_required", `Missing "model": ${why}`);
}

/** Maximum number of names that a message lists. */
const LISTED = 20;

function namesOf(offered: readonly OfferedModel[]): string {
  const [first, ...others] = offered;
  if (first === undefined) return "a server that has one: its folder of models is empty";
  if (others.length === 0) return `"${first.id}", which this server runs`;
  const names = offered.slice(0, LISTED).map(({ id }) => `"${id}"`).join(", ");
  return `one of ${names}${offered.length > LISTED ? `, or another model of this server` : ""}`;
}
