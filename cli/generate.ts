import { AnswerText, type ShownThinking } from "./shared/answer_text.ts";
import {
  type ChatReader,
  type Constraint,
  type GenerateRequest,
  type LoadedEngine,
  loadedOf,
  type TokenEvent,
  type TokenLogprob,
} from "../lib/model.ts";
import { constraintOf } from "../lib/options.ts";
import { Flags, UsageError } from "./shared/flags.ts";
import { givenText, readText } from "./shared/given_text.ts";
import {
  BACKEND_FLAGS,
  EFFORTS,
  LENGTH_FLAGS,
  loadForOne,
  MAX_COUNT,
  MAX_TEMPERATURE,
  maxTokensOption,
  SPECULATION_FLAGS,
} from "./shared/model.ts";
import { err, onInterrupt, out } from "./shared/terminal.ts";
import { type GivenTools, readTools } from "./shared/tool_file.ts";

const DEFAULT_COUNT = 32;
const DEFAULT_TEMPERATURE = 0.7;
const MAX_LOGPROBS = 20;

const SOURCES = ["prompt", "chat", "tokens"];
const TEXT = "TEXT";
const CHAT_ONLY = ["prefill", "tools", "tool-choice", "effort", "think-tokens"];

const HELP = `Generate text from one prompt.

Usage: deno task generate [TEXT] [--file FILE] [options]
       deno task generate (--prompt TEXT | --tokens IDS) [options]

  TEXT             answer this as a user's message, by the model's chat template; - is standard input
  --chat TEXT      the same
  --prompt TEXT    continue this text; control tokens such as <|im_start|> in it count as such; - is standard input
  --file FILE      a text in front of TEXT, in UTF-8; - is standard input. May be given several times
  --prefill TEXT   how the answer begins: the model continues from there, and TEXT is not repeated. The answer does
                   not think then, has no --schema or --grammar, and is not bound to call a tool
  --tokens IDS     continue these token ids, such as 65,66,67; does not stop at end tokens
  --model FILE     the GGUF model (default: the one that comes with compy)
  -n, --max-tokens N
                   most tokens to generate (default: to the answer's end, as far as --ctx goes; with --tokens, or
                   --prompt without a form, ${DEFAULT_COUNT})
  --temperature T  0 to ${MAX_TEMPERATURE}; 0 always takes the likeliest token
                   (default ${DEFAULT_TEMPERATURE}; with --tokens 0)
  --seed N         with the same seed the same tokens are drawn
  --schema FILE    the answer is JSON that this JSON schema accepts; what is thought before it is free
  --grammar FILE   the answer has the form of this grammar: llama.cpp's GBNF, or Lark where no rule has ::=
  --tools FILE     what the model may call: JSON, a list of functions as /v1/chat/completions takes them. Calls
                   are shown as lines of JSON, {"name", "arguments"}; nothing is called
  --tool-choice W  auto (default), required: at least one call, none, or the name of the one tool to call
  --effort WORD    how much the model thinks before it answers: ${EFFORTS.join(", ")};
                   none is not at all, other words are for models that know them
  --think-tokens N most tokens of thinking, after which the answer begins
  --thinking       show what is thought in a pipe or file too; a terminal shows it dimmed in any case
  --logprobs K     instead of the text, a line a token: its log-probability and the K likeliest tokens, 0 to ${MAX_LOGPROBS}
  --ctx N          tokens that prompt and answer may have together (default: the model's own, at most 4096)
  --threads N      threads that compute (default: one a physical core)
  --isa NAME       instruction set (default: the best that this CPU has)
  --backend NAME   cpu, wasm (WebAssembly), webgpu, or auto: the GPU if it measures faster (default cpu;
                   wasm where there are no native kernels)
  --arithmetic A   of the GPU's matrix products: f32 or f16 (default f32)
  --accuracy A     gated (default), or any: also in an arithmetic in which the model leaves its gates of accuracy
  --kv-type T      of the KV cache: f16, 16 bits a value, which on the CPU are integers with a scale for each head, or q8_0 in
                   53 % of the memory (default f16)
  --activations A  rounded before products with quantised weights, on the CPU: fast (to 8 bits) or fine (to 15:
                   nearer to exact, prompts at about half the speed) (default fast)
  --speculate S    drafts of the next tokens, checked several a step, for the same answers sooner: auto, off, lookup (from the
                   text's own repetitions), mtp or draft (default auto)
  --draft FILE     a smaller model of the same vocabulary that drafts
  --json           one JSON object at the end: {"tokens": [ids of the prompt], "text", "reasoning", "calls", "steps": [{"token",
                   "top": [[id, logprob], …]}, …], "timings": {"load_ms", "prefill_tps", "decode_tps"}},
                   with the --logprobs likeliest tokens a step (default ${MAX_LOGPROBS}), best first
  --help           this text

What is sent to standard input (a pipe, a file) comes first, then each --file, then TEXT, with empty lines between them. Line ends
become \\n, those at the end go. A loop that reads standard input itself gives </dev/null to commands in it.
--prefill, --tools, --effort, --think-tokens and --thinking are for messages, and not for --prompt and --tokens.
Exit code: 0 done, 1 failed, interrupted, or cut before the answer had its form, 2 wrong usage.

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

/** `generate …` of the command line. Returns the exit code. */
export async function generateCommand(args: readonly string[]): Promise<number> {
  const values = [
    ...SOURCES,
    "file",
    "model",
    ...LENGTH_FLAGS,
    "temperature",
    "seed",
    "schema",
    "grammar",
    ...CHAT_ONLY,
    "logprobs",
    "ctx",
    "threads",
    "isa",
    ...BACKEND_FLAGS,
    ...SPECULATION_FLAGS,
  ];
  const flags = new Flags(args, { values, repeated: ["file"], switches: ["thinking"], text: TEXT });
  if (flags.help) {
    out(HELP);
    return 0;
  }
  checkCombination(flags);
  const tokens = flags.counts("tokens", 0, 2 ** 31 - 1);
  const toTheEnd = isMessage(flags) || flags.has("schema") || flags.has("grammar");
  const request = {
    maxTokens: maxTokensOption(flags) ?? (toTheEnd ? undefined : DEFAULT_COUNT),
    sampling: {
      temperature: flags.number("temperature", 0, MAX_TEMPERATURE) ?? (tokens ? 0 : DEFAULT_TEMPERATURE),
      seed: flags.count("seed", 0, Number.MAX_SAFE_INTEGER),
    },
    logprobs: flags.count("logprobs", 0, MAX_LOGPROBS) ?? (flags.json ? MAX_LOGPROBS : undefined),
    ignoreEos: tokens !== undefined,
  };
  const constraint = await readConstraint(flags);
  const tools = await givenTools(flags);
  const ask = askOf(flags, tokens ?? await textOf(flags), constraint, tools);
  const terminal = Deno.stdout.isTerminal();
  const thinking = { shown: terminal || flags.is("thinking"), dimmed: terminal };
  await using model = await loadForOne(flags);
  const loaded = loadedOf(model);
  const { id, pooled } = loaded.engine.model;
  if (pooled?.encoder) {
    const instead = pooled.kind === "rank"
      ? "deno task serve --model FILE, which ranks documents"
      : "deno task embed";
    throw new Error(`The model "${id}" gives vectors for texts and generates no text: use ${instead}`);
  }
  const { reader, ...asked } = ask(loaded);
  return await generate(loaded, { ...request, ...asked }, {
    json: flags.json,
    reader,
    thinking,
    hasForm: constraint !== undefined || (tools?.mustCall ?? false),
  });
}

/** Whether the model is to answer a message, and not to continue a text or tokens. */
function isMessage(flags: Flags): boolean {
  return !flags.has("prompt") && !flags.has("tokens");
}

async function textOf(flags: Flags): Promise<string> {
  const text = await givenText(flags, flags.word ?? flags.text("chat") ?? flags.text("prompt"));
  if (text !== undefined) return text;
  throw new UsageError(
    "There is no text: give TEXT, --prompt, --file or --tokens, or send one to standard input",
  );
}

function checkCombination(flags: Flags): void {
  const given = SOURCES.filter((name) => flags.has(name)).map((name) => `--${name}`);
  if (flags.word !== undefined) given.push(TEXT);
  if (given.length > 1) {
    throw new UsageError(`Give one of TEXT, --prompt, --chat and --tokens (got ${given.join(" and ")})`);
  }
  if (flags.has("tokens") && flags.has("file")) throw new UsageError("Give one of --tokens and --file");
  if (flags.has("schema") && flags.has("grammar")) throw new UsageError("Give one of --schema and --grammar");
  if (flags.has("tokens") && (flags.has("schema") || flags.has("grammar"))) {
    throw new UsageError(
      "--schema and --grammar need a text: with --tokens nothing ends the answer",
    );
  }
  const chatOnly = [
    ...CHAT_ONLY.filter((name) => flags.has(name)),
    ...(flags.is("thinking") ? ["thinking"] : []),
  ];
  if (chatOnly.length > 0 && !isMessage(flags)) {
    throw new UsageError(`--${chatOnly[0]} is for messages; give TEXT in place of --prompt or --tokens`);
  }
  if (flags.has("prefill")) checkPrefill(flags);
  if (flags.has("tool-choice") && !flags.has("tools")) throw new UsageError("--tool-choice needs --tools");
}

/** The beginning of a continued answer is the caller's own: it cannot have a form, or be a call. */
function checkPrefill(flags: Flags): void {
  const form = ["schema", "grammar"].find((name) => flags.has(name));
  const choice = flags.text("tool-choice") ?? "auto";
  const forced = choice === "auto" || choice === "none" ? undefined : `tool-choice ${choice}`;
  const other = form ?? forced;
  if (other === undefined) return;
  throw new UsageError(`--${other} cannot be kept where the answer continues a text: leave out --prefill`);
}

async function givenTools(flags: Flags): Promise<GivenTools | undefined> {
  const file = flags.text("tools");
  return file === undefined ? undefined : await readTools(file, flags.text("tool-choice"));
}

/** The form of the answer, from a file. */
async function readConstraint(flags: Flags): Promise<Constraint | undefined> {
  const schemaFile = flags.text("schema");
  const grammarFile = flags.text("grammar");
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

type Ask = Pick<GenerateRequest, "prompt" | "constraint" | "markers" | "thinking"> & { reader?: ChatReader };

/** What a loaded engine is to be asked: token ids, or a text. */
function askOf(
  flags: Flags,
  asked: number[] | string,
  constraint: Constraint | undefined,
  tools: GivenTools | undefined,
): (loaded: LoadedEngine) => Ask {
  const effort = flags.choice("effort", EFFORTS);
  const thinkingBudget = flags.count("think-tokens", 0, MAX_COUNT);
  return ({ engine }) => {
    if (typeof asked !== "string") return { prompt: asked };
    if (!isMessage(flags)) return { prompt: engine.encodePrompt(asked), constraint };
    const prefill = flags.text("prefill");
    const begun = prefill === undefined ? [] : [{ role: "assistant", content: prefill }];
    const plan = engine.chatForm.plan({
      messages: [{ role: "user", content: asked }, ...begun],
      continueFinal: prefill !== undefined,
      constraint,
      ...(tools && { tools: tools.tools, toolChoice: tools.toolChoice }),
      ...(effort === undefined ? {} : { effort: effort === "none" ? false : effort }),
      thinkingBudget,
    });
    const { prompt, markers, thinking } = plan;
    return { prompt, constraint: plan.constraint, markers, thinking, reader: plan.reader() };
  };
}

interface Showing {
  readonly json: boolean;
  readonly reader: ChatReader | undefined;
  readonly thinking: ShownThinking;
  /** What is cut is no answer. */
  readonly hasForm: boolean;
}

async function generate(loaded: LoadedEngine, request: GenerateRequest, showing: Showing): Promise<number> {
  const { tokenizer } = loaded.engine;
  const { json } = showing;
  const abort = new AbortController();
  onInterrupt(() => abort.abort());
  const steps: Step[] = [];
  const answer = new AnswerText(showing.reader, showing.thinking);
  let finish: Finish | undefined;
  const asText = !json && request.logprobs === undefined;
  for await (const event of loaded.engine.submit({ ...request, signal: abort.signal })) {
    if (event.type === "token") {
      steps.push({ token: event.token, text: event.text, logprob: event.logprob, top: event.top ?? [] });
      if (!json && request.logprobs !== undefined) out(stepLine(steps.at(-1)!, tokenizer));
    }
    const more = answer.read(event);
    if (asText) out(more);
    if (event.type === "finish") finish = event;
  }
  if (json) out(`${JSON.stringify(report(loaded, request, steps, answer, finish!))}\n`);
  else if (asText) out("\n");
  if (finish!.reason === "cancelled") err(`Interrupted after ${steps.length} tokens\n`);
  else if (finish!.reason === "stop" || !(showing.hasForm || answer.hasCutCall)) return 0;
  else {err(
      `Cut after ${steps.length} tokens: the answer has not its form yet; allow more with -n or --ctx\n`,
    );}
  return 1;
}

/** `-0.12 " the"   -0.12 " the"  -2.70 " a"`: the token that was taken, then the likeliest. */
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
      // The first token comes of the prefill.
      decode_tps: rate(steps.length - 1, timings.decodeMs),
    },
  };
}
