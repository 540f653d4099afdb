import type { ThinkingBounds } from "../chat/types.ts";
import type { Constraint } from "../grammar/types.ts";
import type { Usage } from "./events.ts";
import type { SamplingParams } from "./sampling.ts";

/** The tenant that sends a request, and the request's priority. */
export interface Sender {
  /** Interactive requests precede batch requests. Default "interactive". */
  readonly priority?: "interactive" | "batch";
  /**
   * Names the request's tenant. KV prefixes are shared only between requests with equal salt, and tenants share the
   * engine's time by their weights.
   */
  readonly cacheSalt?: string;
  /** The tenant's share of the engine's time relative to other tenants'. Default 1. */
  readonly weight?: number;
}

/** Maximum adapters of a model, and maximum size of their scales. Larger scales would overflow. */
export const MAX_ADAPTERS = 32;
export const MAX_SCALE = 1000;

/** An adapter (LoRA) by its id, and the factor of its products. */
export interface UsedAdapter {
  readonly id: number;
  readonly scale: number;
}

export interface GenerateRequest extends Sender {
  /** Token ids of the prompt, at least one. Requests for several answers to one prompt pass the same array. */
  readonly prompt: readonly number[];
  /** The images that the prompt has a token for, in order. `Engine.readImage` reads them. */
  readonly images?: readonly PromptImage[];
  /**
   * Maximum tokens to generate; by default, until the context is full. 0 only prefills the prompt. A batch request with
   * 0 ends when its prompt is on the disk, if prompts are stored there.
   */
  readonly maxTokens?: number;
  readonly sampling?: Partial<SamplingParams>;
  /** Texts that end the generation. The output does not contain them. */
  readonly stop?: readonly string[];
  /** Continues past end-of-generation tokens (for benchmarks). With a constraint, only while it allows other tokens. */
  readonly ignoreEos?: boolean;
  /** The form of the whole answer, beginning with its first token. */
  readonly constraint?: Constraint;
  /** Special tokens that come as separate events instead of text. */
  readonly markers?: ReadonlySet<number>;
  /** How the answer's thinking is marked and how long it may be. Stop texts do not apply inside thinking. */
  readonly thinking?: ThinkingBounds;
  /** The adapters to use, instead of all of the model's with their own scales. */
  readonly adapters?: readonly UsedAdapter[];
  /** Report each token's log-probability and this many alternatives (0 to 20). */
  readonly logprobs?: number;
  /** Report the log-probabilities of the prompt's tokens too (`echo` with `logprobs`). */
  readonly promptLogprobs?: boolean;
  readonly signal?: AbortSignal;
}

/** The tokens that stand for an image in a prompt. */
export interface ImageTokens {
  /** The token in a prompt that these tokens replace. */
  readonly mark: number;
  readonly tokens: readonly number[];
  /** Which of the tokens get the image's rows, in order. */
  readonly runs: readonly { readonly first: number; readonly count: number }[];
  /** Whether the rows have places in a grid for rotary tables (M-RoPE). */
  readonly grid: boolean;
  /** Whether rows attend to each other in both directions. */
  readonly together: boolean;
  /** Number of line ends before the tokens, and after them. */
  readonly lines: number;
}

/** An image, decoded and scaled for the model. */
export interface PromptImage extends ImageTokens {
  /** Rows and columns of the image's grid of rows, or of each tile's grid. */
  readonly rows: number;
  readonly columns: number;
  /** Equal images have equal digests. */
  readonly digest: string;
  /** Pixels of its patches. */
  readonly patches: Float32Array;
}

/** A request for one pooled row per text. */
export interface EmbedRequest extends Sender {
  /** Token ids of each text, at least one. */
  readonly inputs: readonly (readonly number[])[];
  /** As in GenerateRequest. */
  readonly adapters?: readonly UsedAdapter[];
  readonly signal?: AbortSignal;
}

export interface EmbedResult {
  /**
   * One row per input text, in input order: `ModelInfo.pooled.size` floats as the model computes them (not normalized).
   */
  readonly rows: readonly Float32Array[];
  /** Token counts, summed over all input texts. */
  readonly usage: Pick<Usage, "promptTokens" | "cachedTokens">;
}
