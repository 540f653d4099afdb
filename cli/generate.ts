import { type LoadedEngine } from "../engine/load.ts";
import type { GenerateRequest, TokenEvent, TokenLogprob } from "../engine/types.ts";
import { Flags, UsageError } from "./flags.ts";
import {
  BACKEND_FLAGS,
  backendOptions,
  loadWithProgress,
  MAX_CONTEXT,
  MAX_THREADS,
  modelPath,
} from "./model.ts";
import { err, onInterrupt, out } from "./terminal.ts";

const DEFAULT_COUNT = 32;
const DEFAULT_TEMPERATURE = 0.7;
const MAX_COUNT = 1_000_000;
const MAX_TEMPERATURE = 10;
const MAX_LOGPROBS = 20;

const HELP = `Generate text from one prompt.

Usage: deno task generate (--prompt TEXT | --chat TEXT | --tokens IDS) [options]

  --prompt TEXT    continue this text; control tokens such as <|im_start|> in it count as such
  --chat TEXT      answer this as a user's message, by the model's chat template
  --tokens IDS     continue these token ids, such as 65,66,67; does not stop at end tokens
  --model FILE     the GGUF model (default: the one that comes with compy)
  -n N             most tokens to generate (default ${DEFAULT_COUNT}; with --chat to the answer's end, as far as --ctx goes)
  --temperature T  0 to ${MAX_TEMPERATURE}; 0 always takes the likeliest token
                   (default ${DEFAULT_TEMPERATURE}; with --tokens 0)
  --seed N         with the same seed the same tokens are drawn
  --logprobs K     instead of the text, a line a token: its log-probability and the K likeliest tokens, 0 to ${MAX_LOGPROBS}
  --ctx N          tokens that prompt and answer may have together (default: the model's own, at most 4096)
  --threads N      threads that compute (default: one a core)
  --isa NAME       instruction set (default: the best that this CPU has)
  --backend NAME   cpu, webgpu, or auto: the GPU if it measures faster (default cpu)
  --arithmetic A   of the GPU's matrix products: f32, f16-activations or f16 (default f32)
  --kv-type T      of the KV cache: f16, or q8_0 in 53 % of the memory, on the CPU only (default f16)
  --json           one JSON object at the end: {"tokens": [ids of the prompt], "text", "steps": [{"token",
                   "top": [[id, logprob], …]}, …], "timings": {"load_ms", "prefill_tps", "decode_tps"}},
                   with the --logprobs likeliest tokens a step (default ${MAX_LOGPROBS}), best first
  --help           this text

Exit code: 0 done, 1 failed or interrupted, 2 wrong usage.

Examples:
  deno task generate --chat 'Who are you?'
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
  const sources = ["prompt", "chat", "tokens"];
  const values = [
    ...sources,
    "model",
    "n",
    "temperature",
    "seed",
    "logprobs",
    "ctx",
    "threads",
    "isa",
    ...BACKEND_FLAGS,
  ];
  const flags = new Flags(args, { values });
  if (flags.help) {
    out(HELP);
    return 0;
  }
  const given = sources.filter((name) => flags.has(name));
  if (given.length !== 1) {
    const got = given.map((name) => `--${name}`).join(" and ") || "none";
    throw new UsageError(`Give one of --prompt, --chat and --tokens (got ${got})`);
  }
  const tokens = flags.counts("tokens", 0, 2 ** 31 - 1);
  const request = {
    maxTokens: flags.count("n", 0, MAX_COUNT) ?? (flags.has("chat") ? undefined : DEFAULT_COUNT),
    sampling: {
      temperature: flags.number("temperature", 0, MAX_TEMPERATURE) ?? (tokens ? 0 : DEFAULT_TEMPERATURE),
      seed: flags.count("seed", 0, Number.MAX_SAFE_INTEGER),
    },
    logprobs: flags.count("logprobs", 0, MAX_LOGPROBS) ?? (flags.json ? MAX_LOGPROBS : undefined),
    ignoreEos: tokens !== undefined,
  };
  const loaded = await loadWithProgress({
    model: modelPath(flags.text("model")),
    contextLength: flags.count("ctx", 1, MAX_CONTEXT),
    threads: flags.count("threads", 1, MAX_THREADS),
    isa: flags.text("isa"),
    ...backendOptions(flags),
    parallel: 1,
  });
  try {
    const prompt = tokens ?? encode(loaded, flags);
    return await generate(loaded, { ...request, prompt }, flags.json);
  } finally {
    await loaded.engine.close();
  }
}

function encode({ engine }: LoadedEngine, flags: Flags): number[] {
  const chat = flags.text("chat");
  if (chat !== undefined) {
    return engine.encodeChat([{ role: "user", content: chat }], { addGenerationPrompt: true });
  }
  return engine.encodePrompt(flags.text("prompt")!);
}

async function generate(loaded: LoadedEngine, request: GenerateRequest, json: boolean): Promise<number> {
  const { tokenizer } = loaded.engine;
  const abort = new AbortController();
  onInterrupt(() => abort.abort());
  const steps: Step[] = [];
  let text = "";
  let finish: Finish | undefined;
  const show = (more: string) => {
    text += more;
    if (!json && request.logprobs === undefined) out(more);
  };
  for await (const event of loaded.engine.submit({ ...request, signal: abort.signal })) {
    if (event.type === "token") {
      steps.push({ token: event.token, text: event.text, logprob: event.logprob, top: event.top ?? [] });
      if (!json && request.logprobs !== undefined) out(stepLine(steps.at(-1)!, tokenizer));
    }
    if (event.type === "token" || event.type === "text" || event.type === "finish") show(event.text);
    if (event.type === "finish") finish = event;
  }
  if (json) out(`${JSON.stringify(report(loaded, request, steps, text, finish!))}\n`);
  else show("\n");
  if (finish!.reason !== "cancelled") return 0;
  err(`Interrupted after ${steps.length} tokens\n`);
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
  text: string,
  { timings, usage }: Finish,
) {
  const rate = (tokens: number, ms: number) => ms > 0 && tokens > 0 ? tokens * 1000 / ms : null;
  return {
    tokens: prompt,
    text,
    steps: steps.map(({ token, top }) => ({ token, top: top.map((t) => [t.token, t.logprob]) })),
    timings: {
      load_ms: loadMs,
      prefill_tps: rate(usage.promptTokens - usage.cachedTokens, timings.prefillMs),
      // The first token comes of the prefill.
      decode_tps: rate(steps.length - 1, timings.decodeMs),
    },
  };
}
