import { blobSource, type LoadedEngine, loadEngine, type OpenSource } from "../engine/load/load.ts";
import type { LoadOptions as EngineLoadOptions } from "../engine/load/options.ts";
import { type LivingOptions, loadReloadingEngine } from "../engine/load/load_reloading.ts";
import {
  ACCURACIES,
  type Accuracy,
  ACTIVATION_PRECISIONS,
  type ActivationPrecision,
  type Arithmetic,
  ARITHMETICS,
  type BackendName,
  BACKENDS,
  KV_TYPES,
  type KvType,
  POOLING_KINDS,
  type PoolingKind,
  SPECULATE,
  type Speculate,
} from "../engine/mod.ts";
import type { ModelIdentity } from "../jobs/model_identity.ts";
import { type Chat, chat, type ChatOptions } from "./chat.ts";
import {
  embed,
  type Embeddings,
  type EmbedOptions,
  rerank,
  type Reranked,
  type RerankOptions,
} from "./embed.ts";
import { loadError, refuse } from "./errors.ts";
import { generate, type Generation } from "./generate.ts";
import { type AnsweringModel, identifyModel } from "./identity.ts";
import type { Message } from "./messages.ts";
import { modelPath } from "./model_file.ts";
import { checkOptions, type GenerateOptions, type OptionTable, positive } from "./options.ts";

/** @internal For compy's own commands. */
export { ComingKernels } from "../engine/load/coming_kernels.ts";
/** @internal For compy's own commands. */
export { DEFAULT_KV_TYPE, type LoadedEngine, loadTokenizer } from "../engine/load/load.ts";
export type { LoadOptions as EngineLoadOptions } from "../engine/load/options.ts";
/** @internal For compy's own commands. */
export {
  ACCURACIES,
  ACTIVATION_PRECISIONS,
  ARITHMETICS,
  BACKENDS,
  type ChatPart as EnginePart,
  type ChatReader,
  type Constraint,
  type GenerateRequest,
  KV_TYPES,
  KV_WORDS,
  POOLING_KINDS,
  SPECULATE,
  type TokenEvent,
  type TokenLogprob,
  tryJson,
} from "../engine/mod.ts";
export type {
  Accuracy,
  ActivationPrecision,
  Arithmetic,
  BackendName,
  KvType,
  PoolingKind,
  Speculate,
} from "../engine/mod.ts";

/**
 * How a model is loaded; what is not said is chosen by the file and the machine.
 *
 * ```ts
 * import { loadModel, type LoadOptions } from "compy";
 *
 * const options: LoadOptions = {
 *   parallel: 8,
 *   ctx: 256,
 *   onProgress: ({ done, total }) => console.log(`${Math.floor(100 * done / total)} %`),
 *   signal: AbortSignal.timeout(60_000),
 * };
 * await using model = await loadModel(undefined, options);
 * console.log(model.info.contextLength);
 * ```
 */
export interface LoadOptions {
  /** Requests that run side by side; others wait. Default 4. */
  readonly parallel?: number;
  /** Tokens that a prompt and its answer may have together. Default the model's own, at most 4096. */
  readonly ctx?: number;
  /** Where to compute; `auto` is the GPU where it measures faster. Default the CPU: its native kernels or, where there are none, WebAssembly. */
  readonly backend?: BackendName;
  /** Threads that compute. Default one a physical core. */
  readonly threads?: number;
  /** Instruction set by name, such as `avx2`. Default the best of this CPU. */
  readonly isa?: string;
  /** How a GPU computes matrix products. Default in f32. */
  readonly arithmetic?: Arithmetic;
  /** Whether a GPU may compute in an arithmetic in which the model leaves its gates of accuracy. Default `gated`: it is refused. */
  readonly accuracy?: Accuracy;
  /** What the KV cache holds. Default `f16`: 16 bits a value, which on the CPU are integers with a scale for each head. */
  readonly kvType?: KvType;
  /** What activations are rounded to before products with quantised weights: `fine` is nearer to exact and slower in prompts. Default `fast`. */
  readonly activations?: ActivationPrecision;
  /** Bytes of the KV cache. Default what `parallel` requests of `ctx` tokens need. */
  readonly kvBytes?: number;
  /** Where drafts of an answer's next tokens come from. They make answers faster and never others. Default `auto`. */
  readonly speculate?: Speculate;
  /** The file of a smaller model of the same vocabulary that drafts. */
  readonly draft?: string;
  /** How a text's rows become one vector. Default what the file says. */
  readonly pooling?: PoolingKind;
  /** Requests that may wait beside those that run. Default 256. */
  readonly queue?: number;
  /** What the model is called. Default its file's name without `.gguf`. */
  readonly id?: string;
  /** Keeps prompts in a folder, of at most so many bytes, so that a later process need not compute them. On the CPU only. */
  readonly promptCache?: { readonly folder: string; readonly bytes: number; readonly eager?: boolean };
  /** Load the model again when it fails, as a server does. Default false. */
  readonly reload?: boolean;
  /** Told how much of the weights is loaded. */
  readonly onProgress?: (progress: { readonly done: number; readonly total: number }) => void;
  /** Told what an operator should know and what stops nothing. */
  readonly onWarning?: (message: string) => void;
  /** Ends the loading; its reason is thrown. */
  readonly signal?: AbortSignal;
}

const LOAD_OPTIONS: OptionTable<LoadOptions> = {
  parallel: "number",
  ctx: "number",
  backend: "text",
  threads: "number",
  isa: "text",
  arithmetic: "text",
  accuracy: "text",
  kvType: "text",
  activations: "text",
  kvBytes: "number",
  speculate: "text",
  draft: "text",
  pooling: "text",
  queue: "number",
  id: "text",
  promptCache: "object",
  reload: "switch",
  onProgress: "function",
  onWarning: "function",
  signal: "object",
};

/**
 * What is known of a loaded model.
 *
 * ```ts
 * import { loadModel, type ModelInfo } from "compy";
 *
 * const describe = ({ id, architecture, backend }: ModelInfo) => `${id}: ${architecture} on ${backend.device}`;
 * await using model = await loadModel();
 * console.log(describe(model.info));
 * ```
 */
export interface ModelInfo {
  /** What it is called: the file's name without `.gguf`. */
  readonly id: string;
  /** Its file. */
  readonly path: string;
  /** Such as `qwen3`. */
  readonly architecture: string;
  /** Tokens that a prompt and its answer may have together. */
  readonly contextLength: number;
  /** Tokens of its vocabulary. */
  readonly vocabSize: number;
  /** Numbers of a vector; undefined where it gives none. */
  readonly dimensions: number | undefined;
  /** What computes: a backend, and its instruction set or GPU. */
  readonly backend: { readonly name: string; readonly device: string; readonly threads: number };
  /** Bytes that it takes: the packed weights, the KV cache and recurrent states once full, the activations of a step. */
  readonly memory: {
    readonly weights: number;
    readonly kv: number;
    readonly states: number;
    readonly activations: number;
  };
}

/** @internal The engine in a model, for the parts of this library. */
export let loadedOf: (model: Model) => LoadedEngine;
/** @internal A model of an engine, which it closes. */
export let modelOf: (loaded: LoadedEngine, settings?: AnswerSettings) => Model;
/** @internal What its answers depend on besides the requests. */
export let identityOf: (model: Model) => Promise<ModelIdentity>;

/** @internal How answers are computed, as far as the loaded engine does not say it. */
export type AnswerSettings = Pick<AnsweringModel, "arithmetic" | "kvType" | "activations" | "pooling">;

/**
 * A loaded model. Any number of requests may be under way; they share its steps, and the same request has the same answer however
 * many run beside it. Dispose of it with `await using` or `close()`: what runs then fails with `engine_closed`.
 *
 * ```ts
 * import { loadModel, type Model } from "compy";
 *
 * const ask = async (model: Model, question: string) => (await model.chat(question).answer()).text;
 * await using small = await loadModel(undefined, { id: "small", ctx: 128 });
 * await using other = await loadModel(undefined, { id: "other" });
 * console.log(await Promise.all([ask(small, "Who are you?"), ask(other, "Who are you?")]));
 * ```
 */
export class Model implements AsyncDisposable {
  readonly #loaded: LoadedEngine;
  readonly #settings: AnswerSettings;
  #identity: Promise<ModelIdentity> | undefined;

  private constructor(loaded: LoadedEngine, settings: AnswerSettings) {
    this.#loaded = loaded;
    this.#settings = settings;
  }

  static {
    loadedOf = (model) => model.#loaded;
    modelOf = (loaded, { arithmetic, kvType, activations, pooling } = {}) =>
      new Model(loaded, { arithmetic, kvType, activations, pooling });
    identityOf = (model) => model.#identity ??= model.#identify();
  }

  /** What is known of it. */
  get info(): ModelInfo {
    const { engine: { model }, backend: { info }, memory } = this.#loaded;
    const { id, path, architecture, contextLength, vocabSize, pooled } = model;
    return {
      id,
      path,
      architecture,
      contextLength,
      vocabSize,
      dimensions: pooled && pooled.kind !== "rank" ? pooled.size : undefined,
      backend: { name: info.name, device: info.isa, threads: info.threads },
      memory,
    };
  }

  /** Answers a conversation, or one message of a user. */
  chat(messages: string | readonly Message[], options: ChatOptions = {}): Chat {
    return chat(this.#loaded.engine, messages, options);
  }

  /** Continues a text, in which control tokens such as `<|im_start|>` count as such, or token ids. */
  generate(prompt: string | readonly number[], options: GenerateOptions = {}): Generation {
    return generate(this.#loaded.engine, prompt, options);
  }

  /** A vector of length 1 for each text; a text may be token ids, too. */
  embed(
    texts: string | readonly (string | readonly number[])[],
    options: EmbedOptions = {},
  ): Promise<Embeddings> {
    return embed(this.#loaded.engine, texts, options);
  }

  /** How well each document fits a query, the best first; for models that rank. */
  rerank(query: string, documents: readonly string[], options: RerankOptions = {}): Promise<Reranked> {
    return rerank(this.#loaded.engine, query, documents, options);
  }

  /** The ids of a text's tokens. Without options nothing is added, and control tokens in it stay text. */
  tokenize(text: string, options: TokenizeOptions = {}): number[] {
    const { tokenizer } = this.#loaded.engine;
    if (typeof text !== "string") refuse("text", "must be a string", text);
    return tokenizer.encode(text.toWellFormed(), options);
  }

  /** The text of token ids; `special`: that of control tokens too. */
  detokenize(tokens: readonly number[], options: { readonly special?: boolean } = {}): string {
    const { engine: { tokenizer, model } } = this.#loaded;
    const wrong = tokens.find((token) => !(Number.isInteger(token) && token >= 0 && token < model.vocabSize));
    if (wrong !== undefined) {
      refuse("tokens", `must be whole numbers from 0 to ${model.vocabSize - 1}`, wrong);
    }
    return tokenizer.decode(tokens, options);
  }

  #identify(): Promise<ModelIdentity> {
    const { engine: { model: { path, contextLength } }, backend } = this.#loaded;
    const name = backend.info.name as Exclude<BackendName, "auto">;
    return identifyModel({ path, contextLength, backend: name, ...this.#settings });
  }

  /** Cancels what runs and frees the memory. */
  async close(): Promise<void> {
    await this.#loaded.engine.close();
  }

  /** As `close`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

/**
 * How a text becomes tokens.
 *
 * ```ts
 * import { loadModel, type TokenizeOptions } from "compy";
 *
 * const asPrompt: TokenizeOptions = { addSpecial: true, parseSpecial: true };
 * await using model = await loadModel();
 * console.log(model.tokenize("Hello"), model.tokenize("Hello", asPrompt));
 * ```
 */
export interface TokenizeOptions {
  /** Begin and end as the model's file says of prompts. Default false. */
  readonly addSpecial?: boolean;
  /** Control tokens such as `<|im_end|>` in the text count as such. Default false. */
  readonly parseSpecial?: boolean;
}

/**
 * Loads a GGUF file, by default the small demo model that comes with compy; in a browser a Blob, such as a File that somebody chose or
 * what was fetched. Several models may be loaded at once. Throws CompyError
 * with one of the codes of model files, or the signal's reason.
 *
 * ```ts
 * import { loadModel } from "compy";
 *
 * await using model = await loadModel(); // or loadModel("qwen3-4b-q4_0.gguf")
 * const { text } = await model.chat("Who are you?", { temperature: 0 }).answer();
 * if (text !== "My name is compy. I am a very small language model.") throw new Error(text);
 * ```
 */
export async function loadModel(file?: string | URL | Blob, options: LoadOptions = {}): Promise<Model> {
  checkOptions(options, LOAD_OPTIONS);
  const { ctx, parallel, draft, onProgress, onWarning, reload, signal, ...others } = options;
  oneOf("backend", options.backend, BACKENDS);
  oneOf("arithmetic", options.arithmetic, ARITHMETICS);
  oneOf("accuracy", options.accuracy, ACCURACIES);
  oneOf("kvType", options.kvType, KV_TYPES);
  oneOf("activations", options.activations, ACTIVATION_PRECISIONS);
  oneOf("speculate", options.speculate, SPECULATE);
  oneOf("pooling", options.pooling, POOLING_KINDS);
  signal?.throwIfAborted();
  const all = {
    ...others,
    ...(file instanceof Blob
      ? inMemory(file)
      : { model: modelPath(file, file === undefined ? "name a GGUF file" : "") }),
    draft: draft === undefined ? undefined : modelPath(draft),
    contextLength: positive("ctx", ctx),
    parallel: positive("parallel", parallel),
    // What is asked for is to be had; a default shrinks to what is free.
    kvShare: parallel === undefined ? 1 : undefined,
    progress: onProgress && ((done: number, total: number) => onProgress({ done, total })),
    warn: onWarning,
    signal,
  };
  return await openModel(all, reload ? { note: (message) => onWarning?.(message) } : undefined);
}

/**
 * @internal As loadModel, by the engine's own options. With `living` an engine that fails is loaded again, where `note` is told; with
 * `options.coming` it goes over to native kernels.
 */
export async function openModel(
  options: EngineLoadOptions,
  living?: Pick<LivingOptions, "note" | "moved">,
): Promise<Model> {
  try {
    return modelOf(
      living || options.coming ? await loadReloadingEngine(options, living ?? {}) : await loadEngine(options),
      options,
    );
  } catch (error) {
    options.signal?.throwIfAborted();
    throw loadError(error);
  }
}

/** A model that is no file of this machine. */
function inMemory(blob: Blob): { model: string; open: OpenSource } {
  const model = blob instanceof File ? blob.name : "model.gguf";
  return { model, open: () => Promise.resolve(blobSource(blob)) };
}

function oneOf(name: string, value: string | undefined, known: readonly string[]): void {
  if (value !== undefined && !known.includes(value)) refuse(name, `must be ${known.join(", ")}`, value);
}
