import { type Engine, EngineError, type GenerateRequest, promptLength } from "../../engine/mod.ts";
import type { Answer } from "../answers.ts";
import type { Execute } from "./dispatch.ts";
import type { BatchRequest } from "../request.ts";
import { tokenCounts } from "../usage.ts";

/** Answers a request with the given engine, as its endpoint would. */
export type ExecuteWith = (engine: Engine, request: Parameters<Execute>[0]) => Promise<Answer>;

/** Token counts of one line. */
export interface LineTokens {
  readonly prompt: number;
  /** Maximum tokens of the line's answer. */
  readonly answer: number;
}

/** Reason why the endpoint would refuse a line. */
export interface Refused {
  readonly code: string;
  readonly message: string;
}

/** Measurements of a sample of lines. */
export interface Measured {
  /** Lines that were answered, and lines still running when the time was up. */
  readonly lines: number;
  readonly unfinished: number;
  readonly seconds: number;
  /** Tokens per second. Prompt tokens found in the prefix cache are not counted. */
  readonly promptRate: number;
  readonly outputRate: number;
  /** Share of prompt tokens found in the prefix cache, from 0 to 1. */
  readonly cachedShare: number;
  /** Average tokens per answer. An unfinished answer counts with its maximum length. */
  readonly outputPerLine: number;
}

/** Work of a prompt token relative to a generated one: prompt tokens are computed in parallel. */
const PROMPT_TOKEN_WORK = 0.25;
const MEASURE_MS = 15_000;

/** Thrown instead of computing an answer, once the tokens are counted. */
class Counted extends Error {}

/**
 * Counts the tokens of requests with the engine's own tokenizer and chat template, through the endpoint's code, without
 * computing an answer.
 */
export class TokenCounter {
  private readonly counting: Engine;
  private prompt = 0;
  private answer = 0;
  private refusal: EngineError | undefined;
  /** Prompts that are already counted: a request for several answers submits the same prompt several times. */
  private readonly prompts = new Set<unknown>();

  constructor(private readonly engine: Engine, private readonly execute: ExecuteWith) {
    const own: Partial<Engine> = {
      submit: (request) => ({ [Symbol.asyncIterator]: () => ({ next: () => this.count(request) }) }),
      embed: ({ inputs }) => {
        for (const input of inputs) this.add(input, 0);
        return Promise.reject(new Counted());
      },
    };
    this.counting = new Proxy(engine, {
      get: (target, key) => {
        const value = Reflect.get(own, key) ?? Reflect.get(target, key, target);
        return typeof value === "function" && !(key in own) ? value.bind(target) : value;
      },
    });
  }

  /** Returns the token counts of a request, or the reason of its refusal. Calls must not overlap. */
  async tokensOf({ url, body }: BatchRequest): Promise<LineTokens | Refused> {
    this.prompt = this.answer = 0;
    this.refusal = undefined;
    this.prompts.clear();
    const signal = new AbortController().signal;
    const answer = await this.execute(this.counting, { url, body, priority: "batch", signal });
    const refusal = this.refused();
    if (refusal !== undefined) return refusal;
    if (this.prompt > 0) return { prompt: this.prompt, answer: this.answer };
    const { error } = answer.body as { error?: { code?: unknown; message?: unknown } };
    return {
      code: String(error?.code ?? "request_failed"),
      message: String(error?.message ?? "it was refused"),
    };
  }

  private refused(): Refused | undefined {
    return this.refusal && { code: this.refusal.code, message: this.refusal.message };
  }

  private count({ prompt, images, maxTokens }: GenerateRequest): Promise<never> {
    const length = promptLength({ prompt, images }, this.engine.tokenizer);
    const room = Math.max(0, this.engine.model.contextLength - length);
    this.add(prompt, maxTokens === 0 ? 0 : 1, length);
    this.answer += Math.min(room, maxTokens ?? room);
    return Promise.reject(new Counted());
  }

  /** Counts a prompt, and refuses it if `wanted` more tokens do not fit into the context. */
  private add(prompt: readonly number[], wanted: number, length = prompt.length): void {
    if (this.prompts.has(prompt)) return;
    this.prompts.add(prompt);
    this.prompt += length;
    const { contextLength } = this.engine.model;
    if (length + wanted <= contextLength) return;
    const message = `the prompt has ${length} tokens, and the context holds ${contextLength}` +
      `${wanted > 0 ? ", with at least one for the answer" : ""}: shorten it, or give more (--ctx)`;
    this.refusal ??= new EngineError("context_length_exceeded", message);
  }
}

/** Uniform random sample of a stream of unknown length. The fixed seed makes runs repeatable. */
export class Sample<T> {
  readonly chosen: T[] = [];
  private seen = 0;
  private state = 1;

  constructor(private readonly size: number) {}

  add(item: T): void {
    this.seen += 1;
    if (this.chosen.length < this.size) {
      this.chosen.push(item);
      return;
    }
    this.state = (Math.imul(this.state, 1664525) + 1013904223) >>> 0;
    const place = Math.floor(this.state / 2 ** 32 * this.seen);
    if (place < this.size) this.chosen[place] = item;
  }
}

/** Answers sample lines in parallel, for MEASURE_MS at most, and returns the measured rates. */
export async function measureLines(
  engine: Engine,
  execute: ExecuteWith,
  lines: readonly { readonly request: BatchRequest; readonly tokens: LineTokens }[],
  parallel: number,
  signal: AbortSignal,
): Promise<Measured> {
  const stop = AbortSignal.any([signal, AbortSignal.timeout(MEASURE_MS)]);
  const before = engine.stats();
  const start = performance.now();
  const left = [...lines];
  let finished = 0;
  let unfinished = 0;
  let output = 0;
  const answerSome = async () => {
    for (let line = left.shift(); line !== undefined && !stop.aborted; line = left.shift()) {
      const { url, body } = line.request;
      try {
        const answer = await execute(engine, { url, body, priority: "batch", signal: stop });
        finished += 1;
        output += tokenCounts(answer.body).output;
      } catch (error) {
        if (!stop.aborted) throw error;
        unfinished += 1;
        output += line.tokens.answer;
      }
    }
  };
  await Promise.all(Array.from({ length: parallel }, answerSome));
  signal.throwIfAborted();
  const seconds = Math.max(1e-3, (performance.now() - start) / 1000);
  const after = engine.stats();
  const prompt = after.promptTokens - before.promptTokens;
  const cached = after.cachedTokens - before.cachedTokens;
  return {
    lines: finished,
    unfinished,
    seconds,
    promptRate: (prompt - cached) / seconds,
    outputRate: (after.generatedTokens - before.generatedTokens) / seconds,
    cachedShare: cached / Math.max(1, prompt),
    outputPerLine: output / Math.max(1, finished + unfinished),
  };
}

/** Returns the estimated seconds for this many lines and prompt tokens, from measured rates. */
export function forecastSeconds(lines: number, promptTokens: number, measured: Measured): number {
  const { promptRate, outputRate, cachedShare, outputPerLine } = measured;
  const work = promptTokens * (1 - cachedShare) * PROMPT_TOKEN_WORK + lines * outputPerLine;
  return work / Math.max(1e-9, promptRate * PROMPT_TOKEN_WORK + outputRate);
}
