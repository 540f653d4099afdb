import type { Engine, TokenLogprob } from "../../engine/mod.ts";
import { characters, type PromptTokens, type ScoredToken } from "../../engine/answers/pieces.ts";
import type { ChatLogprobs, CompletionLogprobs } from "./answers.ts";

/** Log-probability of an impossible token in OpenAI's API, because JSON has no infinity. */
const IMPOSSIBLE = -9999;

const finite = (logprob: number) => Number.isFinite(logprob) ? logprob : IMPOSSIBLE;

const utf8 = new TextEncoder();

/** Returns the bytes of a token's text; for a control token, the bytes of its name. */
export function tokenBytes(engine: Engine, token: number): Uint8Array {
  const bytes = engine.tokenizer.bytes(token);
  return bytes.length > 0 ? bytes : utf8.encode(engine.tokenizer.decode([token], { special: true }));
}

function tokenText(engine: Engine, token: number): string {
  return new TextDecoder().decode(tokenBytes(engine, token));
}

export function chatLogprobs(engine: Engine, tokens: readonly ScoredToken[]): ChatLogprobs {
  function entry({ token, logprob }: TokenLogprob) {
    const bytes = tokenBytes(engine, token);
    return { token: new TextDecoder().decode(bytes), logprob: finite(logprob), bytes: [...bytes] };
  }
  const content = tokens.map((scored) => ({ ...entry(scored), top_logprobs: scored.top.map(entry) }));
  return { content, refusal: null };
}

interface PlacedToken {
  readonly token: number;
  readonly logprob: number | null;
  readonly top: readonly TokenLogprob[];
  readonly offset: number;
}

/**
 * Returns log-probabilities in the format of completions. `offset`: number of characters of the choice's text before
 * these tokens.
 */
export function completionLogprobs(
  engine: Engine,
  tokens: readonly PlacedToken[],
  offset: number,
): CompletionLogprobs {
  return {
    tokens: tokens.map(({ token }) => tokenText(engine, token)),
    token_logprobs: tokens.map(({ logprob }) => logprob === null ? null : finite(logprob)),
    top_logprobs: tokens.map((token) => topByText(engine, token)),
    text_offset: tokens.map((token) => offset + token.offset),
  };
}

/**
 * Returns the top alternatives by text, including the chosen token as in OpenAI's API; null for a token that was not
 * predicted.
 */
function topByText(engine: Engine, { token, logprob, top }: PlacedToken): Record<string, number> | null {
  if (logprob === null) return null;
  const entries = top.map((
    other,
  ): [string, number] => [tokenText(engine, other.token), finite(other.logprob)]);
  return Object.fromEntries([...entries, [tokenText(engine, token), finite(logprob)]]);
}

/** Returns the prompt's tokens with their offsets in the echoed text, which may or may not spell out control tokens. */
export function placePrompt(engine: Engine, tokens: PromptTokens, echoed: string): PlacedToken[] {
  const decoder = engine.tokenizer.streamDecoder({ continuation: true });
  let position = 0; // in UTF-16 units of `echoed`
  let offset = 0; // in characters
  return tokens.map((scored) => {
    const placed = { ...scored, offset };
    const isControl = engine.tokenizer.isControl(scored.token);
    const literal = isControl ? tokenText(engine, scored.token) : decoder.push(scored.token);
    if (!isControl || echoed.startsWith(literal, position)) {
      position += literal.length;
      offset += characters(literal);
    }
    return placed;
  });
}
