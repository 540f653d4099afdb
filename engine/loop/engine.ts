import { AnswerForm } from "../output/answer_form.ts";
import { type Backend, DeviceLost } from "../backend/backend.ts";
import type { ChatForm } from "../chat/types.ts";
import { Embeddings } from "./embeddings.ts";
import { EngineLife, failureOf } from "./engine_life.ts";
import { EventStream } from "./event_stream.ts";
import type { Asker, Constraint, Grammar, Grammars } from "../grammar/types.ts";
import { askerOf, compileConstraint } from "./constraints.ts";
import { addFirstForced, end, failOne, finish } from "../output/publish.ts";
import { type Contexts, contextsOf, createSequence, encodeBounded } from "../schedule/request.ts";
import { Scheduler } from "../schedule/scheduler.ts";
import type { EngineLimits } from "../schedule/limits.ts";
import { inNumbers, type Sequence } from "../schedule/sequence.ts";
import type { Speculation } from "../speculation/speculation.ts";
import { StepRunner } from "./step_runner.ts";
import { computeRows, type ImageReader, NO_IMAGES } from "../schedule/images.ts";
import { Totals } from "./totals.ts";
import type { PromptDisk } from "../cache/disk/types.ts";
import { StoredPrefixes } from "../cache/stored_prefixes.ts";
import {
  type ChatMessage,
  type ChatTemplate,
  type ChatTemplateOptions,
  type RankTemplate,
  type Tokenizer,
} from "../tokenizer/types.ts";
import type { Engine, EngineState, EngineStats, ModelInfo, RunningSequence } from "../api/engine.ts";
import { EngineError } from "../api/errors.ts";
import type { TokenEvent } from "../api/events.ts";
import type { EmbedRequest, EmbedResult, GenerateRequest, Sender } from "../api/request.ts";

/** Longest delay of setTimeout; it fires at once for longer ones. */
const MAX_TIMEOUT_MS = 2 ** 31 - 1;

export interface LlmEngineOptions {
  /** The backend, with weights loaded and plan compiled. The engine closes it. */
  readonly backend: Backend;
  readonly model: ModelInfo;
  readonly tokenizer: Tokenizer;
  readonly chatTemplate: ChatTemplate;
  readonly chatForm: ChatForm;
  readonly rankTemplate: RankTemplate;
  /** Compiles the constraints of requests. The engine closes it. */
  readonly grammars: Grammars;
  /** Limits of the engine. `kvBlocks`, `maxRows` and `maxLogitRows` must be the values that the backend got. */
  readonly limits: EngineLimits;
  /** Stores prompts on a disk, if the backend can copy its KV cache. The engine closes it. */
  readonly promptDisk?: PromptDisk;
  /** Computes the rows of images. The engine closes it. */
  readonly tower?: ImageReader;
  /** Proposes draft tokens. The engine closes it. Not for a backend that samples tokens itself. */
  readonly speculation?: Speculation;
}

/** Runs requests together on one backend: it schedules a step, computes it and publishes its tokens, in a loop. */
export class LlmEngine implements Engine {
  readonly model: ModelInfo;
  readonly tokenizer: Tokenizer;
  readonly chatTemplate: ChatTemplate;
  readonly chatForm: ChatForm;
  readonly #backend: Backend;
  readonly #grammars: Grammars;
  readonly #scheduler: Scheduler;
  readonly #stored: StoredPrefixes | undefined;
  readonly #rankTemplate: RankTemplate;
  readonly #embeddings: Embeddings;
  readonly #speculation: Speculation | undefined;
  readonly #tower: ImageReader | undefined;
  readonly #contexts: Contexts;
  readonly #life = new EngineLife("ready");
  /** Sequences whose constraint is being compiled. */
  readonly #starting = new Set<Sequence>();
  #looping = false;
  /** The error with which new requests are refused. */
  #refusal: EngineError | undefined;
  #backendOpen = true;
  /** The loss of the compute device, before a request has failed because of it. */
  #lost: DeviceLost | undefined;
  #idleCallbacks: (() => void)[] = [];
  #requests = 0;
  readonly #totals = new Totals();
  readonly #steps: StepRunner;

  constructor(options: LlmEngineOptions) {
    const { backend, model, tokenizer, chatTemplate, chatForm, rankTemplate, grammars, limits, promptDisk } =
      options;
    this.model = model;
    this.tokenizer = tokenizer;
    this.chatTemplate = chatTemplate;
    this.chatForm = {
      toolFormat: chatForm.toolFormat,
      markers: chatForm.markers,
      plan: (request) => this.#encode((atMost) => chatForm.plan({ ...request, atMost })),
    };
    this.#backend = backend;
    this.#grammars = grammars;
    this.#stored = promptDisk && new StoredPrefixes(promptDisk, backend, () => this.#wake());
    this.#speculation = options.speculation;
    this.#tower = options.tower;
    this.#scheduler = new Scheduler(
      { wholeRows: backend.wholeRows, ...limits },
      this.#stored,
      (sequence) => this.#speculation?.forget(sequence),
    );
    this.#steps = new StepRunner({
      backend,
      scheduler: this.#scheduler,
      stored: this.#stored,
      grammars,
      tokenizer,
      totals: this.#totals,
      speculation: options.speculation,
      vocabSize: model.vocabSize,
      maxRows: limits.maxRows,
      storePrompt: (sequence) => void this.#storePrompt(sequence),
    });
    backend.lost?.then((error) => {
      this.#lost = error;
      if (!this.#looping) this.#failIfLost();
    });
    this.#contexts = contextsOf(model, limits);
    this.#rankTemplate = rankTemplate;
    this.#embeddings = new Embeddings({
      model,
      tokenizer,
      contextLength: this.#contexts.contextLength,
      maxRows: limits.maxRows,
      stepRows: limits.stepRows ?? limits.maxRows,
      most: limits.parallel + limits.queue,
      nextId: () => this.#requests++,
      add: (sequence) => this.#enqueue(sequence, undefined),
      cancel: (sequence) => this.#cancel(sequence),
    });
  }

  get state(): EngineState {
    return this.#life.state;
  }

  get failure(): EngineError | undefined {
    return this.#life.failure;
  }

  onState(listener: (state: EngineState) => void): () => void {
    return this.#life.onState(listener);
  }

  encodePrompt(text: string): number[] {
    return this.#encode((atMost) =>
      this.tokenizer.encode(text, { addSpecial: true, parseSpecial: true, atMost })
    );
  }

  encodeChat(messages: readonly ChatMessage[], options?: ChatTemplateOptions): number[] {
    return this.#encode((atMost) => this.chatTemplate.encode(messages, { ...options, atMost }));
  }

  encodePair(query: string, document: string): number[] {
    return this.#encode((atMost) => this.#rankTemplate.encode(query, document, atMost));
  }

  #encode<T>(encode: (atMost: number) => T): T {
    return encodeBounded(encode, this.#contexts, this.model.pooled?.encoder);
  }

  async checkConstraint(constraint: Constraint, sender?: Sender): Promise<void> {
    if (this.#refusal) throw this.#refusal;
    await this.#grammarOf(constraint, askerOf(sender));
  }

  async readImage(bytes: Uint8Array<ArrayBuffer>, signal?: AbortSignal, sender?: Sender) {
    if (!this.#tower) throw new EngineError("not_supported", NO_IMAGES);
    return await this.#tower.read(bytes, askerOf(sender), signal);
  }

  submit(request: GenerateRequest): AsyncIterable<TokenEvent> {
    let sequence: Sequence | undefined;
    const stream: EventStream = new EventStream({
      start: () => {
        sequence = this.#sequenceOf(request, stream);
        return this.#start(sequence, request);
      },
      leave: () => this.#cancel(sequence!),
      resume: () => this.#wake(),
    });
    return stream;
  }

  async embed(request: EmbedRequest): Promise<EmbedResult> {
    if (this.#refusal) throw this.#refusal;
    return await this.#embeddings.run(request);
  }

  stats(): EngineStats {
    const { running, waiting, preemptions, cache } = this.#scheduler;
    // An encoder has no KV cache: its blocks have no bytes.
    const kv = this.model.pooled?.encoder
      ? { kvBlocksUsed: 0, kvBlocksTotal: 0 }
      : { kvBlocksUsed: cache.used, kvBlocksTotal: cache.total };
    const disk = this.#stored?.stats();
    return {
      running,
      waiting: waiting + this.#starting.size,
      ...kv,
      preemptions,
      ...this.#totals.stats(),
      loosenedKeywords: this.#grammars.loosened,
      disk,
    };
  }

  slots(): (RunningSequence | undefined)[] {
    return this.#scheduler.slots().map((sequence) => sequence && inNumbers(sequence));
  }

  async drain(graceMs: number): Promise<void> {
    this.#refusal ??= new EngineError(
      "engine_closed",
      "The engine is shutting down and takes no new requests",
    );
    this.#life.become("draining");
    const cutOff = setTimeout(() => this.#cancelAll(), Math.min(graceMs, MAX_TIMEOUT_MS));
    await this.#idle();
    clearTimeout(cutOff);
  }

  /** Cancels all requests and closes the backend. */
  async close(): Promise<void> {
    this.#refusal ??= new EngineError("engine_closed", "The engine is closed");
    this.#life.become("draining");
    this.#cancelAll();
    await this.#idle();
    if (!this.#backendOpen) return;
    this.#backendOpen = false; // from here on, #wake() does nothing
    await this.#idle(); // waits for a loop that was started just before
    await this.#stored?.flush(this.#scheduler).catch(() => {}); // if this fails, prompts are computed again later
    await this.#stored?.close();
    this.#speculation?.close();
    this.#tower?.close();
    this.#backend.close();
    this.#grammars.close();
    this.#steps.close();
  }

  #sequenceOf(request: GenerateRequest, stream: EventStream): Sequence {
    if (this.#refusal) throw this.#refusal;
    if (this.model.pooled?.encoder) {
      throw new EngineError("not_supported", `The model "${this.model.id}" generates no text`);
    }
    return createSequence(request, {
      id: this.#requests++,
      stream,
      tokenizer: this.tokenizer,
      vocabSize: this.model.vocabSize,
      ...this.#contexts,
      draws: this.#backend.abilities.draws !== undefined,
      stores: this.#stored !== undefined,
      adapters: this.model.adapters,
      images: this.#tower !== undefined,
    });
  }

  /** Queues the sequence: at once, or when its constraint is compiled and the rows of its images are computed. */
  #start(sequence: Sequence, { constraint, thinking, signal }: GenerateRequest): void | Promise<void> {
    if (signal?.aborted) return finish(sequence, "cancelled");
    if (constraint || sequence.images) return this.#prepare(sequence, { constraint, thinking, signal });
    if (thinking) sequence.form = this.#formOf(undefined, thinking);
    this.#enqueue(sequence, signal);
  }

  async #prepare(
    sequence: Sequence,
    { constraint, thinking, signal }: Pick<GenerateRequest, "constraint" | "thinking" | "signal">,
  ): Promise<void> {
    this.#starting.add(sequence);
    try {
      const asker = { tenant: sequence.salt, batch: sequence.batch };
      const grammar = constraint && await this.#grammarOf(constraint, asker);
      if (sequence.images) await computeRows(sequence, this.#tower!, asker, signal);
      if (sequence.progress.done) return;
      if (signal?.aborted) return finish(sequence, "cancelled");
      if (grammar || thinking) sequence.form = this.#formOf(grammar, thinking);
      this.#enqueue(sequence, signal);
    } catch (error) {
      end(sequence);
      throw error;
    } finally {
      this.#starting.delete(sequence);
      this.#noteIdle();
    }
  }

  #formOf(grammar: Grammar | undefined, thinking: GenerateRequest["thinking"]): AnswerForm {
    return new AnswerForm(grammar, thinking, (token) => this.tokenizer.bytes(token));
  }

  #grammarOf(constraint: Constraint, asker: Asker): Promise<Grammar> {
    return compileConstraint(this.#grammars, constraint, asker, () => this.#refusal);
  }

  #enqueue(sequence: Sequence, signal: AbortSignal | undefined): void {
    if (sequence.form) addFirstForced(sequence, this.tokenizer);
    this.#scheduler.add(sequence);
    if (signal) {
      const cancel = () => this.#cancel(sequence);
      signal.addEventListener("abort", cancel, { once: true });
      sequence.unlisten = () => signal.removeEventListener("abort", cancel);
    }
    this.#wake();
  }

  #wake(): void {
    if (this.#looping || !this.#backendOpen) return;
    this.#looping = true;
    queueMicrotask(() => this.#loop()); // delayed, so that requests of the same turn share the first step
  }

  /**
   * Runs steps until nothing can run. After that is found, no `await` may come before `#looping = false`: a request that
   * arrives in between would not wake the loop.
   */
  async #loop(): Promise<void> {
    try {
      const stored = this.#stored;
      for (let idle = true;;) {
        if (stored?.pending) await stored.exchange(this.#scheduler, idle);
        idle = !this.#steps.schedule();
        if (!idle) await this.#steps.run();
        else if (!stored?.pending) break;
      }
    } catch (error) {
      this.#fail(error);
    }
    this.#looping = false;
    this.#failIfLost();
    this.#noteIdle();
  }

  /** Ends the sequence when its prompt is stored on the disk. Until then the sequence keeps its blocks. */
  async #storePrompt(sequence: Sequence): Promise<void> {
    try {
      const isStored = await this.#stored!.storePrompt(sequence);
      if (!isStored || sequence.progress.done) return;
      finish(sequence, "length");
    } catch (error) {
      if (sequence.progress.done) return;
      const reason = error instanceof Error ? error.message : String(error);
      const message = `The prompt cannot be kept on the disk: ${reason}`;
      failOne(sequence, new EngineError("prompt_not_stored", message));
    }
    this.#scheduler.remove(sequence);
    this.#wake();
  }

  /** Frees the sequence's place at once, or at the end of the step that computes it. */
  #cancel(sequence: Sequence): void {
    if (sequence.progress.done) return;
    finish(sequence, "cancelled");
    if (this.#steps.computes(sequence)) return this.#steps.stopIfDone();
    this.#scheduler.remove(sequence);
    this.#wake();
  }

  #cancelAll(): void {
    for (const sequence of [...this.#scheduler.sequences(), ...this.#starting]) this.#cancel(sequence);
  }

  /** Fails the engine as soon as the device is lost, so that the next request does not have to discover it. */
  #failIfLost(): void {
    if (this.#lost && this.#backendOpen && this.state !== "failed") this.#fail(this.#lost);
  }

  #fail(cause: unknown): void {
    if (cause instanceof DeviceLost) this.#totals.lostDevice();
    const error = this.#refusal = failureOf(cause);
    this.#steps.drop();
    for (const sequence of [...this.#scheduler.sequences(), ...this.#starting]) {
      this.#scheduler.remove(sequence);
      if (!sequence.progress.done) failOne(sequence, error);
    }
    this.#stored?.drop();
    this.#life.fail(error);
  }

  /** Resolves when no request runs or waits. */
  #idle(): Promise<void> {
    return new Promise((resolve) => {
      this.#idleCallbacks.push(resolve);
      this.#noteIdle();
    });
  }

  #noteIdle(): void {
    const busy = this.#scheduler.running + this.#scheduler.waiting + this.#starting.size > 0;
    if (this.#looping || busy) return;
    for (const callback of this.#idleCallbacks.splice(0)) callback();
  }
}
