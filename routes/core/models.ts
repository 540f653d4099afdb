import type { Engine, Models } from "../../engine/mod.ts";
import { overflowOf } from "./context_overflow.ts";

/** Returns the model name in a validated body, or undefined if it has none. */
export function modelName(body: unknown): string | undefined {
  return (body as { model?: string | null }).model ?? undefined;
}

/** Runs `action` with the engine of a model, which stays loaded meanwhile. Without a name, it uses the only model. */
export async function withModel<T>(
  models: Models,
  name: string | null | undefined,
  { signal }: Request,
  action: (engine: Engine) => T | Promise<T>,
): Promise<T> {
  const held = await models.use(name ?? undefined, { signal });
  try {
    return await action(held.engine);
  } catch (error) {
    throw overflowOf(error, held.engine);
  } finally {
    held.release();
  }
}

/** Returns a control token as templates write it, or null for no token. */
export function textOfToken({ tokenizer }: Engine, token: number | undefined): string | null {
  return token === undefined ? null : tokenizer.decode([token], { special: true });
}

/** Refusals of endpoints that need a model but do not generate. */
export const MODEL_REFUSALS = {
  404: "No such model",
  429: "Too many requests wait for the model to be loaded",
  503: "The model cannot be loaded now, or the server is shutting down: `code` says which",
} as const;
