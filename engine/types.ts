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
  /** 0 is greedy. */
  temperature: number;
  /** 0 is off. */
  topK: number;
  /** Only the likeliest tokens that have this share of the probability together; 1 is off. */
  topP: number;
  /** Only tokens with this share of the likeliest one's probability; 0 is off. */
  minP: number;
  /** Keeps the tokens whose surprise is nearest to what is expected, up to this share of the probability; 1 is off. */
  typicalP: number;
  /** Keeps logits that are at most so many standard deviations (of all raw logits) below the best; 0 is off. */
  topNSigma: number;
  /** How often all tokens of at least `xtcThreshold` are left out but the least probable of them; 0 is off. */
  xtcProbability: number;
  /** See xtcProbability; more than 0.5 is off. */
  xtcThreshold: number;
  /** What a token loses that would repeat what follows an earlier match (dry.ts); 0 is off. */
  dryMultiplier: number;
  /** By how much more a repetition costs that is longer by a token. */
  dryBase: number;
  /** Repetitions of up to so many tokens cost nothing. */
  dryAllowedLength: number;
  /** The last tokens that are looked at; -1 is all. */
  dryLastN: number;
  /** Texts that repetitions do not reach across. */
  dryBreakers: readonly string[];
  /** What logits of tokens that are there already, in the prompt too, are divided by, or multiplied below 0; 1 is off. */
  repetitionPenalty: number;
  /** What logits of tokens lose that the answer has already. */
  presencePenalty: number;
  /** The same for each time that the answer has them. */
  frequencyPenalty: number;
  /** What is added to the logits of these tokens. */
  logitBias: ReadonlyMap<number, number>;
  /** The same seed draws the same tokens; without one they differ each time. */
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
   * Most tokens to generate; without it, what the context has room for. 0 only prefills; a batch request's prompt is then on
   * the disk when it ends, where prompts are kept there.
   */
  readonly maxTokens?: number;
  readonly sampling?: Partial<SamplingParams>;
  /** Texts that end the generation; they are not part of the output. */
  readonly stop?: readonly string[];
  /** Go on past end-of-generation tokens (benchmarks); with a constraint as long as it lets anything else follow. */
  readonly ignoreEos?: boolean;
  /** The form that the whole answer has, from its first token on. */
  readonly constraint?: Constraint;
  /** Tokens that are no text here: each comes as an event of its own. */
  readonly markers?: ReadonlySet<number>;
  /** Where the answer thinks, and how long it may. Stop texts do not look into it. */
  readonly thinking?: ThinkingBounds;
  /** Give each token's log-probability and that many alternatives (0 to 20). */
  readonly logprobs?: number;
  /** Give the log-probabilities of the prompt's own tokens too (`echo` with logprobs). */
  readonly promptLogprobs?: boolean;
  /** Interactive requests go first. Default "interactive". */
  readonly priority?: "interactive" | "batch";
  /** KV prefixes are shared only between requests of equal salt. */
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
  /** Prompt tokens that were found in the KV cache. */
  readonly cachedTokens: number;
  /** Only of batch requests with `maxTokens` 0 where prompts are kept on a disk. */
  readonly stored?: StoredPrompt;
  /** Only of requests with `thinking`: those of the completion tokens that lie inside it, its marks not counted. */
  readonly thinkingTokens?: number;
  /** Of requests with drafts: how many of their tokens were right, and how many were computed for nothing. */
  readonly drafts?: DraftCounts;
}

/** Tokens that were computed by guess. */
export interface DraftCounts {
  readonly accepted: number;
  readonly rejected: number;
}

/** A prompt that is on the disk, durably. */
export interface StoredPrompt {
  /** Of its tokens those that requests which begin with it need not compute. */
  readonly tokens: number;
  /** The model and the way to compute that finds it: equal ids find each other's prompts. */
  readonly cache: string;
}

export type FinishReason = "stop" | "length" | "cancelled";

/**
 * What a request yields, in order: progress while a long prompt is prefilled, the prompt's own
 * log-probabilities when asked for, tokens, and exactly one finish.
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
    /** It is one of the request's markers: its text is empty. */
    marker?: true;
  }
  /** What tokens before a marker held back; the marker comes next. Stop texts do not reach across it. */
  | { type: "text"; text: string }
  | {
    type: "finish";
    reason: FinishReason;
    /** The stop text that the answer ended at; its form may want more (`length`). */
    stop?: string;
    /** What was still held back. */
    text: string;
    usage: Usage;
    timings: { queueMs: number; prefillMs: number; decodeMs: number };
  };

/** Texts that are to become a row each. */
export interface EmbedRequest {
  /** Token ids of each text, at least one. */
  readonly inputs: readonly (readonly number[])[];
  /** As of generations. */
  readonly priority?: "interactive" | "batch";
  readonly cacheSalt?: string;
  readonly signal?: AbortSignal;
}

export interface EmbedResult {
  /** In the order of the inputs: `ModelInfo.pooled.size` floats each, as the model gives them (not normalised). */
  readonly rows: readonly Float32Array[];
  /** Over all texts. */
  readonly usage: Pick<Usage, "promptTokens" | "cachedTokens">;
}

export type EngineErrorCode =
  | "context_length_exceeded"
  | "invalid_request"
  /** The model, or what it is computed on, cannot do what is asked for. */
  | "not_supported"
  /** The constraint is malformed, not supported, or over a limit. Nothing has run. */
  | "invalid_constraint"
  /** The answer cannot be completed in the form that its constraint asks for. */
  | "constraint_failed"
  /** The prompt was to be kept on the disk, and that is full or failing. */
  | "prompt_not_stored"
  | "queue_full"
  | "engine_closed"
  | "engine_unavailable"
  /** What computed it is gone, most likely not by this request. */
  | "device_lost"
  | "engine_failed";

/**
 * Where an engine is in its life. `loading`: it will be ready, or failed. `ready`: it takes requests. `draining`: it takes
 * none and ends those it has, for good. `failed`: what ran in it has failed, and it takes no more.
 */
export const ENGINE_STATES = ["loading", "ready", "draining", "failed"] as const;
export type EngineState = typeof ENGINE_STATES[number];

/** A request that the engine refuses, or that failed in it. `details` go into the API's error body. */
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
  /** The file's base name without `.gguf`: what requests name. */
  readonly id: string;
  readonly path: string;
  readonly architecture: string;
  /** Tokens that one sequence may hold (prompt and answer). */
  readonly contextLength: number;
  readonly vocabSize: number;
  /** Unix seconds, when the model was loaded. */
  readonly created: number;
  /** What computes it. */
  readonly backend?: BackendName;
  /** What it gives for whole texts; undefined where that cannot be computed (on the GPU). */
  readonly pooled?: PooledInfo;
}

/** The row that a text becomes. */
export interface PooledInfo {
  readonly kind: PoolingKind;
  /** The model is an encoder: it gives nothing else, and reads each text in both directions, so whole in one step. */
  readonly encoder?: boolean;
  /** Floats of a row: of a model that ranks ("rank") a logit for each of its labels, else the model's width. */
  readonly size: number;
}

/** Why an encoder answers no prompt. */
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
  /** Held by sequences; cached prefixes that nobody uses do not count. */
  readonly kvBlocksUsed: number;
  readonly kvBlocksTotal: number;
  /** How often a running sequence gave way to another, to be computed again later. */
  readonly preemptions: number;
  readonly promptTokens: number;
  readonly generatedTokens: number;
  /** Of these, those that came without being sampled: nothing else could follow. */
  readonly forcedTokens: number;
  /** Tokens that were computed by guess, and those of them that proved right. */
  readonly draftedTokens: number;
  readonly acceptedTokens: number;
  readonly cachedTokens: number;
  readonly steps: number;
  /** Tokens that went through the model, those of prompts too. */
  readonly rows: number;
  /** Steps by their rows: entry i counts those of at most 2^i that no entry before counts; the last all others. */
  readonly stepRows: readonly number[];
  /** Calls of the backend; fewer than steps where it takes several at once. */
  readonly submits: number;
  /** Times that the device which computed was lost. */
  readonly deviceLosses: number;
  /** Only where prompts are kept on a disk. */
  readonly disk?: DiskStats;
}

/** Prompts that are kept on a disk. */
export interface DiskStats {
  /** Requests whose prompts were in part read from it, those tokens, and the bytes that were read. */
  readonly hits: number;
  readonly tokens: number;
  readonly readBytes: number;
  /** KV blocks and states that were written to it, and their bytes. */
  readonly writes: number;
  readonly writtenBytes: number;
  /** Bytes that it holds now, and may hold, of all models that share it. */
  readonly bytes: number;
  readonly limit: number;
}

/** A sequence that runs, in numbers. */
export interface RunningSequence {
  /** Counts the engine's requests. */
  readonly id: number;
  readonly promptTokens: number;
  /** Tokens of prompt and answer that the KV cache holds; where it gave way to another, as far as it was computed again. */
  readonly cachedTokens: number;
  readonly generatedTokens: number;
  /** Most tokens that the answer may have. */
  readonly maxTokens: number;
}

/** The public face: routes/ and jobs/ know this and nothing behind it. */
export interface Engine {
  readonly model: ModelInfo;
  readonly tokenizer: Tokenizer;
  readonly chatTemplate: ChatTemplate;
  /** How conversations become requests, and answers parts of messages. */
  readonly chatForm: ChatForm;
  readonly state: EngineState;
  /** Why it failed; undefined unless it did. */
  readonly failure: EngineError | undefined;
  /** Calls the listener after each change of `state`, until the returned function is called. */
  onState(listener: (state: EngineState) => void): () => void;
  /**
   * The prompt of a text that the model continues: BOS first where the file asks for it, control tokens recognised.
   * Throws EngineError context_length_exceeded for a text that is several times too long.
   */
  encodePrompt(text: string): number[];
  /**
   * The prompt of a conversation: renders the model's template and encodes the text with its control tokens.
   * Throws an error named ChatTemplateError, with the template's reason, where the template refuses, and as encodePrompt.
   */
  encodeChat(messages: readonly ChatMessage[], options?: ChatTemplateOptions): number[];
  /**
   * The prompt by which a model that ranks judges a document: by the file's template for that, or else query and document with
   * end tokens between. Control tokens are the template's alone. Throws as encodePrompt.
   */
  encodePair(query: string, document: string): number[];
  /**
   * Compiles a constraint, so that requests with it begin at once. Throws EngineError invalid_constraint for one that no answer
   * can follow.
   */
  checkConstraint(constraint: Constraint): Promise<void>;
  /**
   * Queues a request at the first `next()`. A refusal (too long, bad constraint, queue full) throws EngineError from there; leaving the
   * iteration early, or `request.signal`, cancels it and frees its slot within one step. A sequence whose events are
   * not read pauses after about a thousand of them, and its slot goes to whoever waits. Where the KV cache is full the
   * latest sequences pause too, and resume with the same answer.
   */
  submit(request: GenerateRequest): AsyncIterable<TokenEvent>;
  /**
   * A row for each text, computed beside whatever else runs: texts share steps with each other and with answers. Rejects with
   * EngineError where a text is too long or has no tokens, the queue is full or the model cannot, and with the reason of
   * `request.signal`, which frees what the request holds within one step.
   */
  embed(request: EmbedRequest): Promise<EmbedResult>;
  stats(): EngineStats;
  /** A place for each sequence that can run at once, those that run first. */
  slots(): readonly (RunningSequence | undefined)[];
  /** Refuses new work; resolves when what runs has ended, or when `graceMs` have passed and it was cancelled. */
  drain(graceMs: number): Promise<void>;
  close(): Promise<void>;
}
