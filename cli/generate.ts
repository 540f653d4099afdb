import { AnswerText } from "./shared/answer_text.ts";
import {
  type ChatReader,
  type Constraint,
  type GenerateRequest,
  type LoadedEngine,
  loadedOf,
  type PromptImage,
  type TokenEvent,
  type TokenLogprob,
} from "../lib/model.ts";
import { constraintOf } from "../lib/options.ts";
import { UsageError } from "./shared/flags.ts";
import { givenText, readText } from "./shared/given_text.ts";
import {
  ADAPTERS,
  COMPUTE,
  CTX,
  DRAFTS,
  EFFORT,
  IMAGES,
  ISA,
  MAX_COUNT,
  MODEL,
  RAW,
  SAMPLING_FLAGS,
  samplingOf,
  THINK_TOKENS,
} from "./shared/engine_settings.ts";
import { CHAT_TEMPLATE } from "./shared/chat_template.ts";
import { loadForOne } from "./shared/model.ts";
import { type Given, readWords } from "./shared/read_settings.ts";
import { count, counts, flagOf, HELP_LINE, helpOf, onOff, path, text, texts } from "./shared/settings.ts";
import { jsonLine } from "./shared/escape.ts";
import { err, onInterrupt, out } from "./shared/terminal.ts";
import { readImageFile } from "./shared/image_file.ts";
import { type GivenTools, readTools } from "./shared/tool_file.ts";

const DEFAULT_COUNT = 32;
const MAX_LOGPROBS = 20;

const TEXT = "TEXT";

const OPTIONS = {
  chat: text("TEXT", { help: "the same as TEXT" }),
  prompt: text("TEXT", {
    help: "continue this text; control tokens in it, such as <|im_start|>, take effect; - is standard input",
  }),
  file: texts("FILE", {
    help: "a UTF-8 text that comes before TEXT; - is standard input; may be given several times",
  }),
  image: texts("FILE", {
    help:
      "a PNG, JPEG, WebP or GIF image that comes before TEXT, for a model with a vision tower; may be given several times",
  }),
  prefill: text("TEXT", {
    help:
      "the beginning of the answer: the model continues from there, and the output does not repeat TEXT; the answer " +
      "then has no thinking, no --schema or --grammar, and no forced tool call",
  }),
  tokens: counts("IDS", {
    min: 0,
    max: 2 ** 31 - 1,
    help:
      "continue these token ids, such as 65,66,67; the answer does not stop at end tokens, and --temperature is 0 by " +
      "default",
  }),
  model: MODEL,
  maxTokens: count({
    short: "n",
    min: 0,
    max: MAX_COUNT,
    help:
      "maximum tokens of the answer (default: until the answer ends or --ctx is full; with --tokens, or with " +
      `--prompt without --schema and --grammar, ${DEFAULT_COUNT})`,
  }),
  ...SAMPLING_FLAGS,
  schema: path("FILE", {
    help: "the answer is JSON that follows this JSON schema; thinking before it is not constrained",
  }),
  grammar: path("FILE", {
    help: "the answer follows this grammar: llama.cpp's GBNF, or Lark if no rule has ::=",
  }),
  tools: path("FILE", {
    help:
      "tools that the model may call: a JSON list of functions, as for /v1/chat/completions; each call is printed as a " +
      'line of JSON, {"name", "arguments"}, and is not executed',
  }),
  toolChoice: text("W", {
    help: "auto (default), required (at least one call), none, or the name of the one tool to call",
  }),
  effort: EFFORT,
  thinkTokens: THINK_TOKENS,
  thinking: onOff({ help: "print thinking into a pipe or file too; a terminal always shows it, dimmed" }),
  raw: RAW,
  logprobs: count({
    placeholder: "K",
    min: 0,
    max: MAX_LOGPROBS,
    help:
      "print one line per token in place of the text: its log-probability and the K most probable tokens, " +
      `0 to ${MAX_LOGPROBS}`,
  }),
  chatTemplate: CHAT_TEMPLATE,
  ctx: CTX,
  isa: ISA,
  ...COMPUTE,
  ...DRAFTS,
  ...ADAPTERS,
  ...IMAGES,
  json: onOff({
    help:
      'print one JSON object at the end: {"tokens": [ids of the prompt], "text", "reasoning", "calls", "steps": ' +
      '[{"token", "top": [[id, logprob], …]}, …], "timings": {"load_ms", "prefill_tps", "decode_tps"}}, with the ' +
      `--logprobs most probable tokens per step (default: ${MAX_LOGPROBS}), best first`,
  }),
};

type GivenWords = Given<typeof OPTIONS>;

const SOURCES = ["prompt", "chat", "tokens"] as const;
const CHAT_ONLY = [
  "image",
  "prefill",
  "tools",
  "toolChoice",
  "effort",
  "thinkTokens",
  "thinking",
  "chatTemplate",
] as const;

const HELP = `Generate text from one prompt.

Usage: deno task generate [TEXT] [--file FILE] [options]
       deno task generate (--prompt TEXT | --tokens IDS) [options]

  TEXT               a user's message, which the model answers in its chat template; - is standard input
${helpOf(OPTIONS)}${HELP_LINE}
The prompt is what was sent to standard input (a pipe, a file), then each --file, then TEXT, with empty lines between them.
Line ends become \\n, and those at the end are removed. In a shell loop that reads standard input, add </dev/null.
--image, --prefill, --tools, --effort, --think-tokens, --thinking and --chat-template do not work with --prompt and --tokens.
Exit code: 0 done, 1 failed, interrupted, or stopped before the answer was complete in its form, 2 wrong usage.

Examples:
  deno task generate 'Who are you?'
  git diff | deno task -q generate 'Write a commit message for this change.'
  deno task generate --file report.txt 'What is this about, in one sentence?'
  deno task generate 'A city and its population' --schema city.json | jq .population
  deno task generate 'Tell me of a hen' --prefill 'Once upon a time'
  deno task generate --tokens 65,66,67 -n 16 --json
`;

interface Step {
  readonly token: number;
  readonly text: string;
  readonly logprob: number | undefined;
  readonly top: readonly TokenLogprob[];
}
type Finish = TokenEvent & { type: "finish" };

/** Runs `generate …` of the command line. Returns the exit code. */
export async function generateCommand(args: readonly string[]): Promise<number> {
  const given = readWords(OPTIONS, args, HELP, { text: TEXT });
  if (given === undefined) return 0;
  const { values } = given;
  checkCombination(given);
  const { tokens } = values;
  const toTheEnd = isMessage(given) || values.schema !== undefined || values.grammar !== undefined;
  const request = {
    maxTokens: values.maxTokens ?? (toTheEnd ? undefined : DEFAULT_COUNT),
    sampling: samplingOf(tokens ? { ...values, temperature: values.temperature ?? 0 } : values),
    logprobs: values.logprobs ?? (given.json ? MAX_LOGPROBS : undefined),
    ignoreEos: tokens !== undefined,
  };
  const constraint = await readConstraint(given);
  const tools = values.tools === undefined ? undefined : await readTools(values.tools, values.toolChoice);
  const ask = askOf(given, tokens ?? await textOf(given), constraint, tools);
  await using model = await loadForOne(values);
  const loaded = loadedOf(model);
  const { id, pooled } = loaded.engine.model;
  if (pooled?.encoder) {
    const instead = pooled.kind === "rank"
      ? "deno task serve --model FILE, which ranks documents"
      : "deno task embed";
    throw new Error(`The model "${id}" returns vectors for texts and generates no text: use ${instead}`);
  }
  const { reader, ...asked } = ask(loaded, await readImages(values.image, loaded));
  return await generate(loaded, { ...request, ...asked }, {
    json: given.json,
    reader,
    thinking: Deno.stdout.isTerminal() || values.thinking,
    raw: values.raw,
    hasForm: constraint !== undefined || (tools?.mustCall ?? false),
  });
}

/** Returns whether the words are a message to answer, and not a text or tokens to continue. */
function isMessage({ values: { prompt, tokens } }: GivenWords): boolean {
  return prompt === undefined && tokens === undefined;
}

async function textOf({ word, values }: GivenWords): Promise<string> {
  const text = await givenText(values.file, word ?? values.chat ?? values.prompt);
  if (text !== undefined) return text;
  throw new UsageError(
    "There is no text: give TEXT, --prompt, --file or --tokens, or send one to standard input",
  );
}

function checkCombination(given: GivenWords): void {
  const has = (name: keyof typeof OPTIONS) => given.sources[name] === "flag";
  const sources = SOURCES.filter(has).map((name) => `--${name}`);
  if (given.word !== undefined) sources.push(TEXT);
  if (sources.length > 1) {
    throw new UsageError(`Give one of TEXT, --prompt, --chat and --tokens (got ${sources.join(" and ")})`);
  }
  if (has("tokens") && has("file")) throw new UsageError("Give one of --tokens and --file");
  if (has("schema") && has("grammar")) throw new UsageError("Give one of --schema and --grammar");
  if (has("tokens") && (has("schema") || has("grammar"))) {
    throw new UsageError(
      "--schema and --grammar need a text: with --tokens nothing ends the answer",
    );
  }
  const chatOnly = CHAT_ONLY.find(has);
  if (chatOnly !== undefined && !isMessage(given)) {
    throw new UsageError(`--${flagOf(chatOnly)} is for messages; give TEXT in place of --prompt or --tokens`);
  }
  if (has("prefill")) checkPrefill(given);
  if (has("toolChoice") && !has("tools")) throw new UsageError("--tool-choice needs --tools");
}

/**
 * Throws for a prefilled answer with a constraint or a required call: the caller has already begun the
 * answer.
 */
function checkPrefill({ values: { schema, grammar, toolChoice = "auto" } }: GivenWords): void {
  const form = schema !== undefined ? "schema" : grammar !== undefined ? "grammar" : undefined;
  const forced = toolChoice === "auto" || toolChoice === "none" ? undefined : `tool-choice ${toolChoice}`;
  const other = form ?? forced;
  if (other === undefined) return;
  throw new UsageError(`--${other} cannot be enforced if the answer continues a text: leave out --prefill`);
}

/** Returns the constraint of the answer, read from a file. */
async function readConstraint(
  { values: { schema: schemaFile, grammar: grammarFile } }: GivenWords,
): Promise<Constraint | undefined> {
  if (schemaFile !== undefined) {
    const text = await readText(schemaFile, "Cannot read the schema");
    try {
      return { kind: "json_schema", schema: JSON.parse(text) };
    } catch (error) {
      throw new Error(`Cannot use the schema "${schemaFile}": it is not JSON: ${(error as Error).message}`);
    }
  }
  if (grammarFile === undefined) return undefined;
  return constraintOf({ grammar: await readText(grammarFile, "Cannot read the grammar") });
}

type Ask = Pick<GenerateRequest, "prompt" | "images" | "constraint" | "markers" | "thinking"> & {
  reader?: ChatReader;
};

/** Returns the request for a loaded engine, as token ids or a text. */
function askOf(
  given: GivenWords,
  asked: readonly number[] | string,
  constraint: Constraint | undefined,
  tools: GivenTools | undefined,
): (loaded: LoadedEngine, images: readonly PromptImage[]) => Ask {
  const { effort, thinkTokens: thinkingBudget, prefill } = given.values;
  return ({ engine }, images) => {
    if (typeof asked !== "string") return { prompt: asked };
    if (!isMessage(given)) return { prompt: engine.encodePrompt(asked), constraint };
    const begun = prefill === undefined ? [] : [{ role: "assistant", content: prefill }];
    const plan = engine.chatForm.plan({
      messages: [{ role: "user", content: images.length === 0 ? asked : contentOf(asked, images) }, ...begun],
      continueFinal: prefill !== undefined,
      constraint,
      ...(tools && { tools: tools.tools, toolChoice: tools.toolChoice }),
      ...(effort === undefined ? {} : { effort: effort === "none" ? false : effort }),
      thinkingBudget,
    });
    const { prompt, markers, thinking } = plan;
    return { prompt, images, constraint: plan.constraint, markers, thinking, reader: plan.reader() };
  };
}

/** Decodes the images. Throws EngineError for a model that takes none, and for an image that cannot be read. */
async function readImages(files: readonly string[], { engine }: LoadedEngine): Promise<PromptImage[]> {
  const images: PromptImage[] = [];
  for (const file of files) {
    images.push(await engine.readImage(await readImageFile(file)));
  }
  return images;
}

function contentOf(text: string, images: readonly PromptImage[]): { type: string; text?: string }[] {
  return [...images.map(() => ({ type: "image" })), { type: "text", text }];
}

interface Showing {
  readonly json: boolean;
  readonly reader: ChatReader | undefined;
  /** Whether thinking is shown. */
  readonly thinking: boolean;
  /** Whether a terminal receives control characters as they are. */
  readonly raw: boolean;
  /** Whether the answer is constrained, so that a truncated one is invalid. */
  readonly hasForm: boolean;
}

async function generate(loaded: LoadedEngine, request: GenerateRequest, showing: Showing): Promise<number> {
  const { tokenizer } = loaded.engine;
  const { json, thinking, raw } = showing;
  const abort = new AbortController();
  onInterrupt(() => abort.abort());
  const steps: Step[] = [];
  let finish: Finish | undefined;
  const asText = !json && request.logprobs === undefined;
  const show = (text: string, dimmed: boolean) => asText && out(text, { dimmed, raw });
  const answer = new AnswerText(showing.reader, { thinking, show });
  for await (const event of loaded.engine.submit({ ...request, signal: abort.signal })) {
    if (event.type === "token") {
      steps.push({ token: event.token, text: event.text, logprob: event.logprob, top: event.top ?? [] });
      if (!json && request.logprobs !== undefined) out(stepLine(steps.at(-1)!, tokenizer));
    }
    answer.read(event);
    if (event.type === "finish") finish = event;
  }
  if (json) out(jsonLine(report(loaded, request, steps, answer, finish!)));
  else if (asText) out("\n");
  if (finish!.reason === "cancelled") err(`Interrupted after ${steps.length} tokens\n`);
  else if (finish!.reason === "stop" || !(showing.hasForm || answer.hasCutCall)) return 0;
  else {err(
      `Truncated after ${steps.length} tokens: the constrained answer is incomplete; allow more with -n or --ctx\n`,
    );}
  return 1;
}

/** Returns a step as `-0.12 " the"   -0.12 " the"  -2.70 " a"`: the chosen token, then the most probable ones. */
function stepLine({ token, logprob, top }: Step, tokenizer: LoadedEngine["engine"]["tokenizer"]): string {
  const show = (id: number, value = NaN) =>
    `${value.toFixed(4)} ${JSON.stringify(tokenizer.decode([id], { special: true, continuation: true }))}`;
  return [show(token, logprob), ...top.map((t) => show(t.token, t.logprob))].join("\t") + "\n";
}

function report(
  { loadMs }: LoadedEngine,
  { prompt }: GenerateRequest,
  steps: readonly Step[],
  { text, reasoning, calls }: AnswerText,
  { timings, usage }: Finish,
) {
  const rate = (tokens: number, ms: number) => ms > 0 && tokens > 0 ? tokens * 1000 / ms : null;
  return {
    tokens: prompt,
    text,
    ...(reasoning === "" ? {} : { reasoning }),
    ...(calls.length === 0 ? {} : { calls }),
    steps: steps.map(({ token, top }) => ({ token, top: top.map((t) => [t.token, t.logprob]) })),
    timings: {
      load_ms: loadMs,
      prefill_tps: rate(usage.promptTokens - usage.cachedTokens, timings.prefillMs),
      // The first token comes from the prefill, so it is not counted.
      decode_tps: rate(steps.length - 1, timings.decodeMs),
    },
  };
}
