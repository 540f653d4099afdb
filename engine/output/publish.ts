import type { Candidates } from "../backend/backend.ts";
import { alternatives, sample } from "../sampling/sampler.ts";
import { grown, publishedLength, type Sequence, unscored } from "../schedule/sequence.ts";
import type { Tokenizer } from "../tokenizer/types.ts";
import { EngineError } from "../api/errors.ts";
import type { FinishReason, TokenEvent, TokenLogprob } from "../api/events.ts";

/** Stores the scores of the next tokens without a score: one per row of `rows`. */
export function keepScores(sequence: Sequence, rows: readonly Candidates[]): void {
  let position = unscored(sequence)?.first ?? 0;
  const waiting = sequence.progress.held.filter((event) => event.type === "token");
  for (const row of rows) {
    const token = sequence.tokens[position];
    const logprob = row.probed[0] - row.logSumExp;
    if (position < sequence.promptLength) {
      sequence.progress.scores.push({ token, logprob, top: alternatives(row, sequence.logprobs ?? 0) });
    } else {
      const top = sequence.logprobs ? [{ token, logprob }] : [];
      Object.assign(waiting.shift()!, { logprob, top });
    }
    position++;
  }
}

/** Publishes the progress of a prompt that takes more than one step, or whose beginning was in the cache. */
export function publishProgress(sequence: Sequence): void {
  const { promptLength, admission: { at, reused }, progress: { reported } } = sequence;
  const cached = Math.min(sequence.kv.cached, promptLength);
  const complete = cached === promptLength;
  if (cached <= reported || (complete && reported === 0 && reused === 0)) return;
  sequence.progress.reported = cached;
  const timeMs = performance.now() - at!;
  sequence.stream.push({ type: "progress", processed: cached, total: promptLength, cached: reused, timeMs });
}

/**
 * Chooses the sequence's next token, publishes it, and adds the forced tokens after it. Returns why the answer ends
 * there; undefined if it continues.
 */
export function publishToken(
  sequence: Sequence,
  candidates: Candidates,
  tokenizer: Tokenizer,
): FinishReason | EngineError | undefined {
  const { form, logprobs } = sequence;
  const chosen = sequence.sampler.logits.draw
    ? candidates.drawn!
    : sample(candidates, sequence.sampler.params, sequence.sampler.random, form?.constrained);
  const token = candidates.ids[chosen];
  append(sequence, token);
  const taken = form?.take(token) ?? true;
  if (
    tokenizer.endTokens.has(token) && !sequence.ignoreEos && !(form?.constrained && taken && !form.complete)
  ) {
    sequence.progress.firstTokenAt ??= performance.now();
    return "stop";
  }
  if (!taken) return constraintFailed(form?.failure ?? `token ${token} was allowed and is refused`);
  hold(
    sequence,
    token,
    logprobs === undefined ? {} : {
      logprob: candidates.rawLogits[chosen] - candidates.logSumExp,
      top: alternatives(candidates, logprobs),
    },
  );
  publishHeld(sequence);
  const ending = addForced(sequence, tokenizer);
  publishHeld(sequence);
  return ending;
}

/** Adds the tokens that the constraint forces before the first sampled token. */
export function addFirstForced(sequence: Sequence, tokenizer: Tokenizer): void {
  sequence.progress.ending = addForced(sequence, tokenizer);
}

/**
 * Adds the forced tokens and holds their events. Returns why the answer ends with its last token; undefined if it
 * continues.
 */
function addForced(sequence: Sequence, tokenizer: Tokenizer): FinishReason | undefined {
  for (;;) {
    const ending = endingOf(sequence, tokenizer);
    const token = ending ? undefined : sequence.form?.takeForced();
    if (token === undefined) return ending;
    append(sequence, token);
    if (!tokenizer.endTokens.has(token) || !sequence.form!.complete) hold(sequence, token, {});
  }
}

/** Publishes the held events up to the first that still waits for its score. */
export function publishHeld(sequence: Sequence): void {
  const { progress: { held }, logprobs, stream } = sequence;
  if (!sequence.progress.prefilled || held.length === 0) return;
  sequence.progress.firstTokenAt ??= performance.now();
  const waits = held.findIndex((event) =>
    event.type === "token" && logprobs !== undefined && event.logprob === undefined
  );
  for (const event of held.splice(0, waits < 0 ? held.length : waits)) stream.push(event);
}

export function finish(sequence: Sequence, reason: FinishReason): void {
  if (!sequence.pooled) publishFinish(sequence, reason);
  end(sequence);
  sequence.pooled?.cancel();
}

/** Ends one sequence with an error; the others continue. */
export function failOne(sequence: Sequence, error: EngineError): void {
  end(sequence);
  sequence.stream.fail(error);
}

/**
 * Marks the sequence as done, so nothing more is published. The sequence keeps its place until the scheduler removes
 * it.
 */
export function end(sequence: Sequence): void {
  sequence.progress.done = true;
  sequence.unlisten();
  sequence.form?.close();
}

function publishFinish(sequence: Sequence, reason: FinishReason): void {
  const { submittedAt, promptLength, form, progress: { drafts, firstTokenAt } } = sequence;
  const { reused, at: admittedAt } = sequence.admission;
  const now = performance.now();
  const text = sequence.output.end();
  sequence.stream.push({
    type: "finish",
    reason: reason === "length" && sequence.output.stopped && !form?.constrained ? "stop" : reason,
    ...sequence.output.stopped && { stop: sequence.output.stop },
    text,
    usage: {
      promptTokens: promptLength,
      completionTokens: publishedLength(sequence) - promptLength,
      cachedTokens: reused,
      ...sequence.disk.stored && { stored: sequence.disk.stored },
      ...form?.thinking && { thinkingTokens: form.thinking.tokens },
      ...drafts.accepted + drafts.rejected > 0 && { drafts: { ...drafts } },
    },
    timings: {
      queueMs: (admittedAt ?? now) - submittedAt,
      prefillMs: (firstTokenAt ?? now) - (admittedAt ?? now),
      decodeMs: now - (firstTokenAt ?? now),
    },
  });
}

export function constraintFailed(reason: string): EngineError {
  return new EngineError(
    "constraint_failed",
    `The answer cannot be completed in the form that its constraint requires: ${reason}`,
  );
}

/** Appends a token to the sequence. */
export function append(sequence: Sequence, token: number): void {
  if (sequence.length === sequence.tokens.length) {
    sequence.tokens = grown(sequence.tokens, sequence.maxLength);
  }
  sequence.tokens[sequence.length++] = token;
  sequence.sampler.counts?.addGenerated(token);
  sequence.sampler.dry?.push(token);
}

/** Holds the event of the last appended token. */
function hold(sequence: Sequence, token: number, score: { logprob?: number; top?: TokenLogprob[] }): void {
  const { output, progress: { held }, form } = sequence;
  const event: TokenEvent = { type: "token", token, text: "", ...score };
  if (sequence.markers.has(token) && !form?.thinking?.isText(token)) {
    const text = output.cut();
    if (text !== "") held.push({ type: "text", text });
    event.marker = true;
  } else {
    event.text = form?.watched === false ? output.pushUnwatched(token) : output.push(token);
  }
  held.push(event);
}

/** Returns why the answer ends with its last token; undefined if it continues. */
function endingOf(sequence: Sequence, tokenizer: Tokenizer): FinishReason | undefined {
  const { output, form } = sequence;
  if (output.stopped) {
    return !form?.constrained || form.isWhole(keptTokens(sequence, tokenizer)) ? "stop" : "length";
  }
  if (form?.complete) return "stop";
  return sequence.length < sequence.maxLength ? undefined : "length";
}

/** Returns the answer's tokens before the stop text, which may begin inside a token. */
function keptTokens({ tokens, length, promptLength, output }: Sequence, tokenizer: Tokenizer): number[] {
  let end = length;
  let text = "";
  // Decoding from the middle of a character gives other text, so go back to its start.
  while (end > promptLength && (text.length < output.dropped || text.startsWith("\ufffd"))) {
    text = tokenizer.decode(tokens.subarray(--end, length), { continuation: true });
  }
  const rest = text.slice(0, Math.max(0, text.length - output.dropped));
  return [...tokens.subarray(promptLength, end), ...rest === "" ? [] : tokenizer.encode(rest)];
}
