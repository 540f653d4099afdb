/** A fake model and tokenizer for tests: small, deterministic, and strict about the engine's calls. */
import { concat } from "@std/bytes/concat.js";
import {
  type Abilities,
  type Backend,
  type CacheParts,
  type Candidates,
  DeviceLost,
  type Draw,
  drawMark,
  KV_BLOCK_TOKENS,
  type LogitsRequest,
  MAX_CANDIDATES,
  type StepInput,
  type StepOutput,
  type StepSequence,
  StepStopped,
} from "../engine/backend/backend.ts";
import { createChatForm } from "../engine/chat/chat_form.ts";
import { FakeGrammars } from "./grammars.ts";
import { LlmEngine } from "../engine/loop/engine.ts";
import type { Grammars } from "../engine/grammar/types.ts";
import type { PromptDisk } from "../engine/cache/disk/types.ts";
import type { EngineLimits } from "../engine/schedule/limits.ts";
import type { Speculation } from "../engine/speculation/speculation.ts";
import { deviationOf } from "./sampling.ts";
import {
  type ChatTemplate,
  type EncodeOptions,
  type StreamDecoder,
  type Tokenizer,
  TooManyTokens,
} from "../engine/tokenizer/types.ts";
import type { Engine, PooledInfo } from "../engine/api/engine.ts";
import type { TokenEvent } from "../engine/api/events.ts";
import type { GenerateRequest } from "../engine/api/request.ts";

/** Bytes of a copied KV block, and of a copied state. */
export const FAKE_BLOCK_BYTES = 12 * KV_BLOCK_TOKENS;
export const FAKE_STATE_BYTES = 4 * 1200;
export const BOS = 256;
export const EOS = 257;
export const FAKE_VOCABULARY = 258;

/** Returns the raw logits after a text. They hash all its tokens, so one wrong token changes everything after it. */
export function fakeLogits(history: Iterable<number>): Float32Array {
  let hash = 17;
  for (const token of history) hash = mix(Math.imul(hash, 31) + token);
  const logits = new Float32Array(FAKE_VOCABULARY);
  for (let v = 0; v < FAKE_VOCABULARY; v++) {
    logits[v] = (mix(hash ^ Math.imul(v + 1, 0x9e3779b1)) >>> 8) / 2 ** 21;
  }
  logits[BOS] = -20;
  logits[EOS] = (hash >>> 0) % 29 === 0 ? 20 : -20;
  return logits;
}

function mix(value: number): number {
  value = Math.imul(value ^ (value >>> 16), 0x21f0aaad);
  value = Math.imul(value ^ (value >>> 15), 0x735a2d97);
  return value ^ (value >>> 15);
}

/**
 * Returns the greedy answer, computed without any engine. The answer ends with EOS if EOS comes before the token
 * limit.
 */
export function fakeGreedy(prompt: readonly number[], maxTokens: number): number[] {
  const tokens = [...prompt];
  while (tokens.length < prompt.length + maxTokens) {
    const logits = fakeLogits(tokens);
    tokens.push(best(logits));
    if (tokens.at(-1) === EOS) break;
  }
  return tokens.slice(prompt.length);
}

/** Returns the index of the largest logit. */
function best(values: Float32Array): number {
  let index = 0;
  for (let i = 1; i < values.length; i++) if (values[i] > values[index]) index = i;
  return index;
}

export interface FakeBackendOptions {
  kvBlocks: number;
  maxRows: number;
  maxLogitRows: number;
  stateSlots?: number;
  kvWindows?: readonly number[];
}

/**
 * A model whose "KV" is the tokens themselves, in paged storage: it reads each text back through the block table. A
 * wrong block, position or shared prefix therefore gives a wrong token or an error. With state slots, its recurrent
 * state is the text too, and must agree with the KV. The tokens that each window sees must agree in the same way.
 */
export class FakeBackend implements Backend {
  readonly info = { name: "fake", isa: "none", threads: 1 };
  readonly abilities: Abilities = { copies: this, pools: true };
  /** Cached tokens and length of each sequence, for every step. `logitRequests`: the requested logits. */
  readonly steps: { cached: number; length: number }[][] = [];
  readonly logitRequests: LogitsRequest[][] = [];
  stopRequests = 0;
  closed = false;
  readonly #loss = Promise.withResolvers<DeviceLost>();
  readonly lost = this.#loss.promise;
  /** The row limit that a backend reports after measuring. */
  stepRows: number | undefined;
  /** Promise that delays each step. */
  gate: () => Promise<unknown> = () => Promise.resolve();
  /** Promise that delays copying parts of the cache out. */
  copyGate: () => Promise<unknown> = () => Promise.resolve();
  readonly #options: FakeBackendOptions;
  readonly #tokens: Int32Array;
  readonly #positions: Int32Array;
  /** The layer group for which each position was written. */
  readonly #groups: Int32Array;
  readonly #states: (number[] | undefined)[];
  #busy = false;
  #stop: (() => void) | undefined;

  constructor(options: FakeBackendOptions) {
    this.#options = options;
    this.#tokens = new Int32Array(options.kvBlocks * KV_BLOCK_TOKENS).fill(-1);
    this.#positions = new Int32Array(options.kvBlocks * KV_BLOCK_TOKENS).fill(-1);
    this.#groups = new Int32Array(options.kvBlocks * KV_BLOCK_TOKENS).fill(-1);
    this.#states = new Array(options.stateSlots ?? 0).fill(undefined);
  }

  /** Simulates the loss of the device. A running step fails too. */
  lose(): void {
    const error = new DeviceLost("The device was lost");
    this.#loss.resolve(error);
    this.gate = () => Promise.reject(error);
  }

  loadWeights(): Promise<void> {
    return Promise.resolve();
  }

  compile(): Promise<void> {
    return Promise.resolve();
  }

  async step(input: StepInput): Promise<StepOutput> {
    if (this.#busy || this.closed) throw new Error("Two steps at once, or a step after close");
    this.#busy = true;
    try {
      this.#check(input);
      this.steps.push(input.sequences.map(({ cached, length }) => ({ cached, length })));
      this.logitRequests.push([...input.logits]);
      this.#checkSlots(input.sequences);
      for (const sequence of input.sequences) this.#write(input.tokens, sequence);
      for (const sequence of input.sequences) this.#carry(sequence);
      for (const sequence of input.sequences) this.#look(sequence);
      const stopped = new Promise<true>((resolve) => this.#stop = () => resolve(true));
      const masks = Promise.all(input.logits.map(({ mask }) => mask));
      const computed = this.gate().then(() => masks);
      const given = await Promise.race([computed, stopped]);
      if (given === true) throw new StepStopped();
      const rows = input.logits.map((request, i) => this.#candidates(input, request, given[i]));
      return { rows, pooled: input.pools?.map((index) => this.#pooled(input.sequences[index])) };
    } finally {
      this.#busy = false;
      this.#stop = undefined;
    }
  }

  kernelsDigest(): Promise<string> {
    return Promise.resolve("fake");
  }

  /** Copies a block's tokens, positions and groups; of a state, its text after the text's length. */
  async readCache(parts: CacheParts): Promise<Uint8Array<ArrayBuffer>> {
    if (this.#busy || this.closed) throw new Error("Copied during a step or another copy, or after close");
    this.#busy = true;
    try {
      await this.copyGate();
      return this.#copy(parts);
    } finally {
      this.#busy = false;
    }
  }

  #copy({ blocks, slots }: CacheParts): Uint8Array<ArrayBuffer> {
    const bytes = new Uint8Array(blocks.length * FAKE_BLOCK_BYTES + slots.length * FAKE_STATE_BYTES);
    const words = new Int32Array(bytes.buffer);
    let at = 0;
    for (const { block, group } of blocks) {
      for (const values of [this.#tokens, this.#positions, this.#groups]) {
        words.set(values.subarray(block * KV_BLOCK_TOKENS, (block + 1) * KV_BLOCK_TOKENS), at);
        at += KV_BLOCK_TOKENS;
      }
      if (words[at - 1] !== group) throw new Error("A block of another group is copied");
    }
    for (const slot of slots) {
      const history = this.#states[slot]!;
      words.set([history.length, ...history], at);
      at += FAKE_STATE_BYTES / 4;
    }
    return bytes;
  }

  writeCache({ blocks, slots }: CacheParts, bytes: readonly Uint8Array[]): Promise<void> {
    if (this.#busy || this.closed) throw new Error("Copied during a step, or after close");
    const words = new Int32Array(concat([...bytes]).buffer);
    let at = 0;
    for (const { block } of blocks) {
      for (const values of [this.#tokens, this.#positions, this.#groups]) {
        values.set(words.subarray(at, at + KV_BLOCK_TOKENS), block * KV_BLOCK_TOKENS);
        at += KV_BLOCK_TOKENS;
      }
    }
    for (const slot of slots) {
      this.#states[slot] = [...words.subarray(at + 1, at + 1 + words[at])];
      at += FAKE_STATE_BYTES / 4;
    }
    if (at !== words.length) throw new Error("Not as many bytes as the parts have");
    return Promise.resolve();
  }

  requestStop(): void {
    this.stopRequests++;
    this.#stop?.();
  }

  close(): void {
    if (this.#busy) throw new Error("Closed during a step");
    this.closed = true;
  }

  /** Number of rows computed so far. */
  get rows(): number {
    return this.steps.flat().reduce((sum, { length }) => sum + length, 0);
  }

  #check({ tokens, sequences, logits }: StepInput): void {
    const { kvBlocks, maxRows, maxLogitRows } = this.#options;
    let rows = 0;
    for (const sequence of sequences) {
      const { start, length, cached } = sequence;
      if (start !== rows || length < 1) throw new Error("Rows do not follow each other");
      rows += length;
      const held = this.#tablesOf(sequence).flatMap(({ window, first, blocks }) => {
        if (first * KV_BLOCK_TOKENS > Math.max(0, cached + 1 - window)) {
          throw new Error("A window's block is gone");
        }
        if ((first + blocks.length) * KV_BLOCK_TOKENS < cached + length) {
          throw new Error("Block table too short");
        }
        return [...blocks];
      });
      if (new Set(held).size !== held.length) throw new Error("A sequence has a block twice");
      if (held.some((block) => block < 0 || block >= kvBlocks)) throw new Error("No such block");
    }
    if (rows !== tokens.length || rows > maxRows || rows === 0) {
      throw new Error(`Bad number of rows: ${rows}`);
    }
    if (logits.length > maxLogitRows) throw new Error("Too many rows want logits");
    this.#checkPrivate(sequences);
  }

  /** Throws if a block that the step writes belongs to several sequences. */
  #checkPrivate(sequences: readonly StepSequence[]): void {
    const holders = new Map<number, number>();
    const tables = sequences.flatMap((sequence) =>
      this.#tablesOf(sequence).map((table) => ({ ...table, cached: sequence.cached }))
    );
    for (const { blocks } of tables) {
      for (const block of blocks) holders.set(block, (holders.get(block) ?? 0) + 1);
    }
    for (const { first, blocks, cached } of tables) {
      const written = blocks.subarray(Math.floor(cached / KV_BLOCK_TOKENS) - first);
      if (written.some((block) => holders.get(block)! > 1)) throw new Error("A shared block is written");
    }
  }

  /** Returns a sequence's tables by layer group; the first group sees all tokens. */
  #tablesOf({ blockTable, windowTables = [] }: StepSequence) {
    const { kvWindows = [] } = this.#options;
    if (windowTables.length !== kvWindows.length) throw new Error("Not a table for each group of layers");
    return [{ first: 0, blocks: blockTable }, ...windowTables].map(({ first, blocks }, group) => (
      { group, window: kvWindows[group - 1] || Infinity, first, blocks }
    ));
  }

  /** Throws unless the rows of each layer group see the sequence's text. */
  #look(sequence: StepSequence): void {
    const { cached, length } = sequence;
    const history = this.#history(sequence, cached + length);
    for (const { group, window, first, blocks } of this.#tablesOf(sequence)) {
      for (let position = Math.max(0, cached + 1 - window); position < cached + length; position++) {
        const slot = slotOf(blocks, position - first * KV_BLOCK_TOKENS);
        const found = [this.#groups[slot], this.#positions[slot], this.#tokens[slot]];
        if (found.join() !== [group, position, history[position]].join()) {
          throw new Error(`KV of position ${position} in group ${group} is that of another`);
        }
      }
    }
  }

  /** Throws unless states match the model, and each written slot belongs to one sequence. */
  #checkSlots(sequences: readonly StepSequence[]): void {
    if (sequences.some(({ state }) => (state !== undefined) !== this.#states.length > 0)) {
      throw new Error("State slots without need, or none");
    }
    const written = sequences.flatMap((
      { state },
    ) => [state?.write, ...state?.saves.map((s) => s.slot) ?? []]);
    const read = sequences.flatMap(({ state }) => state?.read === state?.write ? [] : [state?.read]);
    const slots = written.filter((slot) => slot !== undefined);
    if (new Set(slots).size !== slots.length) throw new Error("A state slot is written twice");
    if (read.some((slot) => slot !== undefined && slots.includes(slot))) {
      throw new Error("A state slot is read and written");
    }
    if (slots.some((slot) => slot < 0 || slot >= this.#states.length)) throw new Error("No such state slot");
  }

  /** Checks that the state before the rows matches the KV, and stores the states after them. */
  #carry(sequence: StepSequence): void {
    const { cached, length, state } = sequence;
    if (!state) return;
    const before = state.read === undefined ? [] : this.#states[state.read];
    const after = this.#history(sequence, cached + length);
    if (before?.length !== cached || before.some((token, i) => token !== after[i])) {
      throw new Error(`The state that is read is not that of the ${cached} tokens before`);
    }
    for (const { after: rows, slot } of state.saves) {
      if (rows < 1 || rows > length) throw new Error("A state is kept after a row that is not there");
      this.#states[slot] = after.slice(0, cached + rows);
    }
    this.#states[state.write] = after;
  }

  #write(tokens: Int32Array, sequence: StepSequence): void {
    const { start, length, cached } = sequence;
    for (const { group, first, blocks } of this.#tablesOf(sequence)) {
      for (let i = 0; i < length; i++) {
        const slot = slotOf(blocks, cached + i - first * KV_BLOCK_TOKENS);
        this.#tokens[slot] = tokens[start + i];
        this.#positions[slot] = cached + i;
        this.#groups[slot] = group;
      }
    }
  }

  #history({ blockTable }: StepSequence, end: number): number[] {
    const history: number[] = [];
    for (let position = 0; position < end; position++) {
      const slot = slotOf(blockTable, position);
      if (this.#positions[slot] !== position) throw new Error(`KV of position ${position} was not computed`);
      history.push(this.#tokens[slot]);
    }
    return history;
  }

  #pooled(sequence: StepSequence): Float32Array {
    return fakeRow(this.#history(sequence, sequence.cached + sequence.length));
  }

  #candidates(input: StepInput, request: LogitsRequest, mask?: Uint32Array): Candidates {
    const sequence = input.sequences.find(({ start, length }) =>
      request.row >= start && request.row < start + length
    )!;
    const raw = fakeLogits(this.#history(sequence, sequence.cached + request.row - sequence.start + 1));
    const logits = adjusted(raw, request);
    if (mask) {
      logits.forEach((_, token) => mask[token >> 5] >> (token & 31) & 1 || (logits[token] = -Infinity));
    }
    if (mask && logits.every((logit) => logit === -Infinity)) throw new Error("A mask allows nothing");
    if (request.candidates < 1 || request.candidates > MAX_CANDIDATES) {
      throw new Error("Bad number of candidates");
    }
    const ids = request.candidates === 1
      ? Int32Array.of(best(logits))
      : Int32Array.from(logits.keys()).filter((token) => logits[token] > -Infinity)
        .sort((a, b) => logits[b] - logits[a]).slice(0, request.candidates);
    const position = sequence.cached + request.row - sequence.start;
    const token = request.draw?.whole ? drawnToken(logits, request.draw, position) : undefined;
    const known = token === undefined ? undefined : ids.indexOf(token);
    const all = known === -1 ? Int32Array.of(...ids, token!) : ids;
    return {
      ids: all,
      logits: Float32Array.from(all, (id) => logits[id]),
      rawLogits: Float32Array.from(all, (id) => raw[id]),
      logSumExp: Math.log(raw.reduce((sum, logit) => sum + Math.exp(logit), 0)),
      deviation: deviationOf(raw),
      probed: Float32Array.from(request.probe, (id) => raw[id]),
      drawn: known === -1 ? ids.length : known,
    };
  }
}

/** Returns the token at the draw's mark, in the order of token ids. */
function drawnToken(logits: Float32Array, draw: Draw, position: number): number {
  const top = Math.max(...logits);
  const weights = Array.from(logits, (logit) => Math.exp((logit - top) / draw.temperature));
  const wanted = drawMark(draw, position) / 2 ** 32 * weights.reduce((sum, weight) => sum + weight);
  let sum = 0;
  return weights.findIndex((weight) => (sum += weight) > wanted);
}

function slotOf(blockTable: Int32Array, position: number): number {
  return blockTable[Math.floor(position / KV_BLOCK_TOKENS)] * KV_BLOCK_TOKENS + (position % KV_BLOCK_TOKENS);
}

function adjusted(raw: Float32Array, request: LogitsRequest): Float32Array {
  const logits = raw.slice();
  request.penaltyTokens.forEach((token, i) => {
    const count = request.penaltyCounts[i];
    if (logits[token] > 0) logits[token] /= request.repetitionPenalty;
    else logits[token] *= request.repetitionPenalty;
    logits[token] -= request.frequencyPenalty * count + (count > 0 ? request.presencePenalty : 0);
  });
  request.biasTokens.forEach((token, i) => logits[token] += request.biasValues[i]);
  return logits;
}

/** A tokenizer with one token per byte, BOS and EOS. */
export class ByteTokenizer implements Tokenizer {
  readonly vocabSize = FAKE_VOCABULARY;
  readonly bosToken = BOS;
  readonly padToken = undefined;
  readonly separatorToken = undefined;
  readonly infill = undefined;
  readonly eosToken = EOS;
  readonly endTokens: ReadonlySet<number> = new Set([EOS]);

  encode(text: string, { atMost = Infinity }: EncodeOptions = {}): number[] {
    const bytes = new TextEncoder().encode(text);
    if (bytes.length > atMost) throw new TooManyTokens(atMost + 1);
    return [...bytes];
  }

  decode(tokens: Iterable<number>): string {
    return new TextDecoder().decode(Uint8Array.from([...tokens].filter((token) => token < BOS)));
  }

  bytes(token: number): Uint8Array {
    return token < BOS ? Uint8Array.of(token) : new Uint8Array(0);
  }

  isControl(token: number): boolean {
    return token >= BOS;
  }

  streamDecoder(): StreamDecoder {
    const decoder = new TextDecoder();
    return {
      push: (token) => decoder.decode(this.bytes(token), { stream: true }),
      end: () => decoder.decode(),
    };
  }
}

const CHAT_TEMPLATE: ChatTemplate = {
  source: "{{ messages }}",
  takesSystem: true,
  render: (messages) => messages.map(({ content }) => content).join("\n"),
  encode: (messages, options) =>
    new ByteTokenizer().encode(messages.map(({ content }) => content).join("\n"), options),
};

const LIMITS: EngineLimits = { parallel: 4, kvBlocks: 64, maxRows: 64, maxLogitRows: 16, queue: 100 };

export function startEngine<B extends FakeBackend = FakeBackend>(
  limits: Partial<EngineLimits> = {},
  contextLength = 1024,
  kind: new (options: FakeBackendOptions) => B = FakeBackend as new (options: FakeBackendOptions) => B,
  promptDisk?: PromptDisk,
  pooled?: PooledInfo,
  speculation?: Speculation,
) {
  const all = { ...LIMITS, ...limits };
  const backend = new kind(all);
  const grammars = new FakeGrammars({ vocabSize: FAKE_VOCABULARY, ends: [EOS] });
  const engine = engineOver(
    backend,
    all,
    contextLength,
    FAKE_VOCABULARY,
    grammars,
    promptDisk,
    pooled,
    speculation,
  );
  return { engine, backend, grammars };
}

/** Returns an engine on a loaded backend. Its tokens are bytes unless a tokenizer is given. */
export function engineOver(
  backend: Backend,
  limits: EngineLimits,
  contextLength: number,
  vocabSize = FAKE_VOCABULARY,
  grammars: Grammars = new FakeGrammars({ vocabSize, ends: [EOS] }),
  promptDisk?: PromptDisk,
  pooled?: PooledInfo,
  speculation?: Speculation,
  tokenizer: Tokenizer = new ByteTokenizer(),
): LlmEngine {
  return new LlmEngine({
    backend,
    model: {
      id: "m",
      path: "m.gguf",
      architecture: "fake",
      contextLength,
      vocabSize,
      created: 0,
      pooled,
    },
    tokenizer,
    chatTemplate: CHAT_TEMPLATE,
    chatForm: createChatForm(CHAT_TEMPLATE, tokenizer),
    rankTemplate: { encode: (query, document) => tokenizer.encode(`${query}\n${document}`) },
    grammars,
    limits,
    promptDisk,
    speculation,
  });
}

/** Returns the row that the fake backend pools a text to. */
export function fakeRow(tokens: readonly number[]): Float32Array {
  return fakeLogits(tokens).slice(0, 4);
}

/** Returns a prompt of `length` tokens, different for each seed. */
export function promptOf(length: number, seed = 0): number[] {
  return Array.from({ length }, (_, i) => (seed * 37 + i * i * 7 + i) % 256);
}

export const GREEDY = { temperature: 0 };

export async function collect(events: AsyncIterable<TokenEvent>): Promise<TokenEvent[]> {
  const all: TokenEvent[] = [];
  for await (const event of events) all.push(event);
  return all;
}

export function tokensOf(events: TokenEvent[]): number[] {
  return events.filter((event) => event.type === "token").map((event) => event.token);
}

export function textOf(events: TokenEvent[]): string {
  return events.map((event) =>
    event.type === "token" || event.type === "text" || event.type === "finish" ? event.text : ""
  ).join("");
}

export function finishOf(events: TokenEvent[]) {
  const last = events.at(-1);
  if (last?.type !== "finish") throw new Error("The last event is no finish");
  return last;
}

/** Returns the greedy tokens as the engine reports them: without EOS. */
export function expectedTokens(prompt: readonly number[], maxTokens: number): number[] {
  return fakeGreedy(prompt, maxTokens).filter((token) => token !== EOS);
}

export async function generate(engine: Engine, request: GenerateRequest) {
  const events = await collect(engine.submit(request));
  return { events, tokens: tokensOf(events), text: textOf(events), finish: finishOf(events) };
}

/** Runs everything that can run before the gate opens. */
export async function settle(): Promise<void> {
  for (let i = 0; i < 100; i++) await null;
}

/** Waits until the engine has nothing left to run. */
export async function quiet(engine: LlmEngine): Promise<void> {
  for (let steps = -1; steps !== engine.stats().steps;) {
    steps = engine.stats().steps;
    await settle();
  }
}

/** Makes the backend wait before each step until `next()` is called. */
export function stepByStep(backend: FakeBackend): { next(): Promise<void>; release(): void } {
  let open = Promise.withResolvers<void>();
  let free = false;
  backend.gate = () => free ? Promise.resolve() : open.promise;
  return {
    async next() {
      open.resolve();
      open = Promise.withResolvers<void>();
      await settle();
    },
    release() {
      free = true;
      open.resolve();
    },
  };
}
