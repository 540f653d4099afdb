import type { Engine, Models } from "../../engine/types.ts";

/** The model that a checked body names; undefined where it leaves that to the server. */
export function modelName(body: unknown): string | undefined {
  return (body as { model?: string | null }).model ?? undefined;
}

/** Does something with the engine of a model, which stays loaded meanwhile; by default with the only one there is. */
export async function withModel<T>(
  models: Models,
  name: string | null | undefined,
  { signal }: Request,
  action: (engine: Engine) => T | Promise<T>,
): Promise<T> {
  const held = await models.use(name ?? undefined, { signal });
  try {
    return await action(held.engine);
  } finally {
    held.release();
  }
}

/** A control token as templates write it; null where there is none. */
export function textOfToken({ tokenizer }: Engine, token: number | undefined): string | null {
  return token === undefined ? null : tokenizer.decode([token], { special: true });
}

/** Of endpoints that need a model beside those that generate. */
export const MODEL_REFUSALS = {
  404: "No such model",
  429: "Too many requests wait for the model to be loaded",
  503: "The model cannot be loaded now, or the server is shutting down: `code` says which",
} as const;
