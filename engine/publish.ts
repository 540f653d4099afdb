import type { Candidates } from "./backend/backend.ts";
import { alternatives, sample } from "./sampler.ts";
import { grown, type Sequence, wantsToken } from "./sequence.ts";
import type { FinishReason } from "./types.ts";

/** Keeps the scores of the prompt's next tokens, one for each of `rows`. */
export function keepScores(sequence: Sequence, rows: readonly Candidates[]): void {
  for (const row of rows) {
    const token = sequence.tokens[sequence.scores.length];
    const top = alternatives(row, sequence.logprobs ?? 0);
    sequence.scores.push({ token, logprob: row.probed[0] - row.logSumExp, top });
  }
}

/** Tells how far the prompt is, when it takes more than one step. */
export function publishProgress(sequence: Sequence): void {
  const { cached, reported, promptLength, reused, admittedAt } = sequence;
  const complete = cached >= promptLength;
  if (sequence.length > promptLength || cached <= reported || (complete && reported === 0)) return;
  sequence.reported = cached;
  const timeMs = performance.now() - admittedAt!;
  sequence.stream.push({ type: "progress", processed: cached, total: promptLength, cached: reused, timeMs });
}

/** Chooses the sequence's next token and publishes it. Returns the reason when it is the last. */
export function publishToken(
  sequence: Sequence,
  candidates: Candidates,
  endTokens: ReadonlySet<number>,
): FinishReason | undefined {
  const chosen = sequence.logits.draw
    ? candidates.drawn!
    : sample(candidates, sequence.sampling, sequence.random);
  const token = candidates.ids[chosen];
  append(sequence, token);
  if (!sequence.ignoreEos && endTokens.has(token)) return "stop";
  const text = sequence.output.push(token);
  if (sequence.logprobs === undefined) sequence.stream.push({ type: "token", token, text });
  else {
    const logprob = candidates.rawLogits[chosen] - candidates.logSumExp;
    const top = alternatives(candidates, sequence.logprobs);
    sequence.stream.push({ type: "token", token, text, logprob, top });
  }
  if (sequence.output.stopped) return "stop";
  return wantsToken(sequence) ? undefined : "length";
}

/** Adds a token to the sequence. */
export function append(sequence: Sequence, token: number): void {
  sequence.firstTokenAt ??= performance.now();
  if (sequence.length === sequence.tokens.length) {
    sequence.tokens = grown(sequence.tokens, sequence.maxLength);
  }
  sequence.tokens[sequence.length++] = token;
  sequence.counts?.addGenerated(token);
}

export function publishFinish(sequence: Sequence, reason: FinishReason): void {
  const { submittedAt, admittedAt, firstTokenAt, promptLength } = sequence;
  const now = performance.now();
  const text = sequence.output.end();
  sequence.stream.push({
    type: "finish",
    reason: reason === "length" && sequence.output.stopped ? "stop" : reason,
    text,
    usage: {
      promptTokens: promptLength,
      completionTokens: sequence.length - promptLength,
      cachedTokens: sequence.reused,
    },
    timings: {
      queueMs: (admittedAt ?? now) - submittedAt,
      prefillMs: (firstTokenAt ?? now) - (admittedAt ?? now),
      decodeMs: now - (firstTokenAt ?? now),
    },
  });
}
