import { channelForm } from "./testing_chat.ts";
import {
  type AdapterInfo,
  type ChatMessage,
  type ChatTemplateOptions,
  type Constraint,
  type EmbedRequest,
  type EmbedResult,
  type Engine,
  EngineError,
  type EngineState,
  type EngineStats,
  type GenerateRequest,
  type InfillTokens,
  type PooledInfo,
  type PromptImage,
  type RunningSequence,
  type Sender,
  type TokenEvent,
  type Tokenizer,
  type TokenLogprob,
  TooManyTokens,
} from "../engine/mod.ts";

const BOS = 256;
const END = 257;
const START = 258;
const SPECIAL = new Map([[BOS, "<s>"], [END, "<|end|>"], [START, "<|start|>"]]);

const utf8 = new TextEncoder();

/** A tokenizer with one token per byte, plus three control tokens. */
export const byteTokenizer: Tokenizer = {
  vocabSize: 259,
  bosToken: BOS,
  eosToken: END,
  padToken: undefined,
  separatorToken: undefined,
  endTokens: new Set([END]),
  infill: undefined,
  encode(text, { addSpecial = false, parseSpecial = false, atMost = Infinity } = {}) {
    const parts = parseSpecial ? text.split(/(<s>|<\|end\|>|<\|start\|>)/) : [text];
    const ids = parts.flatMap((part, i) => {
      return i % 2 === 1 ? [[...SPECIAL].find(([, name]) => name === part)![0]] : [...utf8.encode(part)];
    });
    if (ids.length > atMost) throw new TooManyTokens(ids.length);
    return addSpecial ? [BOS, ...ids] : ids;
  },
  decode(tokens, { special = false } = {}) {
    const bytes = [...tokens].flatMap((id) => {
      return id < 256 ? [id] : special ? [...utf8.encode(SPECIAL.get(id) ?? "")] : [];
    });
    return new TextDecoder().decode(new Uint8Array(bytes));
  },
  bytes: (token) => token < 256 ? Uint8Array.of(token) : new Uint8Array(),
  isControl: (token) => token >= 256,
  streamDecoder() {
    const decoder = new TextDecoder();
    return {
      push: (token) => token < 256 ? decoder.decode(Uint8Array.of(token), { stream: true }) : "",
      end: () => decoder.decode(),
    };
  },
};

export interface FakeEngineOptions {
  /** Maximum tokens of prompt and answer; default 1024. */
  contextLength?: number;
  /** The model's own context; default unknown. */
  trainedContext?: number;
  /** Requests that run at the same time; default 4. */
  slots?: number;
  /** Requests that may wait; default 128. */
  queue?: number;
  /** Milliseconds per token; default 0. */
  tokenMs?: number;
  /** Prompt tokens per progress event; default 64. */
  chunk?: number;
  /** Returns the answer; control tokens in its text become tokens. Default "Hello, wörld 🙂!". */
  reply?: (prompt: string, request: GenerateRequest) => string;
  /** Error to throw when the answer begins. */
  failure?: Error;
  /** Infill tokens of the vocabulary; default none. */
  infill?: InfillTokens;
  /** Returns why a constraint is refused, or undefined to accept it. */
  refuses?: (constraint: Constraint) => string | undefined;
  /** Pooling of embeddings; default rows of 8 by the last token. */
  pooled?: PooledInfo;
  /** The model's adapters; default none. */
  adapters?: readonly AdapterInfo[];
}

/** An Engine that follows the event contract and returns configured answers: deterministic, one byte per token. */
export class FakeEngine implements Engine {
  readonly model = {
    id: "demo",
    path: "models/demo.gguf",
    architecture: "fake",
    contextLength: 1024,
    trainedContext: undefined as number | undefined,
    vocabSize: byteTokenizer.vocabSize,
    created: 1_700_000_000,
    pooled: { kind: "last", size: 8 } as PooledInfo,
    adapters: undefined as readonly AdapterInfo[] | undefined,
  };
  readonly tokenizer: Tokenizer;
  readonly chatTemplate = {
    source: "{{ messages }}",
    takesSystem: true,
    render: renderChat,
    encode: encodeChat,
  };
  readonly chatForm = channelForm(
    START,
    (request) =>
      encodeChat(request.messages, { addGenerationPrompt: true, continueFinal: request.continueFinal }),
  );
  /** Every request that was submitted, in order. */
  readonly requests: GenerateRequest[] = [];
  readonly #options:
    & Required<
      Omit<FakeEngineOptions, "trainedContext" | "failure" | "infill" | "refuses" | "pooled" | "adapters">
    >
    & Pick<FakeEngineOptions, "failure" | "refuses">;
  /** The tenant and priority of every checked constraint, in order. */
  readonly checks: (Sender | undefined)[] = [];
  /** Every embedding request, in order. */
  readonly embeds: EmbedRequest[] = [];
  readonly #cancelAll = new AbortController();
  readonly #waiting: (() => void)[] = [];
  readonly #running: { -readonly [name in keyof RunningSequence]: RunningSequence[name] }[] = [];
  #generated = 0;
  #state: EngineState = "ready";
  #failure: EngineError | undefined;
  readonly #listeners = new Set<(state: EngineState) => void>();
  #idle = () => {};

  constructor(options: FakeEngineOptions = {}) {
    const reply = () => "Hello, wörld 🙂!";
    this.#options = { contextLength: 1024, slots: 4, queue: 128, tokenMs: 0, chunk: 64, reply, ...options };
    this.model.contextLength = this.#options.contextLength;
    this.model.trainedContext = options.trainedContext;
    if (options.pooled) this.model.pooled = options.pooled;
    this.model.adapters = options.adapters;
    this.tokenizer = { ...byteTokenizer, infill: options.infill };
  }

  get state(): EngineState {
    return this.#state;
  }

  get failure(): EngineError | undefined {
    return this.#failure;
  }

  onState(listener: (state: EngineState) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Moves to a state as a real engine would. Pass a failure with "failed". */
  become(state: EngineState, failure?: EngineError): void {
    this.#state = state;
    this.#failure = failure;
    for (const listener of [...this.#listeners]) listener(state);
  }

  encodePrompt(text: string): number[] {
    return byteTokenizer.encode(text, { addSpecial: true, parseSpecial: true });
  }

  encodeChat(messages: readonly ChatMessage[], options?: ChatTemplateOptions): number[] {
    return encodeChat(messages, options);
  }

  encodePair(query: string, document: string): number[] {
    return byteTokenizer.encode(`${query}\n${document}`);
  }

  /** Returns rows that depend on all tokens of a text. */
  readImage(): Promise<PromptImage> {
    return Promise.reject(new EngineError("not_supported", "The fake engine takes no images"));
  }

  embed(request: EmbedRequest): Promise<EmbedResult> {
    this.embeds.push(request);
    const { contextLength, pooled } = this.model;
    const tooLong = request.inputs.find(({ length }) => length > contextLength);
    if (tooLong) {
      const details = { n_prompt_tokens: tooLong.length, n_ctx: contextLength };
      return Promise.reject(new EngineError("context_length_exceeded", "The text is too long", details));
    }
    if (request.signal?.aborted) return Promise.reject(request.signal.reason);
    const rows = request.inputs.map((tokens) =>
      Float32Array.from(
        { length: pooled.size },
        (_, i) => tokens.reduce((h, t) => Math.sin(h + t * (i + 1)), 1),
      )
    );
    const promptTokens = request.inputs.reduce((sum, { length }) => sum + length, 0);
    return Promise.resolve({ rows, usage: { promptTokens, cachedTokens: 0 } });
  }

  checkConstraint(constraint: Constraint, sender?: Sender): Promise<void> {
    this.checks.push(sender);
    const refusal = this.#options.refuses?.(constraint);
    return refusal === undefined
      ? Promise.resolve()
      : Promise.reject(new EngineError("invalid_constraint", refusal));
  }

  async *submit(request: GenerateRequest): AsyncGenerator<TokenEvent> {
    this.#refuse(request);
    this.requests.push(request);
    const signal = AbortSignal.any([this.#cancelAll.signal, ...(request.signal ? [request.signal] : [])]);
    const { prompt, maxTokens } = request;
    const sequence = {
      id: this.requests.length - 1,
      promptTokens: prompt.length,
      cachedTokens: prompt.length,
      generatedTokens: 0,
      maxTokens: maxTokens ?? this.#options.contextLength - prompt.length,
    };
    await this.#admit(sequence, signal);
    try {
      for await (const event of this.#answer(request, signal)) {
        if (event.type === "token") sequence.generatedTokens++;
        yield event;
      }
    } finally {
      this.#running.splice(this.#running.indexOf(sequence), 1);
      this.#waiting.shift()?.();
      if (this.#running.length === 0) this.#idle();
    }
  }

  #refuse(request: GenerateRequest): void {
    if (this.#state === "draining") throw new EngineError("engine_closed", "The engine is closed");
    if (this.#state === "loading") throw new EngineError("engine_unavailable", "The engine is being loaded");
    if (this.#failure) throw this.#failure;
    const { contextLength, queue, slots } = this.#options;
    if (request.prompt.length >= contextLength) {
      throw new EngineError("context_length_exceeded", `The prompt has ${request.prompt.length} tokens`);
    }
    if (this.#running.length >= slots && this.#waiting.length >= queue) {
      throw new EngineError("queue_full", `${queue} requests wait already`);
    }
  }

  async #admit(sequence: RunningSequence, signal: AbortSignal): Promise<void> {
    if (this.#running.length >= this.#options.slots && !signal.aborted) {
      const { promise, resolve } = Promise.withResolvers<void>();
      const leave = () => {
        const place = this.#waiting.indexOf(resolve);
        if (place >= 0) this.#waiting.splice(place, 1);
        resolve();
      };
      signal.addEventListener("abort", leave);
      this.#waiting.push(resolve);
      await promise;
      signal.removeEventListener("abort", leave);
    }
    this.#running.push(sequence);
  }

  async *#answer(request: GenerateRequest, signal: AbortSignal): AsyncGenerator<TokenEvent> {
    const { contextLength, chunk, failure, reply } = this.#options;
    const { prompt, logprobs, stop = [] } = request;
    for (let processed = chunk; processed < prompt.length; processed += chunk) {
      await this.#step(signal);
      yield { type: "progress", processed, total: prompt.length, cached: 0, timeMs: processed };
    }
    if (failure) throw failure;
    if (request.promptLogprobs) yield { type: "prompt", logprobs: scorePrompt(prompt, logprobs ?? 0) };
    const answer = byteTokenizer.encode(reply(byteTokenizer.decode(prompt), request), { parseSpecial: true });
    const most = Math.min(request.maxTokens ?? contextLength, contextLength - prompt.length);
    const decoder = byteTokenizer.streamDecoder();
    let text = ""; // the text decoded so far
    let sent = 0;
    const take = (end: number) => text.slice(sent, sent = Math.max(end, sent));
    const finish = (
      reason: "stop" | "length" | "cancelled",
      count: number,
      end = text.length,
      stop?: string,
    ): TokenEvent => ({
      type: "finish",
      reason,
      ...(stop === undefined ? {} : { stop }),
      text: take(end),
      usage: {
        promptTokens: prompt.length,
        completionTokens: count,
        cachedTokens: 0,
        ...(request.thinking ? { thinkingTokens: thinkingTokens(answer.slice(0, count)) } : {}),
      },
      timings: { queueMs: 0, prefillMs: 0, decodeMs: 0 },
    });
    for (let count = 0; count < most; count++) {
      await this.#step(signal);
      if (signal.aborted) return yield finish("cancelled", count);
      if (count >= answer.length && !request.ignoreEos) return yield finish("stop", count + 1);
      const token = answer[count % answer.length];
      this.#generated++;
      if (request.markers?.has(token)) {
        if (sent < text.length) yield { type: "text", text: take(text.length) };
        yield { type: "token", token, text: "", marker: true, ...score(token, logprobs) };
        continue;
      }
      text += decoder.push(token);
      const found = firstStop(text, stop);
      const certain = found?.place ?? text.length - longestPrefix(text, stop);
      yield { type: "token", token, text: take(certain), ...score(token, logprobs) };
      if (found) return yield finish("stop", count + 1, found.place, found.word);
    }
    text += decoder.end();
    yield finish("length", most);
  }

  #step(signal: AbortSignal): Promise<void> {
    const { tokenMs } = this.#options;
    if (tokenMs === 0 || signal.aborted) return Promise.resolve();
    return new Promise((resolve) => {
      const done = () => {
        clearTimeout(timer);
        signal.removeEventListener("abort", done);
        resolve();
      };
      const timer = setTimeout(done, tokenMs);
      signal.addEventListener("abort", done);
    });
  }

  stats(): EngineStats {
    return {
      running: this.#running.length,
      waiting: this.#waiting.length,
      kvBlocksUsed: 0,
      kvBlocksTotal: 0,
      preemptions: 0,
      forcedTokens: 0,
      draftedTokens: 0,
      acceptedTokens: 0,
      promptTokens: 0,
      generatedTokens: this.#generated,
      cachedTokens: 0,
      steps: 0,
      rows: 0,
      stepRows: [],
      submits: 0,
      deviceLosses: 0,
      loosenedKeywords: 0,
    };
  }

  slots(): (RunningSequence | undefined)[] {
    return Array.from({ length: this.#options.slots }, (_, i) => this.#running[i]);
  }

  async drain(graceMs: number): Promise<void> {
    this.become("draining");
    if (this.#running.length === 0) return;
    const { promise: idle, resolve } = Promise.withResolvers<void>();
    const earlier = this.#idle;
    this.#idle = () => {
      earlier();
      resolve();
    };
    const timer = setTimeout(() => this.#cancelAll.abort(), graceMs);
    await idle;
    clearTimeout(timer);
  }

  async close(): Promise<void> {
    await this.drain(0);
  }
}

type RenderOptions = ChatTemplateOptions & { continueFinal?: boolean };

function encodeChat(messages: readonly ChatMessage[], options?: RenderOptions): number[] {
  return byteTokenizer.encode(renderChat(messages, options), { parseSpecial: true });
}

function renderChat(messages: readonly ChatMessage[], options: RenderOptions = {}): string {
  const text = messages.map(({ role, content }) => {
    if (content === "raise") {
      throw Object.assign(new Error("The template says no"), { name: "ChatTemplateError" });
    }
    return `<|start|>${role}\n${content ?? ""}<|end|>`;
  }).join("");
  if (options.continueFinal) return text.slice(0, -"<|end|>".length);
  return options.addGenerationPrompt ? `${text}<|start|>assistant\n` : text;
}

function score(token: number, logprobs: number | undefined) {
  return logprobs === undefined ? {} : { logprob: -token / 256, top: topOf(token, logprobs) };
}

/** Counts the tokens in the channel `think`, without the channel's name. */
function thinkingTokens(answer: readonly number[]): number {
  const thought = byteTokenizer.decode(answer, { special: true }).matchAll(/<\|start\|>think\n([^<]*)/g);
  return [...thought].reduce((sum, [, text]) => sum + utf8.encode(text).length, 0);
}

function topOf(token: number, count: number): TokenLogprob[] {
  return Array.from({ length: count }, (_, i) => ({ token: (token + i) % 256, logprob: -i - token / 256 }));
}

function scorePrompt(prompt: readonly number[], count: number) {
  return prompt.map((token, i) => ({ token, logprob: i ? -1 : null, top: i ? topOf(token, count) : [] }));
}

function firstStop(text: string, stop: readonly string[]): { word: string; place: number } | undefined {
  const found = stop.map((word) => ({ word, place: text.indexOf(word) })).filter(({ place }) => place >= 0);
  return found.sort((a, b) => a.place - b.place)[0];
}

/** Returns the number of characters at the end of `text` that may begin a stop text. */
function longestPrefix(text: string, stop: readonly string[]): number {
  const lengths = stop.flatMap((word) =>
    Array.from({ length: word.length }, (_, i) => i).filter((i) => text.endsWith(word.slice(0, i)))
  );
  return Math.max(0, ...lengths);
}
