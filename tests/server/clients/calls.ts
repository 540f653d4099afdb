/** What the clients in the table talk to. */
export interface Served {
  /** `http://127.0.0.1:PORT`. */
  readonly base: string;
  readonly model: string;
}

/** One entry of the table: how a client is used, and what must come of it. */
export interface Call {
  /** `responses, streamed`. */
  readonly name: string;
  /** Throws where the client, or what it gives, is not well. */
  run(served: Served): Promise<void>;
}

export const QUESTION = "How is the weather in Köln?";

/** Short, and the same every time: thoughts of at most eight tokens, then forty of anything. */
export const STEADY = { temperature: 0, seed: 7, thinking_budget_tokens: 8 } as const;
export const MOST = 48;

/** A form that even random weights come to the end of. */
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
