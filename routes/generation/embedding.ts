import { type EmbedResult, type Engine, EngineError } from "../../engine/mod.ts";
import { ApiError, queueFull } from "../core/errors.ts";
import { checkTokens, type RunOptions } from "./generation.ts";
import { noteEnd, noteStart, secondsUntilRoom } from "../core/queue.ts";

/** Codes of engine errors after which nothing has run. */
const REFUSALS: ReadonlySet<string> = new Set([
  "context_length_exceeded",
  "invalid_request",
  "not_supported",
  "queue_full",
  "engine_unavailable",
]);

/** Returns one embedding row per input. */
export async function embedAll(
  engine: Engine,
  inputs: readonly (readonly number[])[],
  { priority = "interactive", cacheSalt, weight, account }: RunOptions,
  signal: AbortSignal,
): Promise<EmbedResult> {
  signal.throwIfAborted();
  noteStart(engine);
  const refused = account?.read(engine.model.id, inputs.reduce((sum, { length }) => sum + length, 0));
  try {
    const result = await engine.embed({ inputs, priority, cacheSalt, weight, signal });
    noteEnd(engine);
    return result;
  } catch (error) {
    signal.throwIfAborted();
    if (error instanceof EngineError && REFUSALS.has(error.code)) refused?.();
    if (error instanceof EngineError && error.code === "queue_full") {
      throw queueFull(error.message, secondsUntilRoom(engine));
    }
    throw error;
  }
}

/**
 * Returns the tokens of a text to pool; token ids stay as they are. Throws ApiError, which names the field, for ids
 * outside the vocabulary and for an empty text.
 */
export function encodeText(
  engine: Engine,
  text: string | number[],
  index: number,
  field = "input",
): readonly number[] {
  if (typeof text !== "string") {
    checkTokens(engine, text, field);
    return text;
  }
  const ids = engine.encodePrompt(text.toWellFormed());
  if (ids.length > 0) return ids;
  const message = `Invalid "${field}": a text must have at least one token (text ${index} has none)`;
  throw new ApiError(400, "invalid_value", message, { param: field });
}

/** Returns the names of a ranking head's labels, as Hugging Face names those that a file does not name. */
export function labelsOf({ model: { pooled } }: Engine): readonly string[] {
  return pooled?.labels ?? Array.from({ length: pooled?.size ?? 0 }, (_, i) => `LABEL_${i}`);
}

/** The ability that an endpoint needs from a model. */
export type Ability = "generation" | "embeddings" | "ranking" | "classification" | "scoring";

/** Throws ApiError 400 when the model lacks the needed ability. Every model that pools texts can score them. */
export function checkAbility(engine: Engine, wanted: Ability): void {
  const { id, pooled } = engine.model;
  if (wanted === "generation") {
    if (!pooled?.encoder) return;
    const [does, path] = pooled.kind === "rank"
      ? ["ranks documents", "/v1/rerank"]
      : ["returns vectors for texts", "/v1/embeddings"];
    const message = `The model "${id}" ${does} and generates no text: use ${path}, or another model`;
    throw new ApiError(400, "not_supported", message, { param: "model" });
  }
  if (pooled === undefined || wanted === "scoring") return; // a GPU engine refuses
  if ((pooled.kind === "rank") === (wanted !== "embeddings")) return;
  const message = wanted !== "embeddings"
    ? `The model "${id}" cannot ${
      wanted === "ranking" ? "rank" : "classify"
    }: it has no ranking head (pooling_type rank ` +
      `and cls.output.weight); use /v1/embeddings, or a model that ${
        wanted === "ranking" ? "ranks" : "classifies"
      }`
    : `The model "${id}" ranks documents and gives no embeddings; use /v1/rerank, or serve it with --pooling ` +
      (pooled.encoder ? "mean" : "last");
  throw new ApiError(400, "not_supported", message, { param: "model" });
}
