import type { Candidates, StepOutput } from "../backend/backend.ts";
import { alternatives, sample } from "../sampling/sampler.ts";
import type { MaskResult, StepMasks } from "../sampling/step_masks.ts";
import type { Scheduler } from "../schedule/scheduler.ts";
import { grown, publishedLength, type Sequence, unscored } from "../schedule/sequence.ts";
import type { Scheduled } from "../schedule/step_part.ts";
import type { ComputedRows } from "../speculation/drafter.ts";
import type { Tokenizer } from "../tokenizer/types.ts";
import type { Totals } from "../loop/totals.ts";
import { EngineError } from "../api/errors.ts";
import type { FinishReason, TokenEvent, TokenLogprob } from "../api/events.ts";

interface PublisherContext {
  readonly scheduler: Scheduler;
  readonly tokenizer: Tokenizer;
  readonly totals: Totals;
  /** Ends a sequence after its prompt is stored on the disk. */
  readonly storePrompt: (sequence: Sequence) => void;
}

/** A step that was computed. */
interface ComputedStep {
  readonly step: readonly Scheduled[];
  readonly masks: StepMasks;
  readonly output: StepOutput;
  /** Number of outputs of the same backend call before this one. */
  readonly earlier: number;
}

/** Publishes the results of a step's rows to its sequences: scores, tokens and the end. */
export class StepPublisher {
  readonly #context: PublisherContext;

  constructor(context: PublisherContext) {
    this.#context = context;
  }

  /** Publishes one output. Returns the rows of the sequences that continue. */
  publish({ step, masks, output, earlier }: ComputedStep): ComputedRows[] {
    const { scheduler, storePrompt } = this.#context;
    const counted: ComputedRows[] = [];
    let [row, pooled, start] = [0, 0, 0];
    for (const part of step) {
      const { sequence, rows, scores, samples, drafts, pools } = part;
      const position = sequence.kv.cached;
      const scored = output.rows.slice(row, row += scores);
      const sampled = samples ? output.rows.slice(row, row += 1 + drafts.length) : [];
      const pooledRow = pools ? output.pooled![pooled++] : undefined;
      const first = start;
      start += rows + drafts.length;
      if (sequence.progress.done && earlier > 0) continue; // void: computed after the sequence's end
      if (drafts.length === 0) scheduler.advance(part);
      if (sequence.progress.done) continue;
      if (sequence.pooled) {
        if (pooledRow) this.#publishPooled(sequence, pooledRow);
        continue;
      }
      keepScores(sequence, scored);
      if (!sequence.progress.prefilled) this.#publishPrompt(sequence);
      publishHeld(sequence);
      let right = 0;
      if (sampled.length > 0) {
        right = this.#publishTokens(part, sampled, masks);
        if (drafts.length > 0) scheduler.advance(part, right);
      } else if (sequence.kv.cached === sequence.length) {
        if (sequence.disk.mustStore) storePrompt(sequence);
        else finish(sequence, sequence.progress.ending ?? "length");
      }
      if (!sequence.progress.done) counted.push({ sequence, start: first, position, valid: rows + right });
    }
    return counted;
  }

  #publishPooled(sequence: Sequence, row: Float32Array): void {
    this.#context.totals.read(sequence.length, sequence.admission.reused);
    end(sequence);
    sequence.pooled!.give(row);
  }

  #publishPrompt(sequence: Sequence): void {
    publishProgress(sequence);
    if (sequence.kv.cached < sequence.promptLength) return;
    sequence.progress.prefilled = true;
    this.#context.totals.read(sequence.promptLength, sequence.admission.reused);
    this.#context.totals.generated(sequence.length - sequence.promptLength, 0);
    if (sequence.promptLogprobs) sequence.stream.push({ type: "prompt", logprobs: sequence.progress.scores });
  }

  /**
   * Publishes the tokens of a sequence's rows, up to the first that differs from its draft. Returns the number of
   * correct drafts.
   */
  #publishTokens({ sequence, drafts }: Scheduled, sampled: readonly Candidates[], masks: StepMasks): number {
    const first = sequence.length;
    sequence.progress.drafts.rejected += drafts.length;
    let right = 0;
    for (const [i, candidates] of sampled.entries()) {
      // A forced token is already in the sequence.
      if (sequence.length === first + i) {
        this.#publishToken(sequence, candidates, i === 0 ? masks.resultOf(sequence) : "allows");
      }
      const ends = sequence.progress.done || sequence.progress.ending !== undefined;
      // Tokens that wait for their scores need separate rows.
      if (ends || unscored(sequence) || sequence.tokens[first + i] !== drafts[i]) break;
      // The next token has no mask, so a later step computes its row again and samples then.
      if (sequence.length === first + i + 1 && !masks.follow(sequence, i + 1)) break;
      right++;
      sequence.progress.drafts.rejected--;
      sequence.progress.drafts.accepted++;
    }
    this.#context.totals.drafted(drafts.length, right);
    return right;
  }

  #publishToken(sequence: Sequence, candidates: Candidates, mask: MaskResult): void {
    if (mask === "nothing follows") return finish(sequence, "stop");
    if (mask !== "allows") return failOne(sequence, constraintFailed(mask.failure));
    if (candidates.ids.length === 0 || !Number.isFinite(candidates.logSumExp)) {
      const message =
        `The model gave no usable logits for token ${sequence.length}: its weights may be damaged`;
      return failOne(sequence, new EngineError("engine_failed", message));
    }
    const before = sequence.length;
    const ending = this.#chooseToken(sequence, candidates);
    this.#context.totals.generated(sequence.length - before, 1);
    if (ending instanceof EngineError) return failOne(sequence, ending);
    sequence.progress.ending = ending;
    if (ending && sequence.progress.held.length === 0) finish(sequence, ending);
  }

  /** Chooses and publishes a token as publishToken does. A matcher error ends only its sequence, not the engine. */
  #chooseToken(sequence: Sequence, candidates: Candidates): FinishReason | EngineError | undefined {
    try {
      return publishToken(sequence, candidates, this.#context.tokenizer);
    } catch (error) {
      if (!sequence.form?.constrained) throw error;
      return constraintFailed(error instanceof Error ? error.message : String(error));
    }
  }
}

/** Stores one score per row of `rows`, for the next tokens without a score. */
function keepScores(sequence: Sequence, rows: readonly Candidates[]): void {
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

/** Publishes the progress of a prompt that takes several steps, or whose beginning was in the KV cache. */
function publishProgress(sequence: Sequence): void {
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
function publishToken(
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
 * Adds forced tokens to the sequence and holds their events. Returns why the answer ends with the last one; undefined
 * if it continues.
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

/** Publishes the held events up to the first one that waits for its score. */
function publishHeld(sequence: Sequence): void {
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

/** Marks the sequence as done, so that nothing more is published. The scheduler later frees its place. */
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

function constraintFailed(reason: string): EngineError {
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

/** Holds the event of the sequence's last token. */
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

/** Returns why the answer ends with the sequence's last token; undefined if it continues. */
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
  // Decoding from the middle of a character gives a different text, so the end moves back to the character's start.
  while (end > promptLength && (text.length < output.dropped || text.startsWith("\ufffd"))) {
    text = tokenizer.decode(tokens.subarray(--end, length), { continuation: true });
  }
  const rest = text.slice(0, Math.max(0, text.length - output.dropped));
  return [...tokens.subarray(promptLength, end), ...rest === "" ? [] : tokenizer.encode(rest)];
}
