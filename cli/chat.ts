import { ChatSession, COMMAND_HELP, type Screen } from "./chat_session.ts";
import { PipedLines, TerminalLines } from "./chat_input.ts";
import { Flags } from "./flags.ts";
import {
  BACKEND_FLAGS,
  EFFORTS,
  loadForOne,
  MAX_COUNT,
  MAX_TEMPERATURE,
  SPECULATION_FLAGS,
} from "./model.ts";
import { dim, err, onInterrupt, out, ProgressLine } from "./terminal.ts";

const DEFAULT_TEMPERATURE = 0.7;

const HELP = `Chat with a model on the terminal.

Usage: deno task chat [options]

  --model FILE     the GGUF model (default: the one that comes with compy)
  --system TEXT    what the model is to be
  -n N             most tokens of an answer (default: as far as --ctx goes)
  --temperature T  0 to ${MAX_TEMPERATURE}; 0 always takes the likeliest token (default ${DEFAULT_TEMPERATURE})
  --seed N         with the same seed the same tokens are drawn
  --effort WORD    how much the model thinks before it answers: ${EFFORTS.join(", ")};
                   none is not at all, other words are for models that know them
  --think-tokens N most tokens of thinking, after which the answer begins
  --ctx N          tokens that the conversation may have (default: the model's own, at most 4096)
  --threads N      threads that compute (default: one a physical core)
  --isa NAME       instruction set (default: the best that this CPU has)
  --backend NAME   cpu, wasm (WebAssembly), webgpu, or auto: the GPU if it measures faster (default cpu;
                   wasm where there are no native kernels)
  --arithmetic A   of the GPU's matrix products: f32, f16-activations, f16 or int16-activations (default f32)
  --accuracy A     gated (default), or any: also in an arithmetic in which the model leaves its gates of accuracy
  --kv-type T      of the KV cache: f16, 16 bits a value, which on the CPU are integers with a scale for each head, or q8_0 in
                   53 % of the memory (default f16)
  --activations A  rounded before products with quantised weights, on the CPU: fast (to 8 bits) or fine (to 15:
                   nearer to exact, prompts at about half the speed) (default fast)
  --speculate S    drafts of the next tokens, checked several a step, for the same answers sooner: auto, off, lookup (from the
                   text's own repetitions), mtp or draft (default auto)
  --draft FILE     a smaller model of the same vocabulary that drafts
  --help           this text

In the conversation (the arrow keys find earlier messages; Ctrl-C stops an answer, which stays as far as it came):
${COMMAND_HELP}
A terminal shows thinking and each answer's speed dimmed. From a pipe each line is a message, and only the answers are shown.
Exit code: 0 done, 1 failed, or a piped message was not answered, 2 wrong usage.

Examples:
  deno task chat
  deno task chat --model qwen3-4b-q4_0.gguf --system 'You answer in one sentence.'
  printf 'Who are you?\\nWhat do you like?\\n' | deno task chat
`;

/** `chat …` of the command line. Returns the exit code. */
export async function chatCommand(args: readonly string[]): Promise<number> {
  const values = [
    "model",
    "system",
    "n",
    "temperature",
    "seed",
    "effort",
    "think-tokens",
    "ctx",
    "threads",
    "isa",
  ];
  const flags = new Flags(args, { values: [...values, ...BACKEND_FLAGS, ...SPECULATION_FLAGS] });
  if (flags.help) {
    out(HELP);
    return 0;
  }
  const talks = Deno.stdin.isTerminal() && Deno.stdout.isTerminal();
  const options = {
    system: flags.text("system"),
    maxTokens: flags.count("n", 0, MAX_COUNT),
    temperature: flags.number("temperature", 0, MAX_TEMPERATURE) ?? DEFAULT_TEMPERATURE,
    seed: flags.count("seed", 0, Number.MAX_SAFE_INTEGER),
    effort: flags.choice("effort", EFFORTS),
    thinkingBudget: flags.count("think-tokens", 0, MAX_COUNT),
    asides: talks,
  };
  await using model = await loadForOne(flags);
  const { id, contextLength } = model.info;
  if (talks) {
    out(dim(`${id}, ${contextLength} tokens of context. /help lists what else there is; Ctrl-D leaves.\n`));
  }
  const session = new ChatSession(model, options, new TerminalScreen(talks));
  if (talks) return await talk(session);
  const lines = new PipedLines(Deno.stdin.readable);
  const unlisten = onInterrupt(() => {
    session.leave();
    lines.close();
  });
  try {
    return await session.run(lines) ? 0 : 1;
  } finally {
    unlisten();
  }
}

/** Ctrl-C ends the answer, and the program only where it waits for a message; SIGTERM ends both. */
async function talk(session: ChatSession): Promise<number> {
  const lines = new TerminalLines();
  const stop = () => session.interrupt();
  const leave = () => {
    session.leave();
    lines.close();
  };
  Deno.addSignalListener("SIGINT", stop);
  if (Deno.build.os !== "windows") Deno.addSignalListener("SIGTERM", leave);
  await session.run(lines);
  Deno.removeSignalListener("SIGINT", stop);
  if (Deno.build.os !== "windows") Deno.removeSignalListener("SIGTERM", leave);
  return 0;
}

/** Answers on standard output; problems and progress on standard error. */
class TerminalScreen implements Screen {
  #reading: ProgressLine | undefined;

  /** A pipe is given nothing but answers. */
  constructor(private readonly showsAsides: boolean) {}

  text(text: string): void {
    this.#shown();
    out(text);
  }

  aside(text: string): void {
    this.#shown();
    if (this.showsAsides) out(dim(text));
  }

  problem(text: string): void {
    this.#shown();
    err(text);
  }

  reading(done: number, total: number): void {
    this.#reading ??= new ProgressLine("Reading the conversation");
    this.#reading.update(done, total);
  }

  #shown(): void {
    this.#reading?.done();
    this.#reading = undefined;
  }
}
