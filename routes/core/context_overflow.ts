import { type Engine, EngineError, render } from "../../engine/mod.ts";
import { ApiError, asServerSettings } from "./errors.ts";

/** The figures of a prompt that does not fit, named as in error bodies. */
interface Figures {
  /** Prompt tokens; a lower bound for a prompt of more than four contexts, which is not fully counted. */
  readonly n_prompt_tokens: number;
  readonly n_ctx: number;
  /** The model's own context, if the server's context is shorter. */
  readonly n_ctx_train?: number;
}

/**
 * The error for a prompt that exceeds the context window. Agents shorten their history if they recognize their API's
 * error message, so each API has its own. This message is OpenAI's.
 */
export class ContextOverflow extends ApiError {
  /** Minimum tokens that the request needs: its prompt, and one for an answer. */
  readonly tokens: number;
  readonly most: number;
  /** Returns the setting that allows a larger context; empty if the model's context is not larger. */
  readonly advice: string;

  constructor(figures: Figures) {
    const { n_prompt_tokens, n_ctx, n_ctx_train } = figures;
    const tokens = Math.max(n_prompt_tokens, n_ctx + 1);
    const ofAnswer = tokens > n_prompt_tokens ? ", with one for the answer" : "";
    const advice = n_ctx_train === undefined ? "" : render([
      ` The model can hold ${n_ctx_train} tokens with a higher value of `,
      { ctx: undefined },
      ".",
    ], asServerSettings);
    const message =
      `This model's maximum context length is ${n_ctx} tokens. However, your messages resulted in ` +
      `${tokens} tokens${ofAnswer}. Please reduce the length of the messages.${advice}`;
    super(400, "context_length_exceeded", message, { details: { ...figures } });
    this.tokens = tokens;
    this.most = n_ctx;
    this.advice = advice;
  }
}

/**
 * Returns the refusal for an error about a prompt that does not fit. Other errors are returned unchanged, and those of
 * encoders, which name the text that is too long.
 */
export function overflowOf(error: unknown, { model }: Engine, promptTokens?: number): unknown {
  if (!(error instanceof EngineError) || error.code !== "context_length_exceeded") return error;
  const { n_prompt_tokens = promptTokens, n_ctx = model.contextLength } = error.details;
  if (n_prompt_tokens === undefined || model.pooled?.encoder) return error;
  const { trainedContext = 0 } = model;
  return new ContextOverflow({
    n_prompt_tokens,
    n_ctx,
    ...(trainedContext > n_ctx ? { n_ctx_train: trainedContext } : {}),
  });
}
