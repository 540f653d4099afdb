import type { AdapterInfo } from "../api/engine.ts";
import { EngineError } from "../api/errors.ts";
import { MAX_SCALE, type UsedAdapter } from "../api/request.ts";
import type { Sequence } from "./sequence.ts";

/**
 * Returns the adapters of a request with the key of its cached prefixes. By default a request uses all `known` adapters
 * with their own scales. Throws EngineError invalid_request for a wrong id or scale.
 */
export function adaptersOf(
  asked: readonly UsedAdapter[] | undefined,
  known: readonly AdapterInfo[] = [],
  salt: string,
): Pick<Sequence, "adapters" | "prefixKey"> {
  const ids = new Set<number>();
  for (const { id, scale } of asked ?? []) {
    if (known.length === 0) refuse("the model has no adapters (LoRA); leave it out", id);
    if (!Number.isInteger(id) || id < 0 || id >= known.length) {
      refuse(`an id must be a whole number from 0 to ${known.length - 1}`, id);
    }
    if (ids.has(id)) refuse("an id may be there only once", id);
    if (!(Math.abs(scale) <= MAX_SCALE)) refuse(`a scale must be from -${MAX_SCALE} to ${MAX_SCALE}`, scale);
    ids.add(id);
  }
  const adapters = (asked ?? known).filter(({ scale }) => scale !== 0)
    .map(({ id, scale }) => ({ id, scale })).sort((a, b) => a.id - b.id);
  const keys = adapters.map(({ id, scale }) => [known[id].fingerprint, scale]);
  return { adapters, prefixKey: keys.length === 0 ? salt : `${JSON.stringify(keys)}\0${salt}` };
}

function refuse(rule: string, got: number): never {
  throw new EngineError("invalid_request", `Invalid adapters: ${rule} (got ${got})`);
}
