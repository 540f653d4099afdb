import type { GenerateRequest } from "../../engine/mod.ts";
import type { Account, AnswerWatch } from "../access/account.ts";
import type { Caller } from "../access/caller.ts";
import type { Metrics } from "./metrics.ts";

/** One line of the request log: what a request was and used, without its texts. Times are in milliseconds. */
export interface LogEntry {
  /** Arrival time, ISO 8601 in UTC. */
  readonly time: string;
  readonly id: string;
  /** Name of the request's API key. */
  readonly key?: string;
  readonly method: string;
  /** Pattern of the request's path; `other` if no route matches. */
  readonly route: string;
  readonly status: number;
  /** Milliseconds from the head of the request to the last byte of the answer. */
  readonly ms: number;
  /** Code of a refusal, or of a failure during the stream. */
  readonly error?: string;
  /** Set when the client left before the answer was complete. */
  readonly left?: true;
  readonly model?: string;
  readonly prompt_tokens?: number;
  readonly completion_tokens?: number;
  readonly cached_tokens?: number;
  /** Milliseconds in the queue. With several answers, each time is the longest of all answers. */
  readonly queue_ms?: number;
  readonly prefill_ms?: number;
  readonly decode_ms?: number;
  /** Reasons why the answers ended, in the order of their ends. */
  readonly finish?: readonly string[];
}

/** Collects the facts about one HTTP request, and counts its tokens against the caller's limits. */
export class RequestRecord implements Account {
  readonly #began = performance.now();
  readonly #time = new Date();
  readonly #prompts = new Set<GenerateRequest["prompt"]>();
  #answers: Answers | undefined;
  /** The caller, once the API key is known. */
  caller: Caller | undefined;
  #error: string | undefined;

  constructor(private readonly metrics: Metrics) {}

  enter(): () => void {
    return this.caller?.allowance.enter() ?? (() => {});
  }

  failed(code: string): void {
    this.#error = code;
  }

  watch(model: string, request: Pick<GenerateRequest, "prompt">): AnswerWatch {
    const answers = this.#answers ??= new Answers(model);
    const metered = this.metrics.watch(model);
    const { allowance } = this.caller ?? {};
    const { prompt } = request;
    const isFirst = !this.#prompts.has(prompt);
    const promptTokens = isFirst ? prompt.length : 0;
    this.#prompts.add(prompt);
    answers.promptTokens += promptTokens;
    allowance?.take(promptTokens);
    let counted = 0;
    const generated = (tokens: number) => {
      counted += tokens;
      answers.completionTokens += tokens;
      allowance?.take(tokens);
    };
    return {
      event(event) {
        if (event.type === "token") generated(1);
        else if (event.type === "finish") {
          generated(event.usage.completionTokens - counted); // the token that ended the answer is not an event
          answers.finished(event, prompt);
        }
        metered.event(event);
      },
      refused() {
        answers.promptTokens -= promptTokens;
        allowance?.take(-promptTokens);
      },
    };
  }

  read(model: string, tokens: number): () => void {
    const answers = this.#answers ??= new Answers(model);
    const take = (tokens: number) => {
      answers.promptTokens += tokens;
      this.caller?.allowance.take(tokens);
    };
    take(tokens);
    return () => take(-tokens);
  }

  /** Returns the line of the log, once the answer has ended. */
  entry(request: Pick<LogEntry, "id" | "method" | "route" | "status">, left: boolean): LogEntry {
    const { caller } = this;
    const error = this.#error;
    return {
      time: this.#time.toISOString(),
      id: request.id,
      ...(caller?.name === undefined ? {} : { key: caller.name }),
      method: request.method,
      route: request.route,
      status: request.status,
      ms: rounded(performance.now() - this.#began),
      ...(error === undefined ? {} : { error }),
      ...(left ? { left: true } : {}),
      ...this.#answers?.fields(),
    };
  }
}

/** Totals of the answers to one request. */
class Answers {
  promptTokens = 0;
  completionTokens = 0;
  /** Cached tokens per prompt, shared by all its answers: one answer may find tokens that another has computed. */
  readonly #cachedTokens = new Map<GenerateRequest["prompt"], number>();
  readonly #finish: string[] = [];
  #queueMs = 0;
  #prefillMs = 0;
  #decodeMs = 0;

  constructor(private readonly model: string) {}

  finished(
    { reason, usage, timings }: Extract<Parameters<AnswerWatch["event"]>[0], { type: "finish" }>,
    prompt: GenerateRequest["prompt"],
  ): void {
    this.#finish.push(reason);
    const found = this.#cachedTokens.get(prompt) ?? Infinity;
    this.#cachedTokens.set(prompt, Math.min(found, usage.cachedTokens));
    this.#queueMs = Math.max(this.#queueMs, timings.queueMs);
    this.#prefillMs = Math.max(this.#prefillMs, timings.prefillMs);
    this.#decodeMs = Math.max(this.#decodeMs, timings.decodeMs);
  }

  fields(): Partial<LogEntry> {
    const tokens = {
      model: this.model,
      prompt_tokens: this.promptTokens,
      completion_tokens: this.completionTokens,
    };
    if (this.#finish.length === 0) return tokens;
    return {
      ...tokens,
      cached_tokens: this.#cachedTokens.values().reduce((total, tokens) => total + tokens, 0),
      queue_ms: rounded(this.#queueMs),
      prefill_ms: rounded(this.#prefillMs),
      decode_ms: rounded(this.#decodeMs),
      finish: this.#finish,
    };
  }
}

function rounded(ms: number): number {
  return Math.round(10 * ms) / 10;
}
