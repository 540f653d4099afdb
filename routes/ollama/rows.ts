import { type Engine, EngineError } from "../../engine/mod.ts";
import { encodeAll, normalized } from "../../engine/answers/rows.ts";
import { ApiError } from "../core/errors.ts";
import { embedAll } from "../generation/embedding.ts";
import type { RunOptions } from "../generation/generation.ts";
import { contextOf, type Options } from "./options.ts";
import { paced } from "../core/paced.ts";

interface Texts {
  readonly texts: readonly string[];
  /** Name of the field with the texts. */
  readonly param: string;
  readonly options: Options;
  /** Whether to cut texts that are longer than the context. */
  readonly truncate: boolean;
  readonly dimensions?: number;
}

/** Returns one row of length 1 per text, and the number of tokens. Throws ApiError, and EngineError. */
export async function rowsOf(
  engine: Engine,
  { texts, param, options, truncate, dimensions }: Texts,
  runOptions: RunOptions,
  signal: AbortSignal,
): Promise<{ rows: number[][]; tokens: number }> {
  const size = engine.model.pooled?.size ?? Infinity;
  if (dimensions !== undefined && dimensions > size) {
    const message =
      `Invalid "dimensions": must be at most ${size}, the vector length of this model (got ${dimensions})`;
    throw new ApiError(400, "invalid_value", message, { param: "dimensions" });
  }
  const context = contextOf(engine, options);
  const encode = (text: string, index: number) => {
    const ids = truncate
      ? truncated(engine, text.toWellFormed(), context)
      : engine.encodePrompt(text.toWellFormed());
    if (ids.length > context) {
      const details = { n_prompt_tokens: ids.length, n_ctx: context };
      throw new EngineError("context_length_exceeded", `The text has ${ids.length} tokens`, details);
    }
    if (ids.length > 0) return ids;
    const message = `Invalid "${param}": a text must have at least one token (text ${index} has none)`;
    throw new ApiError(400, "invalid_value", message, { param });
  };
  const inputs = await paced(() => encodeAll(texts, encode));
  const { rows, usage } = await embedAll(engine, inputs, runOptions, signal);
  return { rows: rows.map((row) => Array.from(normalized(row, dimensions))), tokens: usage.promptTokens };
}

/** Returns the first tokens of the text, with the control token that ends every text of the model. */
function truncated(engine: Engine, text: string, most: number): readonly number[] {
  let ids: number[];
  try {
    ids = engine.encodePrompt(text);
  } catch (error) {
    // The text is several times too long, so half of it is still too long or about as long as the context.
    if (!(error instanceof EngineError) || error.code !== "context_length_exceeded") throw error;
    return truncated(engine, text.slice(0, text.length / 2).toWellFormed(), most);
  }
  if (ids.length <= most) return ids;
  const last = ids.at(-1)!;
  return engine.tokenizer.isControl(last) ? [...ids.slice(0, most - 1), last] : ids.slice(0, most);
}
