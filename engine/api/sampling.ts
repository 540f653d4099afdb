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
  /** Sampling temperature; 0 is greedy: the most probable token. */
  temperature: number;
  /** Keeps only this number of the most probable tokens; 0 is off. */
  topK: number;
  /** Keeps the smallest set of most probable tokens whose probabilities sum to at least this share; 1 is off. */
  topP: number;
  /** Keeps tokens with at least this share of the most probable token's probability; 0 is off (min-p). */
  minP: number;
  /** Keeps the tokens whose surprise is nearest to the entropy, up to this share of the probability; 1 is off. */
  typicalP: number;
  /** Keeps tokens whose logit is at most this many standard deviations of all raw logits below the best; 0 is off. */
  topNSigma: number;
  /** Probability of XTC: it removes all tokens of at least `xtcThreshold` except the least probable one; 0 is off. */
  xtcProbability: number;
  /** Minimum probability of the tokens that XTC removes (see `xtcProbability`); more than 0.5 is off. */
  xtcThreshold: number;
  /** Scale of the penalty on a token that would extend a repetition (dry.ts); 0 is off. */
  dryMultiplier: number;
  /** Factor by which the DRY penalty grows per repeated token. */
  dryBase: number;
  /** DRY does not penalize repetitions of up to this number of tokens. */
  dryAllowedLength: number;
  /** Number of last tokens that DRY searches for repetitions; -1 means all. */
  dryLastN: number;
  /** Texts at which DRY stops matching a repetition ("sequence breakers"). */
  dryBreakers: readonly string[];
  /** Divides positive logits of tokens in the prompt or answer, and multiplies negative ones; 1 is off. */
  repetitionPenalty: number;
  /** Presence penalty: subtracted from the logit of each token that the answer already contains. */
  presencePenalty: number;
  /** Frequency penalty: subtracted from a token's logit once per occurrence in the answer. */
  frequencyPenalty: number;
  /** Logit biases by token id: each is added to its token's logit. */
  logitBias: ReadonlyMap<number, number>;
  /** The same seed draws the same tokens. Without a seed, they differ each time. */
  seed: number | undefined;
}

/** Describes one sampling setting, for all code that reads, checks, shows or documents it. */
export interface SamplingSetting<Value = unknown> {
  /** Type of a setting's value: a number, a whole number, an array of texts, or a map of token ids to numbers. */
  readonly kind: "number" | "whole" | "texts" | "biases";
  readonly default: Value;
  /** The value that switches the sampling setting off. */
  readonly off?: number;
  /** Minimum and maximum that the engine accepts; by default any finite number. `above` is an excluded minimum. */
  readonly min?: number;
  readonly max?: number;
  readonly above?: number;
  /** The setting's description without capital letter and full stop. It names other settings as the API names them. */
  readonly doc: string;
  /**
   * The field of the OpenAI and Anthropic APIs. It accepts a smaller range than the engine; a number below `min` means
   * `off`.
   */
  readonly api: { readonly name: string; readonly min?: number; readonly max?: number };
  /** The field of llama-server's API, if its name differs. */
  readonly llamaServer?: string;
  /** The setting's label on the chat page. */
  readonly label: string;
  /** Whether the page shows the setting at the top instead of in the folded list. */
  readonly common?: true;
  /** The setting's range as an option of `generate` and `chat`; undefined if they lack the option. */
  readonly option?: { readonly placeholder: string; readonly min: number; readonly max: number };
}

/** Maximum of whole-number sampling settings in API requests. */
const MAX_WHOLE = 2 ** 31 - 1;

/**
 * All sampling settings. The engine's checks, library options, HTTP fields, command options, the page's dialog and the
 * table in docs/API.md follow from it. A new setting needs an entry, its type above, and a sampler.
 */
export const SAMPLING = {
  temperature: {
    kind: "number",
    default: 1,
    min: 0,
    doc: "divides the logits before a token is drawn; 0 always takes the most probable token",
    api: { name: "temperature", min: 0, max: 2 },
    label: "Temperature",
    common: true,
    option: { placeholder: "T", min: 0, max: 10 },
  },
  topP: {
    kind: "number",
    default: 1,
    off: 1,
    min: 0,
    max: 1,
    doc: "keeps the fewest of the most probable tokens that reach this share of the probability",
    api: { name: "top_p", min: 0, max: 1 },
    label: "Top-p",
    common: true,
  },
  topK: {
    kind: "whole",
    default: 0,
    off: 0,
    min: 0,
    doc: "keeps this many of the most probable tokens",
    api: { name: "top_k", min: -1, max: MAX_WHOLE },
    label: "Top-k",
    common: true,
  },
  minP: {
    kind: "number",
    default: 0,
    off: 0,
    min: 0,
    max: 1,
    doc: "keeps tokens with at least this share of the most probable token's probability",
    api: { name: "min_p", min: 0, max: 1 },
    label: "Min-p",
    common: true,
  },
  typicalP: {
    kind: "number",
    default: 1,
    off: 1,
    min: 0,
    max: 1,
    doc: "keeps the tokens whose surprise is nearest to the entropy, up to this share of the probability",
    api: { name: "typical_p", min: 0, max: 1 },
    label: "Typical-p",
  },
  topNSigma: {
    kind: "number",
    default: 0,
    off: 0,
    min: 0,
    doc: "keeps logits at most this many standard deviations below the best",
    api: { name: "top_n_sigma", min: -1, max: 1000 },
    label: "Top-n-sigma",
  },
  xtcProbability: {
    kind: "number",
    default: 0,
    off: 0,
    min: 0,
    max: 1,
    doc: "probability of removing all tokens of at least `xtc_threshold` except the least probable one",
    api: { name: "xtc_probability", min: 0, max: 1 },
    label: "XTC probability",
  },
  xtcThreshold: {
    kind: "number",
    default: 0.1,
    min: 0,
    max: 1,
    doc: "probability above which `xtc_probability` removes tokens; more than 0.5 is off",
    api: { name: "xtc_threshold", min: 0, max: 1 },
    label: "XTC threshold",
  },
  dryMultiplier: {
    kind: "number",
    default: 0,
    off: 0,
    min: 0,
    doc: "scale of the penalty on a token that would extend a repetition of prompt or answer: " +
      "`dry_multiplier` x `dry_base` ^ (length - `dry_allowed_length`)",
    api: { name: "dry_multiplier", min: 0, max: 100 },
    label: "DRY multiplier",
  },
  dryBase: {
    kind: "number",
    default: 1.75,
    min: 1,
    doc: "factor by which the DRY penalty grows per repeated token",
    api: { name: "dry_base", min: 1, max: 100 },
    label: "DRY base",
  },
  dryAllowedLength: {
    kind: "whole",
    default: 2,
    min: 0,
    doc: "repetitions of up to this many tokens have no DRY penalty",
    api: { name: "dry_allowed_length", min: 0, max: MAX_WHOLE },
    label: "DRY allowed length",
  },
  dryLastN: {
    kind: "whole",
    default: -1,
    min: -1,
    doc: "number of last tokens that are searched for repetitions; -1 is all",
    api: { name: "dry_penalty_last_n", min: -1, max: MAX_WHOLE },
    label: "DRY last tokens",
  },
  dryBreakers: {
    kind: "texts",
    default: ["\n", ":", '"', "*"],
    doc: "texts at which DRY stops matching a repetition",
    api: { name: "dry_sequence_breakers" },
    label: "DRY breakers",
  },
  repetitionPenalty: {
    kind: "number",
    default: 1,
    off: 1,
    above: 0,
    doc: "divides the logits of tokens that the prompt or answer contains; multiplies negative logits",
    api: { name: "repetition_penalty", min: 0.01, max: 10 },
    label: "Repetition penalty",
    llamaServer: "repeat_penalty",
  },
  presencePenalty: {
    kind: "number",
    default: 0,
    off: 0,
    doc: "subtracted from the logits of tokens that the answer contains",
    api: { name: "presence_penalty", min: -2, max: 2 },
    label: "Presence penalty",
  },
  frequencyPenalty: {
    kind: "number",
    default: 0,
    off: 0,
    doc: "subtracted from a token's logit once per occurrence in the answer",
    api: { name: "frequency_penalty", min: -2, max: 2 },
    label: "Frequency penalty",
  },
  logitBias: {
    kind: "biases",
    default: new Map<number, number>(),
    doc: "added to the logits of these tokens, given by id",
    api: { name: "logit_bias", min: -100, max: 100 },
    label: "Logit bias",
  },
  seed: {
    kind: "whole",
    default: undefined,
    doc: "the same seed draws the same tokens; a CPU and a GPU draw different tokens",
    // With several answers per prompt (up to 128), each further answer uses the next seed.
    api: { name: "seed", min: Number.MIN_SAFE_INTEGER, max: Number.MAX_SAFE_INTEGER - 128 },
    label: "Seed",
    common: true,
    option: { placeholder: "N", min: 0, max: Number.MAX_SAFE_INTEGER },
  },
} as const satisfies { readonly [Name in keyof SamplingParams]: SamplingSetting<SamplingParams[Name]> };

/** The table SAMPLING as a list, for loops over all settings. */
export const SAMPLING_SETTINGS = Object.entries(SAMPLING) as readonly [
  keyof SamplingParams,
  SamplingSetting,
][];

export const DEFAULT_SAMPLING = Object.fromEntries(
  SAMPLING_SETTINGS.map(([name, setting]) => [name, setting.default]),
) as unknown as Readonly<SamplingParams>;

/** Returns whether the engine accepts the value of a numeric sampling setting. */
export function isSamplingValue(
  value: unknown,
  { kind, min = -Infinity, max = Infinity, above = -Infinity }: SamplingSetting,
): boolean {
  const isNumber = kind === "whole" ? Number.isSafeInteger(value) : Number.isFinite(value);
  const number = Number(value);
  return isNumber && number >= min && number <= max && number > above;
}

/** Returns the allowed values of a numeric sampling setting, for messages: `must be …`. */
export function samplingRule({ kind, min, max, above }: SamplingSetting): string {
  if (above !== undefined) return `more than ${above}`;
  if (max !== undefined) return `from ${min} to ${max}`;
  if (kind === "whole") return `a whole number${min === undefined ? " up to 2^53 - 1" : `, ${min} or more`}`;
  return min === undefined ? "a finite number" : `${min} or more`;
}
