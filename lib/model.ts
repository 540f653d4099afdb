import { blobSource, type LoadedEngine, type OpenSource } from "../engine/load/load.ts";
import type { LoadOptions as EngineLoadOptions } from "../engine/load/options.ts";
import { loadOnNodes } from "../engine/load/load_nodes.ts";
import { type LivingOptions, loadReloadingEngine } from "../engine/load/load_reloading.ts";
import {
  ADAPTER_OPTIONS,
  COMPUTE_OPTIONS,
  DRAFT_OPTIONS,
  IMAGE_OPTIONS,
  type LoadOption,
  type LoadOptions,
  NUMA_OPTIONS,
  VECTOR_OPTIONS,
} from "../engine/load/model_options.ts";
import type { BackendName } from "../engine/mod.ts";
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
export { describeModel } from "../engine/load/describe.ts";
/** @internal For compy's own commands. */
export { checkTemplate, type GivenTemplate, type LoadedEngine } from "../engine/load/load.ts";
export type { LoadOptions as EngineLoadOptions } from "../engine/load/options.ts";
/** @internal For compy's own commands. */
export {
  ADAPTER_OPTIONS,
  COMPUTE_OPTIONS,
  DRAFT_OPTIONS,
  IMAGE_OPTIONS,
  type LoadOption,
  NUMA_OPTIONS,
  VECTOR_OPTIONS,
} from "../engine/load/model_options.ts";
export type { LoadOptions } from "../engine/load/model_options.ts";
/** @internal For compy's own commands. */
export {
  type ChatPart as EnginePart,
  type ChatReader,
  type Constraint,
  DEFAULT_KV_TYPE,
  type GenerateRequest,
  isObject,
  KV_WORDS,
  MOST_IMAGE_BYTES,
  type PromptImage,
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

const ENGINE_OPTIONS = Object.entries({
  ...COMPUTE_OPTIONS,
  ...NUMA_OPTIONS,
  ...DRAFT_OPTIONS,
  ...ADAPTER_OPTIONS,
  ...IMAGE_OPTIONS,
  ...VECTOR_OPTIONS,
}) as [keyof LoadOptions, LoadOption][];

const LOAD_OPTIONS: OptionTable<LoadOptions> = {
  ...Object.fromEntries(
    ENGINE_OPTIONS.map((
      [name, { max, isList }],
    ) => [name, isList ? "texts" : max === undefined ? "text" : "number"]),
  ),
  parallel: "number",
  ctx: "number",
  kvBytes: "number",
  queue: "number",
  id: "text",
  chatTemplate: "text",
  promptCache: "object",
  reload: "switch",
  onProgress: "function",
  onWarning: "function",
  signal: "object",
} as OptionTable<LoadOptions>;

/**
 * Facts about a loaded model.
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
  /** The model's id, by default the file name without `.gguf`. */
  readonly id: string;
  /** Path of the model's file. */
  readonly path: string;
  /** Name of the model's architecture, for example `qwen3`. */
  readonly architecture: string;
  /** Context window: maximum tokens of prompt and answer. */
  readonly contextLength: number;
  /** Number of tokens in the vocabulary. */
  readonly vocabSize: number;
  /** Whether the model reads images, which means that it has a vision tower. */
  readonly images: boolean;
  /** Number of values in an embedding; undefined if the model computes none. */
  readonly dimensions: number | undefined;
  /** The backend, its instruction set or GPU, and its number of threads. */
  readonly backend: { readonly name: string; readonly device: string; readonly threads: number };
  /** Memory of the model in bytes: packed weights, KV cache and recurrent states when full, activations of a step. */
  readonly memory: {
    readonly weights: number;
    readonly kv: number;
    readonly states: number;
    readonly activations: number;
  };
}

/** @internal Returns the engine of a model. */
export let loadedOf: (model: Model) => LoadedEngine;
/** @internal Returns a model that owns the engine. */
export let modelOf: (loaded: LoadedEngine, settings?: AnswerSettings) => Model;
/** @internal Returns the identity of the model and its settings, on which its answers depend. */
export let identityOf: (model: Model) => Promise<ModelIdentity>;

/** @internal Settings that affect answers and that the loaded engine does not report. */
export type AnswerSettings = Pick<
  AnsweringModel,
  "arithmetic" | "kvType" | "activations" | "pooling" | "chatTemplate" | "lora" | "mmproj"
>;

/**
 * A loaded model. Requests run together and share its steps; a request gets the same answer alone and among others.
 * Dispose of the model with `await using` or `close()`: running requests then fail with `engine_closed`.
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
    modelOf = (loaded, { arithmetic, kvType, activations, pooling, chatTemplate, lora, mmproj } = {}) =>
      new Model(loaded, { arithmetic, kvType, activations, pooling, chatTemplate, lora, mmproj });
    identityOf = (model) => model.#identity ??= model.#identify();
  }

  /** Facts about the model. */
  get info(): ModelInfo {
    const { engine: { model }, backend: { info }, memory } = this.#loaded;
    const { id, path, architecture, contextLength, vocabSize, pooled } = model;
    return {
      id,
      path,
      architecture,
      contextLength,
      vocabSize,
      images: model.images ?? false,
      dimensions: pooled && pooled.kind !== "rank" ? pooled.size : undefined,
      backend: { name: info.name, device: info.isa, threads: info.threads },
      memory,
    };
  }

  /** Answers a conversation, or one user message. */
  chat(messages: string | readonly Message[], options: ChatOptions = {}): Chat {
    return chat(this.#loaded.engine, messages, options);
  }

  /** Continues a text or token ids. Control tokens in the text, such as `<|im_start|>`, are recognized. */
  generate(prompt: string | readonly number[], options: GenerateOptions = {}): Generation {
    return generate(this.#loaded.engine, prompt, options);
  }

  /** Resolves to one vector of length 1 per text. A text may be given as token ids. */
  embed(
    texts: string | readonly (string | readonly number[])[],
    options: EmbedOptions = {},
  ): Promise<Embeddings> {
    return embed(this.#loaded.engine, texts, options);
  }

  /** Resolves to the documents in order of relevance, best first. Only for ranking models. */
  rerank(query: string, documents: readonly string[], options: RerankOptions = {}): Promise<Reranked> {
    return rerank(this.#loaded.engine, query, documents, options);
  }

  /** Returns the token ids of a text. By default, no tokens are added, and control tokens in the text stay text. */
  tokenize(text: string, options: TokenizeOptions = {}): number[] {
    const { tokenizer } = this.#loaded.engine;
    if (typeof text !== "string") refuse("text", "must be a string", text);
    return tokenizer.encode(text.toWellFormed(), options);
  }

  /** Returns the text of token ids; with `special`, including control tokens. */
  detokenize(tokens: readonly number[], options: { readonly special?: boolean } = {}): string {
    const { engine: { tokenizer, model } } = this.#loaded;
    const wrong = tokens.find((token) => !(Number.isInteger(token) && token >= 0 && token < model.vocabSize));
    if (wrong !== undefined) {
      refuse("tokens", `must be whole numbers from 0 to ${model.vocabSize - 1}`, wrong);
    }
    return tokenizer.decode(tokens, options);
  }

  #identify(): Promise<ModelIdentity> {
    const { engine: { model }, backend } = this.#loaded;
    const { path, identityContext: contextLength = model.contextLength } = model;
    const name = backend.info.name as Exclude<BackendName, "auto">;
    return identifyModel({ path, contextLength, backend: name, ...this.#settings });
  }

  /** Cancels running requests and frees the model's memory. */
  async close(): Promise<void> {
    await this.#loaded.engine.close();
  }

  /** Closes the model, as `close` does. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

/**
 * Options of `tokenize`.
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
  /** Whether to add the special tokens that the model's file adds to prompts. Default false. */
  readonly addSpecial?: boolean;
  /** Whether to recognize control tokens such as `<|im_end|>` in the text. Default false. */
  readonly parseSpecial?: boolean;
}

/**
 * Loads a GGUF file, by default the small demo model that comes with compy. In a browser, pass a Blob, such as a chosen
 * File or a fetched one. Several models can be loaded at the same time. Throws CompyError, or the signal's reason.
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
  const { ctx, parallel, draft, chatTemplate, onProgress, onWarning, reload, signal, ...others } = options;
  for (const [name, { words }] of ENGINE_OPTIONS) oneOf(name, options[name], words);
  signal?.throwIfAborted();
  const all = {
    ...others,
    ...(file instanceof Blob
      ? inMemory(file)
      : { model: modelPath(file, file === undefined ? "name a GGUF file" : "") }),
    draft: draft === undefined ? undefined : modelPath(draft),
    chatTemplate: chatTemplate === undefined ? undefined : { source: chatTemplate },
    contextLength: positive("ctx", ctx),
    parallel: positive("parallel", parallel),
    // An explicit number of requests must fit; the default shrinks to the free memory.
    kvShare: parallel === undefined ? 1 : undefined,
    progress: onProgress && ((done: number, total: number) => onProgress({ done, total })),
    warn: onWarning,
    signal,
  };
  return await openModel(all, reload ? { note: (message) => onWarning?.(message) } : undefined);
}

/**
 * @internal Like loadModel, with the engine's own options. With `living`, a failed engine is loaded again and `note` is
 * called; with `options.coming`, the engine moves to native kernels when they are built.
 */
export async function openModel(
  options: EngineLoadOptions,
  living?: Pick<LivingOptions, "note" | "moved">,
): Promise<Model> {
  try {
    return modelOf(
      living || options.coming
        ? await loadReloadingEngine(options, living ?? {})
        : await loadOnNodes(options),
      options,
    );
  } catch (error) {
    options.signal?.throwIfAborted();
    throw loadError(error);
  }
}

/** Returns loading options for a model in memory. */
function inMemory(blob: Blob): { model: string; open: OpenSource } {
  const model = blob instanceof File ? blob.name : "model.gguf";
  return { model, open: () => Promise.resolve(blobSource(blob)) };
}

function oneOf(name: string, value: unknown, known: readonly unknown[] | undefined): void {
  if (value !== undefined && known?.includes(value) === false) {
    refuse(name, `must be ${known.join(", ")}`, value);
  }
}
