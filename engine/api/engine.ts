import type { BackendName, PoolingKind } from "../backend/backend.ts";
import type { ChatForm } from "../chat/types.ts";
import type { Constraint } from "../grammar/types.ts";
import type { ChatMessage, ChatTemplate, ChatTemplateOptions, Tokenizer } from "../tokenizer/types.ts";
import type { EngineError } from "./errors.ts";
import type { TokenEvent } from "./events.ts";
import type { EmbedRequest, EmbedResult, GenerateRequest, PromptImage, Sender } from "./request.ts";

/**
 * States of an engine:
 * - `loading`: it will become ready or failed.
 * - `ready`: it accepts requests.
 * - `draining`: it finishes its requests and accepts no more, for good.
 * - `failed`: its requests have failed, and it accepts no more.
 */
export const ENGINE_STATES = ["loading", "ready", "draining", "failed"] as const;
export type EngineState = typeof ENGINE_STATES[number];

export interface ModelInfo {
  /** The model name that requests use: the file's base name without `.gguf`. */
  readonly id: string;
  readonly path: string;
  readonly architecture: string;
  /** Maximum tokens of one sequence (prompt and answer). */
  readonly contextLength: number;
  /** Maximum tokens of one sequence that the model was trained for. */
  readonly trainedContext?: number;
  /** The context length in a batch's identity, independent of free memory; by default `contextLength`. */
  readonly identityContext?: number;
  readonly vocabSize: number;
  /** When the model was loaded, in Unix seconds. */
  readonly created: number;
  /** The backend that computes the model. */
  readonly backend?: BackendName;
  /** Whether requests may have images. */
  readonly images?: boolean;
  /** The text that stands for an image in a prompt; undefined if the model reads no images. */
  readonly imageText?: string;
  /** The pooled rows that the model computes; undefined if unsupported (on the GPU). */
  readonly pooled?: PooledInfo;
  /** Undefined without adapters. */
  readonly adapters?: readonly AdapterInfo[];
}

/** A low-rank adapter (LoRA) that requests can use. */
export interface AdapterInfo {
  /** Its place among the model's adapters, from 0. */
  readonly id: number;
  /** The file's base name without `.gguf`. */
  readonly name: string;
  readonly path: string;
  /** The factor of its products in requests that choose no adapters; 0 leaves it out of them. */
  readonly scale: number;
  /** SHA-256 of its content. */
  readonly fingerprint: string;
}

/** Describes the row that a text is pooled to. */
export interface PooledInfo {
  readonly kind: PoolingKind;
  /** Whether the model is an encoder: it only pools texts. It reads each whole text in one step, in both directions. */
  readonly encoder?: boolean;
  /** Floats per row: for a ranking model ("rank") one logit per label, otherwise the model's width. */
  readonly size: number;
  /** The names of a ranking head's labels, if the file has them. */
  readonly labels?: readonly string[];
}

export interface EngineStats {
  readonly running: number;
  readonly waiting: number;
  /** Blocks that sequences hold, without unused cached prefixes. */
  readonly kvBlocksUsed: number;
  readonly kvBlocksTotal: number;
  /** Number of preemptions: times that a running sequence lost its KV cache and was computed again later. */
  readonly preemptions: number;
  readonly promptTokens: number;
  readonly generatedTokens: number;
  /** Number of generated tokens that a constraint forced, because no other token could follow. */
  readonly forcedTokens: number;
  /** Number of draft tokens that were computed, and of those that were correct. */
  readonly draftedTokens: number;
  readonly acceptedTokens: number;
  readonly cachedTokens: number;
  readonly steps: number;
  /** Number of tokens that were computed, including prompt tokens. */
  readonly rows: number;
  /**
   * Number of steps by row count. Entry i counts steps of at most 2^i rows, without those of earlier entries. The last
   * entry also counts all larger steps.
   */
  readonly stepRows: readonly number[];
  /** Number of backend calls. A call may compute several steps. */
  readonly submits: number;
  /** Number of times that the compute device was lost. */
  readonly deviceLosses: number;
  /** Keywords in tools' JSON schemas that are not enforced, counted once per schema. */
  readonly loosenedKeywords: number;
  /** Statistics of the prompt cache on disk, if the engine has one. */
  readonly disk?: DiskStats;
}

/** Figures of prompts that are stored on a disk. */
export interface DiskStats {
  /** Requests that read part of their prompt from the disk, the number of those tokens, and their bytes. */
  readonly hits: number;
  readonly tokens: number;
  readonly readBytes: number;
  /** KV blocks and recurrent states that were written to the disk, and their bytes. */
  readonly writes: number;
  readonly writtenBytes: number;
  /** Current and maximum bytes of the prompt cache on disk, for all models that share it. */
  readonly bytes: number;
  readonly limit: number;
}

/** The figures of a running sequence. */
export interface RunningSequence {
  /** The engine's sequential number for the request. */
  readonly id: number;
  readonly promptTokens: number;
  /** Tokens of prompt and answer in the KV cache; after a preemption, tokens computed again so far. */
  readonly cachedTokens: number;
  readonly generatedTokens: number;
  /** Maximum tokens of the answer. */
  readonly maxTokens: number;
}

/** The engine's public interface: routes/ and jobs/ use this and nothing behind it. */
export interface Engine {
  readonly model: ModelInfo;
  readonly tokenizer: Tokenizer;
  readonly chatTemplate: ChatTemplate;
  /** Converts conversations into requests, and answers into message parts. */
  readonly chatForm: ChatForm;
  readonly state: EngineState;
  /** The error that the engine failed with; undefined unless it failed. */
  readonly failure: EngineError | undefined;
  /** Calls `listener` after each change of `state`. The returned function ends the calls. */
  onState(listener: (state: EngineState) => void): () => void;
  /**
   * Returns the prompt tokens of a text that the model continues: BOS first if the file asks for it, control tokens
   * recognized. Throws EngineError context_length_exceeded for a text that is several times too long.
   */
  encodePrompt(text: string): number[];
  /**
   * Returns the prompt tokens of a conversation, rendered by the model's template, with control tokens recognized.
   * Throws an error named ChatTemplateError with the template's reason, and the errors of encodePrompt.
   */
  encodeChat(messages: readonly ChatMessage[], options?: ChatTemplateOptions): number[];
  /**
   * Returns the prompt tokens with which a ranking model judges a document. Without a template in the file, end tokens
   * separate query and document. Only the template can add control tokens. Throws as encodePrompt.
   */
  encodePair(query: string, document: string): number[];
  /**
   * Compiles a constraint before the requests that use it, in the order of their tenant and priority. Throws
   * EngineError invalid_constraint if no answer can match it.
   */
  checkConstraint(constraint: Constraint, sender?: Sender): Promise<void>;
  /**
   * Decodes an image (PNG, JPEG, WebP or GIF) for `GenerateRequest.images`, outside the event loop. The bytes are handed over.
   * Tenants take turns. Throws EngineError not_supported if the model takes no images, and invalid_request for an image
   * that cannot be read.
   */
  readImage(bytes: Uint8Array<ArrayBuffer>, signal?: AbortSignal, sender?: Sender): Promise<PromptImage>;
  /**
   * Returns the events of a request, which is queued at the first `next()`. A refusal (too long, bad constraint,
   * queue full) throws EngineError there.
   * Leaving the iteration early, or aborting `request.signal`, cancels the request and frees its slot within one
   * step. A sequence pauses after about a thousand unread events, and a waiting sequence gets its slot. When the KV
   * cache is full, the latest sequences pause too, and resume with the same answer.
   */
  submit(request: GenerateRequest): AsyncIterable<TokenEvent>;
  /**
   * Resolves to one row per text. Texts share steps with each other and with answers. Rejects with EngineError if a
   * text is too long or empty, the queue is full or the model does not support it. Aborting `request.signal` rejects
   * with its reason and frees the request's resources within one step.
   */
  embed(request: EmbedRequest): Promise<EmbedResult>;
  stats(): EngineStats;
  /** Returns one place per sequence that can run; running sequences come first, and free places are undefined. */
  slots(): readonly (RunningSequence | undefined)[];
  /**
   * Refuses new requests. Resolves when all accepted requests have ended; after `graceMs` it cancels the remaining
   * ones.
   */
  drain(graceMs: number): Promise<void>;
  close(): Promise<void>;
}
