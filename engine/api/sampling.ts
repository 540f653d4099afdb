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
