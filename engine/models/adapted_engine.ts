import type { AdapterInfo, Engine } from "../api/engine.ts";
import type { EmbedRequest, GenerateRequest } from "../api/request.ts";

/** Returns the engine's adapter of this name; undefined where it has none. */
export function adapterNamed({ model }: Engine, name: string): AdapterInfo | undefined {
  return model.adapters?.find((adapter) => adapter.name === name);
}

/** Returns the id of the model with one adapter. */
export function adaptedId(model: string, { name }: Pick<AdapterInfo, "name">): string {
  return `${model}:${name}`;
}

/**
 * Returns an engine whose requests use one adapter, unless they choose others. Adapters that requests use only on demand,
 * with scale 0, get scale 1.
 */
export function adaptedEngine(engine: Engine, { id, name, scale }: AdapterInfo): Engine {
  const own = [{ id, scale: scale === 0 ? 1 : scale }];
  const adapted = <Request extends GenerateRequest | EmbedRequest>(request: Request): Request => (
    { ...request, adapters: request.adapters ?? own }
  );
  const changed = {
    get model() {
      return { ...engine.model, id: adaptedId(engine.model.id, { name }) };
    },
    submit: (request: GenerateRequest) => engine.submit(adapted(request)),
    embed: (request: EmbedRequest) => engine.embed(adapted(request)),
  };
  return new Proxy(engine, {
    get(target, property) {
      if (Object.hasOwn(changed, property)) return changed[property as keyof typeof changed];
      const value: unknown = Reflect.get(target, property, target);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}
