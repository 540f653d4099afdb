/** The server that the clients in the table call. */
export interface Served {
  /** Address of the server: `http://127.0.0.1:PORT`. */
  readonly base: string;
  readonly model: string;
}

/** One entry of the table: a call by a client, and the check of its result. */
export interface Call {
  /** Name of the call, such as `responses, streamed`. */
  readonly name: string;
  /** Throws if the client fails or its result is wrong. */
  run(served: Served): Promise<void>;
}

export const QUESTION = "How is the weather in Köln?";

/**
 * Settings for short answers that are equal in every call: at most eight thinking tokens, so that MOST leaves forty
 * tokens for the rest.
 */
export const STEADY = { temperature: 0, seed: 7, thinking_budget_tokens: 8 } as const;
export const MOST = 48;

/** A schema that even a model with random weights completes. */
export const MOOD = {
  type: "object",
  properties: { mood: { type: "string", enum: ["calm", "wild"] }, sure: { type: "boolean" } },
  required: ["mood", "sure"],
  additionalProperties: false,
} as const;

export function isMood(value: unknown): value is { mood: string; sure: boolean } {
  const { mood, sure } = (value ?? {}) as Record<string, unknown>;
  return (mood === "calm" || mood === "wild") && typeof sure === "boolean";
}
