import {
  type Constraint,
  DEFAULT_SAMPLING,
  type GenerateRequest,
  grammarConstraint,
  SAMPLING_SETTINGS,
  type SamplingParams,
} from "../engine/mod.ts";
import { CompyError, refuse } from "./errors.ts";
import type { ImageFile } from "./messages.ts";

export type { SamplingParams } from "../engine/mod.ts";
/** @internal For compy's own commands. */
export {
  DEFAULT_SAMPLING,
  isSamplingValue,
  SAMPLING,
  SAMPLING_SETTINGS,
  samplingRule,
  type SamplingSetting,
} from "../engine/mod.ts";

/**
 * A JSON schema (2020-12): an object, or true for any JSON.
 *
 * ```ts
 * import { type JsonSchema, loadModel } from "compy";
 *
 * const schema: JsonSchema = { type: "object", properties: { age: { type: "integer" } }, required: ["age"] };
 * await using model = await loadModel();
 * const { json } = await model.chat("Ann is five.", { schema, maxTokens: 60 }).answer();
 * console.log(json);
 * ```
 */
export type JsonSchema = boolean | Readonly<Record<string, unknown>>;

/**
 * Options of both `generate` and `chat`. Sampling has the defaults of the OpenAI API: temperature 1, and no
 * truncation. Only one of `schema`, `regex`, `choices` and `grammar` can be given.
 *
 * ```ts
 * import { type GenerateOptions, loadModel } from "compy";
 *
 * const careful: GenerateOptions = { temperature: 0.2, topP: 0.9, stop: ["\n"], maxTokens: 20, seed: 1 };
 * await using model = await loadModel();
 * const { text, stop } = await model.generate("The capital of France is", careful).answer();
 * console.log(text, stop === "\n");
 * ```
 */
export interface GenerateOptions extends Partial<SamplingParams> {
  /** Maximum tokens of the answer; by default the rest of the context window. */
  readonly maxTokens?: number;
  /** Texts that end the answer; the answer does not contain them. */
  readonly stop?: string | readonly string[];
  /** Whether to continue after the model's end tokens. */
  readonly ignoreEos?: boolean;
  /** JSON schema that the answer must match; `json` in the result has it parsed. */
  readonly schema?: JsonSchema;
  /** Regular expression that the whole answer must match, in the syntax of Rust's regex crate. */
  readonly regex?: string;
  /** Allowed answers: the answer is one of these texts. */
  readonly choices?: readonly string[];
  /** Grammar that the answer must match: llama.cpp's GBNF, or Lark if it has no `::=`. */
  readonly grammar?: string;
  /** Number of alternatives (0 to 20) to return with each token's log-probability. */
  readonly logprobs?: number;
  /** Priority of the request: interactive requests precede batch requests. Default interactive. */
  readonly priority?: "interactive" | "batch";
  /** Salt of the prompt cache: only requests with equal values share cached prefixes. */
  readonly cacheSalt?: string;
  /**
   * Images, in the order of the image tokens in the prompt. Each image needs one, such as
   * `<|vision_start|><|image_pad|><|vision_end|>` for Qwen's models. In `chat`, the user's messages hold the images.
   */
  readonly images?: readonly ImageFile[];
  /**
   * The adapters to use with these scales, by their places in the model's `lora`. Default all, with their own scales.
   */
  readonly lora?: readonly { readonly id: number; readonly scale: number }[];
  /** Cancels the request, which then throws the signal's reason. */
  readonly signal?: AbortSignal;
}

/** The type that an option's value must have. */
export type Kind = "number" | "text" | "switch" | "list" | "object" | "function" | "schema" | "texts" | "any";

const KINDS: Readonly<Record<Kind, readonly [rule: string, is: (value: unknown) => boolean]>> = {
  number: ["must be a number", (value) => typeof value === "number" && !Number.isNaN(value)],
  text: ["must be a string", (value) => typeof value === "string"],
  switch: ["must be true or false", (value) => typeof value === "boolean"],
  list: ["must be an array", Array.isArray],
  object: [
    "must be an object",
    (value) => typeof value === "object" && value !== null && !Array.isArray(value),
  ],
  function: ["must be a function", (value) => typeof value === "function"],
  schema: [
    "must be a JSON schema: an object, true or false",
    (value) =>
      typeof value === "boolean" || (typeof value === "object" && value !== null && !Array.isArray(value)),
  ],
  texts: [
    "must be strings",
    (value) => Array.isArray(value) && value.every((text) => typeof text === "string"),
  ],
  any: ["", () => true],
};

/** Table of the known options and the types of their values. */
export type OptionTable<Options> = Readonly<Record<keyof Options & string, Kind>>;

const SAMPLING_KINDS = { number: "number", whole: "number", texts: "texts", biases: "object" } as const;

const SAMPLING_OPTIONS = Object.fromEntries(
  SAMPLING_SETTINGS.map(([name, { kind }]) => [name, SAMPLING_KINDS[kind]]),
) as OptionTable<SamplingParams>;

/** Names and types of the options of `generate`. */
export const GENERATE_OPTIONS: OptionTable<GenerateOptions> = {
  ...SAMPLING_OPTIONS,
  maxTokens: "number",
  stop: "any",
  ignoreEos: "switch",
  schema: "schema",
  regex: "text",
  choices: "texts",
  grammar: "text",
  logprobs: "number",
  priority: "text",
  cacheSalt: "text",
  images: "list",
  lora: "list",
  signal: "object",
};

/** Throws CompyError invalid_request for an unknown option or a value of the wrong type. */
export function checkOptions<Options extends object>(given: Options, table: OptionTable<Options>): void {
  for (const [name, value] of Object.entries(given)) {
    if (!Object.hasOwn(table, name)) {
      const known = Object.keys(table).join(", ");
      throw new CompyError(
        "invalid_request",
        `There is no option ${JSON.stringify(name)}; there are ${known}`,
      );
    }
    const [rule, is] = KINDS[table[name as keyof Options & string]];
    if (value !== undefined && !is(value)) refuse(name, rule, value);
  }
}

/**
 * Returns the fields of an engine request that `generate` and `chat` share. Throws CompyError
 * invalid_request.
 */
export function requestOf(
  options: GenerateOptions,
  signal: AbortSignal,
): Omit<GenerateRequest, "prompt" | "constraint"> {
  const { stop = [], priority = "interactive" } = options;
  const stops = typeof stop === "string" ? [stop] : stop;
  if (!KINDS.texts[1](stops)) refuse("stop", "must be a string or an array of strings", stop);
  if (priority !== "interactive" && priority !== "batch") {
    refuse("priority", 'must be "interactive" or "batch"', priority);
  }
  if (options.logitBias !== undefined && !(options.logitBias instanceof Map)) {
    refuse("logitBias", "must be a Map of token ids to numbers", options.logitBias);
  }
  const sampling = Object.entries(DEFAULT_SAMPLING)
    .map(([name, unset]) => [name, options[name as keyof SamplingParams] ?? unset]);
  return {
    maxTokens: options.maxTokens,
    sampling: Object.fromEntries(sampling),
    stop: stops.map((text) => text.toWellFormed()),
    ignoreEos: options.ignoreEos ?? false,
    logprobs: options.logprobs,
    priority,
    cacheSalt: options.cacheSalt,
    ...(options.lora && { adapters: options.lora }),
    signal,
  };
}

const FORMS = ["schema", "regex", "choices", "grammar"] as const;

/**
 * Returns the constraint of the answer, or undefined for an unconstrained one. Throws CompyError
 * invalid_request.
 */
export function constraintOf(options: GenerateOptions): Constraint | undefined {
  const given = FORMS.filter((name) => options[name] !== undefined);
  if (given.length > 1) {
    throw new CompyError("invalid_request", `Give one of ${FORMS.join(", ")} (got ${given.join(" and ")})`);
  }
  const { schema, regex, choices, grammar } = options;
  if (schema !== undefined) return { kind: "json_schema", schema };
  if (regex !== undefined) return { kind: "regex", pattern: regex };
  if (choices !== undefined) return { kind: "choice", choices };
  return grammar === undefined ? undefined : grammarConstraint(grammar);
}

/** Returns the value. Throws CompyError invalid_request if it is not a whole number of at least 1. */
export function positive(name: string, value: number | undefined): number | undefined {
  if (value === undefined || (Number.isSafeInteger(value) && value > 0)) return value;
  return refuse(name, "must be a whole number, 1 or more", value);
}
