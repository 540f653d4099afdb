export {
  ACCURACIES,
  type Accuracy,
  ACTIVATION_PRECISIONS,
  type ActivationPrecision,
  type Arithmetic,
  ARITHMETICS,
  type BackendName,
  BACKENDS,
  KV_TYPES,
  KV_WORDS,
  type KvType,
  POOLING_KINDS,
  type PoolingKind,
} from "./backend/backend.ts";
import type { ChatForm, ThinkingBounds } from "./chat/types.ts";
export { SPECULATE, type Speculate } from "./speculation/choose.ts";
import type { BackendName, PoolingKind } from "./backend/backend.ts";
import type { Constraint } from "./grammar/types.ts";
import type { ChatMessage, ChatTemplate, ChatTemplateOptions, Tokenizer } from "./tokenizer/types.ts";

export { TooManyTokens } from "./tokenizer/types.ts";
export { type Constraint, ConstraintError, grammarConstraint } from "./grammar/types.ts";
export * from "./chat/types.ts";
export { loadedModels, modelRequired, modelsOf, oneModel, unknownModel } from "./models/loaded_models.ts";
export * from "./models/types.ts";
export type {
  ChatMessage,
  ChatTemplate,
  ChatTemplateOptions,
  EncodeOptions,
  InfillTokens,
  StreamDecoder,
  Tokenizer,
} from "./tokenizer/types.ts";
export { isReservedVariable, RESERVED_TEMPLATE_VARIABLES } from "./tokenizer/types.ts";

/**
 * How a token is chosen. The defaults (DEFAULT_SAMPLING) are those of the OpenAI API: no truncation.
 *
 * ```ts
 * import { loadModel, type SamplingParams } from "compy";
 *
 * const vivid: Partial<SamplingParams> = { temperature: 1.2, minP: 0.05, repetitionPenalty: 1.1 };
 * await using model = await loadModel();
 * console.log((await model.generate("Once upon", { ...vivid, maxTokens: 10 }).answer()).text);
 * ```
 */
export interface SamplingParams {
  /** 0 is greedy: the most probable token. */
  temperature: number;
  /** Keeps this many of the most probable tokens; 0 is off. */
  topK: number;
  /** Keeps the fewest of the most probable tokens that reach this share of the probability; 1 is off. */
  topP: number;
  /** Keeps tokens with at least this share of the most probable token's probability; 0 is off. */
  minP: number;
  /** Keeps the tokens whose surprise is nearest to the entropy, up to this share of the probability; 1 is off. */
  typicalP: number;
  /** Keeps logits at most this many standard deviations (of all raw logits) below the best; 0 is off. */
  topNSigma: number;
  /** Probability of removing all tokens of at least `xtcThreshold` except the least probable one; 0 is off. */
  xtcProbability: number;
  /** See xtcProbability; more than 0.5 is off. */
  xtcThreshold: number;
  /** Scale of the penalty on a token that would extend a repetition (dry.ts); 0 is off. */
  dryMultiplier: number;
  /** Factor by which the penalty grows per repeated token. */
  dryBase: number;
  /** Repetitions of up to this many tokens are not penalized. */
  dryAllowedLength: number;
  /** Number of last tokens that are searched for repetitions; -1 means all. */
  dryLastN: number;
  /** Texts that a repetition does not cross. */
  dryBreakers: readonly string[];
  /** Logits of tokens that the prompt or answer contains are divided by this, or multiplied if negative; 1 is off. */
  repetitionPenalty: number;
  /** Subtracted from the logits of tokens that the answer already contains. */
  presencePenalty: number;
  /** Subtracted from a token's logit once per occurrence in the answer. */
  frequencyPenalty: number;
  /** Added to the logits of these tokens. */
  logitBias: ReadonlyMap<number, number>;
  /** The same seed draws the same tokens. Without a seed, they differ each time. */
  seed: number | undefined;
}

export const DEFAULT_SAMPLING: Readonly<SamplingParams> = {
  temperature: 1,
  topK: 0,
  topP: 1,
  minP: 0,
  typicalP: 1,
  topNSigma: 0,
  xtcProbability: 0,
  xtcThreshold: 0.1,
  dryMultiplier: 0,
  dryBase: 1.75,
  dryAllowedLength: 2,
  dryLastN: -1,
  dryBreakers: ["\n", ":", '"', "*"],
  repetitionPenalty: 1,
  presencePenalty: 0,
  frequencyPenalty: 0,
  logitBias: new Map(),
  seed: undefined,
};

export interface GenerateRequest {
  /** Token ids of the prompt, at least one. */
  readonly prompt: readonly number[];
  /**
   * Maximum tokens to generate; by default as many as fit the context. 0 only prefills the prompt. For a batch
   * request, the prompt is then on the disk when the request ends, if prompts are stored there.
   */
  readonly maxTokens?: number;
  readonly sampling?: Partial<SamplingParams>;
  /** Texts that end the generation. They are not part of the output. */
  readonly stop?: readonly string[];
  /** Continue past end-of-generation tokens (for benchmarks); with a constraint, while it allows other tokens. */
  readonly ignoreEos?: boolean;
  /** The form of the whole answer, from its first token on. */
  readonly constraint?: Constraint;
  /** Special tokens: each comes as its own event instead of text. */
  readonly markers?: ReadonlySet<number>;
  /** How the answer's thinking is marked and how long it may be. Stop texts do not apply inside thinking. */
  readonly thinking?: ThinkingBounds;
  /** Report each token's log-probability and this many alternatives (0 to 20). */
  readonly logprobs?: number;
  /** Report the log-probabilities of the prompt's tokens too (`echo` with logprobs). */
  readonly promptLogprobs?: boolean;
  /** Interactive requests precede batch requests. Default "interactive". */
  readonly priority?: "interactive" | "batch";
  /** KV prefixes are shared only between requests with equal salt. */
  readonly cacheSalt?: string;
  readonly signal?: AbortSignal;
}

export interface TokenLogprob {
  readonly token: number;
  readonly logprob: number;
}

export interface Usage {
  readonly promptTokens: number;
  readonly completionTokens: number;
  /** Number of prompt tokens found in the KV cache. */
  readonly cachedTokens: number;
  /** Only for batch requests with `maxTokens` 0, if prompts are stored on a disk. */
  readonly stored?: StoredPrompt;
  /** Only for requests with `thinking`: completion tokens inside thinking, without its marks. */
  readonly thinkingTokens?: number;
  /** Only for requests with drafts: counts of correct and wrong draft tokens. */
  readonly drafts?: DraftCounts;
}

/** Counts of draft tokens. */
export interface DraftCounts {
  readonly accepted: number;
  readonly rejected: number;
}

/** A prompt that is stored durably on the disk. */
export interface StoredPrompt {
  /** Number of its tokens that a later request with this prefix need not compute. */
  readonly tokens: number;
  /** Identifies the model and its computation: engines with equal ids find each other's prompts. */
  readonly cache: string;
}

export type FinishReason = "stop" | "length" | "cancelled";

/**
 * An event of a request. They come in this order: progress while a long prompt is prefilled, the prompt's own
 * log-probabilities if asked for, tokens, and exactly one finish.
 */
export type TokenEvent =
  | { type: "progress"; processed: number; total: number; cached: number; timeMs: number }
  | { type: "prompt"; logprobs: { token: number; logprob: number | null; top: TokenLogprob[] }[] }
  | {
    type: "token";
    token: number;
    /** Text that is now certain; empty while bytes or a possible stop string are held back. */
    text: string;
    logprob?: number;
    top?: TokenLogprob[];
    /** The token is one of the request's markers, so its text is empty. */
    marker?: true;
  }
  /** Text that was held back before a marker, which comes next. Stop texts do not reach across it. */
  | { type: "text"; text: string }
  | {
    type: "finish";
    reason: FinishReason;
    /** The stop text that ended the answer. The constraint may still be incomplete (`length`). */
    stop?: string;
    /** Text that was still held back. */
    text: string;
    usage: Usage;
    timings: { queueMs: number; prefillMs: number; decodeMs: number };
  };

/** A request for one pooled row per text. */
export interface EmbedRequest {
  /** Token ids of each text, at least one. */
  readonly inputs: readonly (readonly number[])[];
  /** As in GenerateRequest. */
  readonly priority?: "interactive" | "batch";
  readonly cacheSalt?: string;
  readonly signal?: AbortSignal;
}

export interface EmbedResult {
  /** In input order: `ModelInfo.pooled.size` floats each, as the model computes them (not normalized). */
  readonly rows: readonly Float32Array[];
  /** Summed over all texts. */
  readonly usage: Pick<Usage, "promptTokens" | "cachedTokens">;
}

export type EngineErrorCode =
  | "context_length_exceeded"
  | "invalid_request"
  /** The model or its backend does not support the request. */
  | "not_supported"
  /** The constraint is malformed, unsupported or over a limit. Nothing was computed. */
  | "invalid_constraint"
  /** The answer cannot be completed in the form of its constraint. */
  | "constraint_failed"
  /** The prompt could not be stored, because the disk is full or failing. */
  | "prompt_not_stored"
  | "queue_full"
  | "engine_closed"
  | "engine_unavailable"
  /** The compute device is gone, most likely not because of this request. */
  | "device_lost"
  | "engine_failed";

/**
 * States of an engine:
 * - `loading`: it will become ready or failed.
 * - `ready`: it accepts requests.
 * - `draining`: it finishes its requests and accepts no more, for good.
 * - `failed`: its requests have failed, and it accepts no more.
 */
export const ENGINE_STATES = ["loading", "ready", "draining", "failed"] as const;
export type EngineState = typeof ENGINE_STATES[number];

/** A request that the engine refuses, or that failed in it. `details` are added to the API's error body. */
export class EngineError extends Error {
  override name = "EngineError";
  constructor(
    readonly code: EngineErrorCode,
    message: string,
    readonly details: Record<string, number> = {},
  ) {
    super(message);
  }
}

export interface ModelInfo {
  /** The name that requests use: the file's base name without `.gguf`. */
  readonly id: string;
  readonly path: string;
  readonly architecture: string;
  /** Maximum tokens of one sequence (prompt and answer). */
  readonly contextLength: number;
  readonly vocabSize: number;
  /** When the model was loaded, in Unix seconds. */
  readonly created: number;
  /** The backend that computes the model. */
  readonly backend?: BackendName;
  /** The pooled rows that the model computes; undefined if unsupported (on the GPU). */
  readonly pooled?: PooledInfo;
}

/** Describes the row that a text is pooled to. */
export interface PooledInfo {
  readonly kind: PoolingKind;
  /** Whether the model is an encoder: it only pools texts, and reads each one whole in one step, in both directions. */
  readonly encoder?: boolean;
  /** Floats per row: for a ranking model ("rank") one logit per label, otherwise the model's width. */
  readonly size: number;
}

/** Returns the error for a prompt that is sent to an encoder. */
export function generatesNothing({ id, pooled }: ModelInfo): EngineError {
  const what = pooled?.kind === "rank" ? "ranks documents" : "gives vectors for texts";
  const path = pooled?.kind === "rank" ? "/v1/rerank" : "/v1/embeddings";
  return new EngineError(
    "not_supported",
    `The model "${id}" ${what} and generates no text: use ${path}, or another model`,
  );
}

export interface EngineStats {
  readonly running: number;
  readonly waiting: number;
  /** Blocks that sequences hold, without unused cached prefixes. */
  readonly kvBlocksUsed: number;
  readonly kvBlocksTotal: number;
  /** Number of times that a running sequence was preempted, to be computed again later. */
  readonly preemptions: number;
  readonly promptTokens: number;
  readonly generatedTokens: number;
  /** Generated tokens that were forced: no other token could follow. */
  readonly forcedTokens: number;
  /** Draft tokens that were computed, and how many of them were correct. */
  readonly draftedTokens: number;
  readonly acceptedTokens: number;
  readonly cachedTokens: number;
  readonly steps: number;
  /** Tokens that were computed, including those of prompts. */
  readonly rows: number;
  /** Steps by rows: entry i counts those of at most 2^i rows that no earlier entry counts; the last all others. */
  readonly stepRows: readonly number[];
  /** Backend calls; fewer than steps if a call computes several steps. */
  readonly submits: number;
  /** Number of times that the compute device was lost. */
  readonly deviceLosses: number;
  /** Only if prompts are stored on a disk. */
  readonly disk?: DiskStats;
}

/** Figures of prompts that are stored on a disk. */
export interface DiskStats {
  /** Requests that read part of their prompt from the disk, the tokens they read, and the bytes. */
  readonly hits: number;
  readonly tokens: number;
  readonly readBytes: number;
  /** KV blocks and states that were written, and their bytes. */
  readonly writes: number;
  readonly writtenBytes: number;
  /** Current and maximum bytes on the disk, for all models that share it. */
  readonly bytes: number;
  readonly limit: number;
}

/** The figures of a running sequence. */
export interface RunningSequence {
  /** Sequence number of the request in this engine. */
  readonly id: number;
  readonly promptTokens: number;
  /** Tokens of prompt and answer in the KV cache; after a preemption, those computed again so far. */
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
  /** Converts conversations into requests, and answers into parts of messages. */
  readonly chatForm: ChatForm;
  readonly state: EngineState;
  /** The error that the engine failed with; undefined unless it failed. */
  readonly failure: EngineError | undefined;
  /** Calls the listener after each change of `state`, until the returned function is called. */
  onState(listener: (state: EngineState) => void): () => void;
  /**
   * Returns the prompt tokens of a text that the model continues: BOS first if the file asks for it, control tokens
   * recognized. Throws EngineError context_length_exceeded for a text that is several times too long.
   */
  encodePrompt(text: string): number[];
  /**
   * Returns the prompt tokens of a conversation: renders the model's template and encodes the text with its control
   * tokens. Throws an error named ChatTemplateError with the template's reason, and as encodePrompt.
   */
  encodeChat(messages: readonly ChatMessage[], options?: ChatTemplateOptions): number[];
  /**
   * Returns the prompt tokens with which a ranking model judges a document: by the file's template for it, or else
   * query and document separated by end tokens. Only the template can add control tokens. Throws as encodePrompt.
   */
  encodePair(query: string, document: string): number[];
  /** Compiles a constraint before its requests. Throws EngineError invalid_constraint if no answer can meet it. */
  checkConstraint(constraint: Constraint): Promise<void>;
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
  /** Returns one place per sequence that can run; running sequences come first. */
  slots(): readonly (RunningSequence | undefined)[];
  /** Refuses new requests. Resolves when all others have ended, or after `graceMs`, when the rest is cancelled. */
  drain(graceMs: number): Promise<void>;
  close(): Promise<void>;
}
