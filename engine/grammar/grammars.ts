import { GrammarLibrary, GrammarLibraryError } from "../../ffi/grammar.ts";
import { openAwaited } from "../../ffi/awaited.ts";
import { isShortage, LibraryNotFound } from "../../ffi/find.ts";
import type { Tokenizer } from "../tokenizer/types.ts";
import { Divider } from "./forced.ts";
import { compilers } from "./compilers.ts";
import { sharedWork, withPauses } from "../pacing/pauses.ts";
import { checkedText, limitWords } from "./limits.ts";
import { Loosening } from "./loosening.ts";
import { refusable } from "./refusals.ts";
import type { Sources } from "./source.ts";
import {
  type Asker,
  CompilersBusy,
  type Constraint,
  ConstraintError,
  ConstraintsMissing,
  type Grammar,
  type Grammars,
  type LoosenedSchema,
  type Matcher,
} from "./types.ts";

/** Maximum bytes of cached compiled grammars. */
const CACHE_BYTES = 32 << 20;
/**
 * Maximum number of refused constraints whose errors are kept. If the constraint comes again, the kept error is thrown
 * without compiling the constraint.
 */
const REFUSALS = 256;
const NOBODY: Asker = { tenant: "", batch: false };
/** Number of an answer's last tokens with which forced text may be split. */
const HISTORY = 16;

/**
 * Bytes of the state after a token: whether it was taken, whether the answer is complete, whether it may end, and the
 * kind of data that follows.
 */
const STATE_BYTES = 4;
/** Kinds of data after the state: the forced text, or the exceeded limit. */
const LOOKED = 1;
const FAILED = 2;

const noTokens: readonly number[] = [];

/**
 * Returns the grammars for one model's vocabulary. `markers`: tokens that never count as text in answers, for example
 * `<tool_call>`; only `<[id]>` in a grammar allows them. The first constraint opens the library and loads the
 * vocabulary.
 */
export function createGrammars(
  tokenizer: Tokenizer,
  markers: Iterable<number> = [],
  { cacheBytes = CACHE_BYTES, onLoosened = () => {} }: GrammarOptions = {},
): Grammars {
  return new LibraryGrammars(tokenizer, new Set(markers), cacheBytes, onLoosened);
}

export interface GrammarOptions {
  readonly cacheBytes?: number;
  /** Called once for each loosened schema. */
  readonly onLoosened?: (schema: LoosenedSchema) => void;
}

/**
 * Opens the grammar library. Throws ConstraintsMissing if there is none, and another error if it cannot be loaded now.
 */
async function openLibrary(): Promise<GrammarLibrary> {
  try {
    return await openAwaited(() => GrammarLibrary.open());
  } catch (error) {
    if (!(error instanceof LibraryNotFound)) throw error;
    if (error.places.some(({ problem }) => problem === "not loadable" || isShortage(problem))) throw error;
    const message = `Answers in a given form need the native grammar library. ${error.message}`;
    throw new ConstraintsMissing(message, { cause: error });
  }
}

interface Kept {
  /** The sender that was first to ask for this constraint. */
  readonly asker: Asker;
  readonly compiled: Promise<CompiledGrammar>;
  bytes: number;
}

class LibraryGrammars implements Grammars {
  readonly #maskWords: number;
  readonly #divider: Divider;
  readonly #isText: (token: number) => boolean;
  /** Cached grammars in order of last use. */
  readonly #cache = new Map<string, Kept>();
  #cachedBytes = 0;
  /** Errors of refused constraints by the constraint's digest, oldest first. */
  readonly #refusals = new Map<string, ConstraintError>();
  readonly #loosening: Loosening<CompiledGrammar>;
  #vocabulary: Promise<bigint> | undefined;
  /** Buffer for masks, reused to spare the garbage collector; undefined while in use. */
  #room: Uint32Array<ArrayBuffer> | undefined;
  #closed = false;

  constructor(
    private readonly tokenizer: Tokenizer,
    markers: ReadonlySet<number>,
    private readonly cacheBytes: number,
    onLoosened: (schema: LoosenedSchema) => void,
  ) {
    this.#loosening = new Loosening((sources, asker) => this.#compile(sources, asker), onLoosened);
    this.#maskWords = Math.ceil(tokenizer.vocabSize / 32);
    this.#isText = (token) =>
      !markers.has(token) && !tokenizer.endTokens.has(token) && tokenizer.bytes(token).length > 0;
    this.#divider = new Divider(tokenizer, this.#isText);
  }

  get loosened(): number {
    return this.#loosening.loosened;
  }

  async compile(constraint: Constraint, asker = NOBODY): Promise<Grammar> {
    const key = await digest(await withPauses(() => checkedText(constraint)));
    const kept = this.#cache.get(key);
    if (kept) {
      this.#cache.delete(key);
      this.#cache.set(key, kept);
      return await kept.compiled.catch((error) => {
        const isOwn = kept.asker.tenant === asker.tenant && kept.asker.batch === asker.batch;
        if (error instanceof CompilersBusy && !isOwn) return this.compile(constraint, asker);
        throw error;
      });
    }
    const refusal = this.#refusals.get(key);
    if (refusal) throw refusal;
    const compiled = sharedWork(() => this.#loosening.compile(constraint, asker));
    const entry: Kept = { asker, compiled, bytes: 0 };
    this.#cache.set(key, entry);
    try {
      const grammar = await entry.compiled;
      entry.bytes = grammar.bytes;
      this.#cachedBytes += entry.bytes;
      this.#trim(key);
      return grammar;
    } catch (error) {
      this.#cache.delete(key);
      if (error instanceof ConstraintError) this.#remember(key, error);
      throw error;
    }
  }

  #remember(key: string, refusal: ConstraintError): void {
    this.#refusals.set(key, refusal);
    if (this.#refusals.size > REFUSALS) this.#refusals.delete(this.#refusals.keys().next().value!);
  }

  async masks(matchers: readonly Matcher[]): Promise<Uint32Array[]> {
    if (matchers.length === 0) return [];
    const handles = BigUint64Array.from(matchers, (matcher) => own(matcher).handle);
    const words = this.#maskWords * matchers.length;
    const room = this.#room && this.#room.length >= words ? this.#room : new Uint32Array(words);
    this.#room = undefined;
    const output = new Uint8Array(room.buffer, 0, 4 * words);
    await GrammarLibrary.open()
      .callAsync("compy_grammar_masks", 0n, new Uint8Array(handles.buffer), output);
    this.#room = room;
    return matchers.map((_, i) => room.subarray(i * this.#maskWords, (i + 1) * this.#maskWords));
  }

  async draftMasks(matcher: Matcher, tokens: Int32Array): Promise<Uint32Array[]> {
    const masks = new Uint32Array(this.#maskWords * tokens.length);
    const input = new Uint8Array(tokens.slice().buffer);
    await GrammarLibrary.open()
      .callAsync("compy_grammar_draft_masks", own(matcher).handle, input, new Uint8Array(masks.buffer));
    return Array.from(tokens, (_, i) => masks.subarray(i * this.#maskWords, (i + 1) * this.#maskWords));
  }

  close(): void {
    this.#closed = true;
    for (const { compiled } of this.#cache.values()) compiled.then((grammar) => grammar.free(), () => {});
    this.#cache.clear();
    this.#vocabulary?.then((handle) => GrammarLibrary.open().call("compy_grammar_free", handle), () => {});
    this.#vocabulary = undefined;
  }

  async #compile({ grammars }: Sources, asker: Asker): Promise<CompiledGrammar> {
    const source = JSON.stringify({ grammars });
    if (this.#closed) throw new Error("The grammars are closed");
    await openLibrary();
    if (this.#closed) throw new Error("The grammars are closed");
    const vocabulary = await (this.#vocabulary ??= this.#loadVocabulary().catch((error) => {
      // The library's file may be readable at the next constraint, so the failure is not remembered.
      this.#vocabulary = undefined;
      throw error;
    }));
    const input = join([new Uint8Array(limitWords().buffer), new TextEncoder().encode(source)]);
    const library = GrammarLibrary.open();
    const [handle, bytes] = await refusable(() =>
      compilers.run(
        asker,
        async (hold) => compiled(await library.callAsync("compy_grammar_compile", vocabulary, input), hold),
      )
    );
    const compileNow = () => compiled(library.call("compile_now", vocabulary, input))[0];
    return new CompiledGrammar(
      handle,
      Number(bytes) + 4 * source.length,
      compileNow,
      this.#divider,
      this.#isText,
    );
  }

  async #loadVocabulary(): Promise<bigint> {
    const { vocabSize, endTokens } = this.tokenizer;
    const texts = Array.from({ length: vocabSize }, (_, token) => {
      return this.#isText(token) ? this.tokenizer.bytes(token) : new Uint8Array(0);
    });
    const head = [vocabSize, endTokens.size, ...endTokens];
    const words = new Uint32Array(head.length + vocabSize);
    words.set(head);
    words.set(texts.map((text) => text.length), head.length);
    const input = join([new Uint8Array(words.buffer), ...texts]);
    return handles(await GrammarLibrary.open().callAsync("compy_grammar_vocabulary", 0n, input))[0];
  }

  /** Evicts the least recently used grammars, but never `newest`. */
  #trim(newest: string): void {
    for (const [key, { compiled, bytes }] of this.#cache) {
      if (this.#cachedBytes <= this.cacheBytes) break;
      if (key === newest || bytes === 0) continue;
      this.#cache.delete(key);
      this.#cachedBytes -= bytes;
      compiled.then((grammar) => grammar.free());
    }
  }
}

class CompiledGrammar implements Grammar {
  #freed = false;

  constructor(
    private readonly handle: bigint,
    readonly bytes: number,
    /** Compiles the grammar again. The caller frees the result. */
    private readonly compileNow: () => bigint,
    private readonly divider: Divider,
    private readonly isText: (token: number) => boolean,
  ) {}

  matcher(): Matcher {
    const library = GrammarLibrary.open();
    // The grammar was evicted between its compilation and this call.
    const handle = this.#freed ? this.compileNow() : this.handle;
    const answer = library.call("compy_grammar_matcher", handle);
    if (this.#freed) library.call("compy_grammar_free", handle);
    return new LibraryMatcher(handles(answer.subarray(0, 8))[0], answer[8] === 1, this.divider, this.isText);
  }

  free(): void {
    if (this.#freed) return;
    this.#freed = true;
    GrammarLibrary.open().call("compy_grammar_free", this.handle);
  }
}

class LibraryMatcher implements Matcher {
  #complete = false;
  #mayEnd: boolean;
  #failure: string | undefined;
  #closed = false;
  /** The answer's last text tokens: those after the last marker. */
  #history: number[] = [];
  /** The library's answer about forced text; undefined if not yet requested. */
  #forced: Uint8Array<ArrayBuffer> | undefined;

  constructor(
    readonly handle: bigint,
    mayEnd: boolean,
    private readonly divider: Divider,
    private readonly isText: (token: number) => boolean,
  ) {
    this.#mayEnd = mayEnd;
  }

  get complete(): boolean {
    return this.#complete;
  }

  get mayEnd(): boolean {
    return this.#mayEnd;
  }

  get failure(): string | undefined {
    return this.#failure;
  }

  consume(token: number): boolean {
    tokenWord[0] = token;
    const answer = GrammarLibrary.open().call("compy_grammar_consume", this.handle, tokenBytes, answerRoom);
    const [taken, complete, mayEnd, follows] = answer;
    this.#complete = complete === 1;
    this.#mayEnd = mayEnd === 1;
    if (follows === FAILED) this.#failure = new TextDecoder().decode(answer.subarray(STATE_BYTES));
    if (taken === 0) return false;
    this.#forced = follows === LOOKED ? answer.slice(STATE_BYTES) : undefined;
    if (this.isText(token)) {
      this.#history.push(token);
      if (this.#history.length >= 2 * HISTORY) this.#history = this.#history.slice(-HISTORY);
    } else {
      this.#history = [];
    }
    return true;
  }

  forced(): readonly number[] {
    if (this.#complete) return noTokens;
    const answer = this.#forced ??= GrammarLibrary.open()
      .call("compy_grammar_forced", this.handle, undefined, answerRoom).slice();
    if (answer.length === 0) return noTokens;
    const count = new DataView(answer.buffer, answer.byteOffset).getUint32(0, true);
    const next = 4 + 4 * count;
    return this.divider.divide({
      crossings: new Uint32Array(answer.slice(4, next).buffer),
      next: answer.subarray(next, next + 32),
      bytes: answer.subarray(next + 32),
    }, this.#history);
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    GrammarLibrary.open().call("compy_grammar_free", this.handle);
  }
}

function own(matcher: Matcher): LibraryMatcher {
  if (!(matcher instanceof LibraryMatcher)) throw new TypeError("A matcher must come from these grammars");
  return matcher;
}

/** Shared buffer for library calls whose answers are read before the next call. */
const answerRoom = new Uint8Array(1 << 20);
const tokenWord = new Uint32Array(1);
const tokenBytes = new Uint8Array(tokenWord.buffer);

/** Pause before the library is asked again whether an overdue compiler still runs. */
const PAUSE_MS = 50;

/**
 * Returns the handle and the bytes of a compiled grammar. Throws the library's refusal of a constraint that takes too
 * long; its compiler still runs until the promise that `hold` gets resolves.
 */
function compiled(answer: Uint8Array, hold: (until: Promise<void>) => void = () => {}): BigUint64Array {
  const words = handles(answer.subarray(0, 16));
  const refusal = new TextDecoder().decode(answer.subarray(16));
  if (refusal === "") return words;
  hold(ended(words[0]));
  throw new GrammarLibraryError(refusal);
}

/** Resolves when an overdue compiler ends, and frees its handle. */
async function ended(compiler: bigint): Promise<void> {
  const library = GrammarLibrary.open();
  while (library.call("compy_grammar_compiles", compiler)[0] === 1) {
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  }
  library.call("compy_grammar_free", compiler);
}

function handles(bytes: Uint8Array): BigUint64Array {
  return new BigUint64Array(bytes.slice().buffer);
}

async function digest(text: string): Promise<string> {
  const hash = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
  return String.fromCharCode(...new Uint8Array(hash));
}

function join(parts: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const all = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let length = 0;
  for (const part of parts) {
    all.set(part, length);
    length += part.length;
  }
  return all;
}
