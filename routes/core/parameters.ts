import { z } from "@hono/zod-openapi";
import { isObject, SAMPLING_SETTINGS } from "../../engine/mod.ts";
import { check, pathText } from "./check.ts";
import { ApiError } from "./errors.ts";

/*
 * What happens to parameters that an endpoint does not support: the tables below refuse some of them and ignore others.
 * Parameters in neither table cause a warning, or a 400 in strict mode.
 */

/** The header that carries the warnings of a request. */
export const WARNING_HEADER = "x-compy-warning";

/** Parameters that change no answer of this server, by subject. */
export const IGNORED = {
  "the sender": [
    ...["user", "metadata", "client_metadata", "safety_identifier", "user_profile_id", "request_id"],
  ],
  "stored answers": ["store"],
  "where and when a request runs": [
    ...["service_tier", "inference_geo", "container", "priority", "speed", "kv_transfer_params"],
  ],
  "a provider's other models and versions": ["fallbacks", "betas", "diagnostics"],
  "the prompt cache, which always works": [
    ...["prompt_cache_key", "prompt_cache_retention", "cache_control", "cache_prompt", "id_slot"],
  ],
  "speed": [
    ...["prediction", "backend_sampling", "guided_decoding_backend"],
    ...["speculative.n_max", "speculative.n_min", "speculative.p_min", "draft_num_predict"],
  ],
  "hardware and loading": [
    ...["num_gpu", "main_gpu", "num_thread", "num_batch", "numa", "low_vram", "use_mmap", "use_mlock"],
    ...["f16_kv", "logits_all", "vocab_only", "embedding_only"],
  ],
  "context shifting and clearing": ["num_keep", "n_keep", "n_discard", "context_management"],
  "figures in answers": ["timings_per_token", "verbose", "include_obfuscation"],
  "images and sound": ["mm_processor_kwargs", "media_io_kwargs"],
  "tools that a provider runs": ["max_tool_calls"],
  "details of refused parameters": [
    ...["mirostat_tau", "mirostat_eta", "dynatemp_exponent", "adaptive_decay", "post_sampling_probs"],
    ...["length_penalty", "spaces_between_special_tokens", "grammar_triggers", "preserved_tokens"],
  ],
  "settings that their own servers no longer use": ["penalize_nl", "penalize_newline"],
} as const;

const IGNORED_NAMES: ReadonlySet<string> = new Set(Object.values(IGNORED).flat());

interface Refused {
  /** Returns whether a value other than null requests an effect. Other values are accepted. */
  readonly asks: (value: unknown) => boolean;
  /** Advice for the client; "form" and "calls": it depends on the endpoint's fields. */
  readonly instead: string | "form" | "calls";
}

const anything = () => true;
const isOn = (value: unknown) => value !== false;
const isFilled = (value: unknown) => !(Array.isArray(value) && value.length === 0);
const isText = (value: unknown) => value !== "";
const isForm = (value: unknown) => isObject(value) && value.type !== "text";
const hasForm = (value: unknown) => isObject(value) && isForm(value.format);
const other = (...usual: unknown[]) => (value: unknown) => !usual.includes(value);

const LEAVE_OUT = "leave it out";
const BIASES = 'use "logit_bias", or constrain the answer';
const ONE_ANSWER = "send a request for each answer";

/** Parameters of other servers or endpoints that would change the answer. */
const REFUSED: Readonly<Record<string, Refused>> = {
  ...refused("form", anything, "ebnf", "regex", "structural_tag", "structured_outputs", "json_schema"),
  ...refused("form", anything, "guided_choice", "guided_grammar", "guided_json", "guided_json_object"),
  ...refused("form", anything, "guided_regex"),
  ...refused("form", isText, "grammar"),
  ...refused("form", isForm, "response_format", "output_format"),
  ...refused("form", hasForm, "output_config", "text"),
  ...refused("form", isOn, "grammar_lazy"),
  ...refused("calls", isFilled, "tools", "functions"),
  ...refused('name the adapter in "model", as MODEL:ADAPTER', isFilled, "lora"),
  ...refused("whoever runs the server chooses the template", anything, "chat_template"),
  ...refused("API keys separate cached prompts; leave it out", anything, "cache_salt"),
  ...refused(BIASES, isFilled, "allowed_token_ids", "bad_words", "logits_processors"),
  ...refused('use "stop"', isFilled, "stop_token_ids"),
  ...refused('put the documents into "messages"', isFilled, "documents"),
  ...refused('put images into "messages"', isFilled, "images", "image_data", "multimodal_data"),
  ...refused("this model writes text only", anything, "audio"),
  ...refused("a long prompt is never cut", anything, "truncate_prompt_tokens"),
  ...refused('use /v1/completions with "echo" and "logprobs"', anything, "prompt_logprobs"),
  ...refused(LEAVE_OUT, isOn, "echo", "use_beam_search", "include_stop_str_in_output"),
  ...refused(LEAVE_OUT, isOn, "return_tokens", "return_token_ids", "return_tokens_as_token_ids"),
  ...refused(LEAVE_OUT, anything, "guided_whitespace_pattern"),
  ...refused(LEAVE_OUT, isFilled, "logprob_token_ids"),
  ...refused(
    LEAVE_OUT,
    other(true),
    "skip_special_tokens",
    "include_reasoning",
    "parse_tool_calls",
    "normalize",
  ),
  ...refused(LEAVE_OUT, other("auto", "deepseek"), "reasoning_format"),
  ...refused(LEAVE_OUT, other(0), "min_tokens", "dynatemp_range"),
  ...refused(LEAVE_OUT, (value) => !(typeof value === "number" && value < 0), "adaptive_target"),
  ...refused(LEAVE_OUT, other(1), "tfs_z"),
  ...refused(LEAVE_OUT, other(2), "embd_normalize"),
  ...refused(ONE_ANSWER, other(1), "n", "n_cmpl", "best_of"),
};

function refused(
  instead: Refused["instead"],
  asks: Refused["asks"],
  ...names: string[]
): Record<string, Refused> {
  return Object.fromEntries(names.map((name) => [name, { asks, instead }]));
}

/** The names of all refused parameters. */
export const REFUSED_NAMES: readonly string[] = Object.keys(REFUSED);

/** Fields that constrain an answer. The advice names the first one that the endpoint supports. */
const FORM_FIELDS: Readonly<Record<string, string>> = {
  text: 'use "text": {"format": …}',
  output_config: 'use "output_config": {"format": …}',
  response_format: 'use "response_format"',
  json_schema: 'use "grammar" or "json_schema"',
  format: 'use "format"',
};

/** Maximum warnings of one request, to bound the cost of a hostile body. */
const MAX_WARNINGS = 8;

/** Options for parameters that an endpoint does not know. */
export interface ParameterOptions {
  /** Whether to refuse unknown parameters. */
  readonly strictParameters?: boolean;
  /**
   * Receives warnings for the operator about ignored parts of bodies, and the sender. The same warning may come several
   * times.
   */
  readonly warn?: (message: string, sender?: string) => void;
}

/**
 * Returns the body as parsed by the schema. Throws ApiError 400 for a wrong field, for a parameter that the endpoint
 * refuses, and in strict mode for one that it does not know. `ignored` returns warnings about further parts that the
 * endpoint ignores.
 */
export function checkBody<Schema extends z.ZodType>(
  schema: Schema,
  value: unknown,
  { strictParameters, warn }: ParameterOptions = {},
  ignored: (body: z.output<Schema>) => readonly string[] = () => [],
): z.output<Schema> {
  const body = check(schema, value);
  const names = schema instanceof z.ZodObject ? settle(schema, value as Fields, body as Fields, []) : [];
  if (strictParameters && names.length > 0) {
    const message = `Unsupported parameter ${
      shown(names[0])
    }: this endpoint does not support it; leave it out`;
    throw new ApiError(400, "unsupported_parameter", message, { param: names[0] });
  }
  for (const name of names) warn?.(`The parameter ${shown(name)} is not supported and is ignored`);
  for (const sentence of ignored(body)) warn?.(sentence);
  return body;
}

type Fields = Record<string, unknown>;

/**
 * Returns the parameters that are neither in the schema nor in a table, of the object and of nested objects such as
 * `stream_options`. Throws ApiError for a refused parameter. In the parsed object `body`, values under llama-server's
 * name of a sampling setting move to OpenAI's name.
 */
function settle({ shape }: z.ZodObject, given: Fields, body: Fields, path: readonly string[]): string[] {
  unite(shape, body, path);
  const isKnown = (name: string) => Object.hasOwn(shape, name);
  for (const name of REFUSED_NAMES) {
    if (!Object.hasOwn(given, name) || isKnown(name)) continue;
    const value = given[name];
    if (value !== undefined && value !== null && REFUSED[name].asks(value)) {
      throw refusalOf(name, path, shape);
    }
  }
  const names: string[] = [];
  for (const name in given) {
    if (names.length >= MAX_WARNINGS) break;
    if (given[name] === undefined || given[name] === null || isKnown(name)) continue;
    if (IGNORED_NAMES.has(name) || Object.hasOwn(REFUSED, name)) continue;
    names.push(pathText([...path, name]));
  }
  for (const [name, field] of Object.entries(shape)) {
    const inner = withoutWrappers(field);
    if (inner instanceof z.ZodObject && isObject(given[name])) {
      names.push(...settle(inner, given[name] as Fields, body[name] as Fields, [...path, name]));
    }
  }
  return names.slice(0, MAX_WARNINGS);
}

/** Moves each sampling value under llama-server's name to OpenAI's name. */
function unite(shape: object, body: Fields, path: readonly string[]): void {
  for (const [, { api: { name }, llamaServer: other }] of SAMPLING_SETTINGS) {
    if (other === undefined || !(other in shape)) continue;
    const { [other]: value, [name]: first } = body;
    delete body[other];
    if (value === undefined || value === null || value === first) continue;
    if (first !== undefined && first !== null) {
      const message = `"${name}" and "${other}" are two names of one setting; send one of them`;
      throw new ApiError(400, "conflicting_parameters", message, { param: pathText([...path, other]) });
    }
    body[name] = value;
  }
}

function withoutWrappers(field: unknown): unknown {
  return field instanceof z.ZodOptional || field instanceof z.ZodNullable
    ? withoutWrappers(field.unwrap())
    : field;
}

function refusalOf(name: string, path: readonly string[], shape: object): ApiError {
  const param = pathText([...path, name]);
  const message = `Unsupported parameter "${param}": this endpoint knows no such field; ${
    adviceFor(name, shape)
  }`;
  return new ApiError(400, "unsupported_parameter", message, { param });
}

function adviceFor(name: string, shape: object): string {
  const { instead } = REFUSED[name];
  if (instead === "calls") return "tools" in shape ? 'use "tools"' : "use /v1/chat/completions for calls";
  if (instead !== "form") return instead;
  const field = Object.keys(FORM_FIELDS).find((field) => field in shape);
  return field === undefined ? LEAVE_OUT : FORM_FIELDS[field];
}

/** Returns a client's parameter name for logs: quoted, in printable characters. */
function shown(name: string): string {
  return JSON.stringify(name.replace(/[\p{C}\u2028\u2029]/gu, "\ufffd"));
}

/** Returns warnings as a header value: printable ASCII of bounded length. */
export function warningHeader(warnings: readonly string[]): string {
  return warnings.slice(0, MAX_WARNINGS).join("; ").replace(/[^\x20-\x7e]/g, "?");
}
