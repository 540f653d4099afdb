import { ChatSession, COMMAND_HELP, type Screen } from "./chat_session.ts";
import { PipedLines, TerminalLines } from "./chat_input.ts";
import { Flags, UsageError } from "../shared/flags.ts";
import { givenText } from "../shared/given_text.ts";
import {
  BACKEND_FLAGS,
  EFFORTS,
  LENGTH_FLAGS,
  loadForOne,
  MAX_COUNT,
  MAX_TEMPERATURE,
  maxTokensOption,
  SPECULATION_FLAGS,
} from "../shared/model.ts";
import { dim, err, onInterrupt, out, ProgressLine } from "../shared/terminal.ts";

const DEFAULT_TEMPERATURE = 0.7;

const TEXT = "TEXT";

const HELP = `Chat with a model on the terminal, or answer one message in a pipe.

Usage: deno task chat [TEXT] [--file FILE] [options]

  TEXT             the first message; - is standard input
  --file FILE      a text in front of TEXT, in UTF-8; - is standard input. May be given several times
  --lines          standard input is a conversation: each line is a message
  --model FILE     the GGUF model (default: the one that comes with compy)
  --system TEXT    what the model is to be
  -n, --max-tokens N
                   most tokens of an answer (default: as far as --ctx goes)
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
  --arithmetic A   of the GPU's matrix products: f32 or f16 (default f32)
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
A terminal shows thinking and each answer's speed dimmed. Where input or output is not a terminal, one message is answered: what was
sent to standard input, then each --file, then TEXT, with empty lines between them. Standard output gets the answer alone.
Exit code: 0 done, 1 failed, or a message in a pipe was not answered, 2 wrong usage.

Examples:
  deno task chat
  deno task chat --model qwen3-4b-q4_0.gguf --system 'You answer in one sentence.'
  deno task chat 'Who are you?'
  git diff | deno task -q chat 'What could break here?' > review.txt
  printf 'Who are you?\\nWhat do you like?\\n' | deno task -q chat --lines
`;

/** `chat …` of the command line. Returns the exit code. */
export async function chatCommand(args: readonly string[]): Promise<number> {
  const values = [
    "file",
    "model",
    "system",
    ...LENGTH_FLAGS,
    "temperature",
    "seed",
    "effort",
    "think-tokens",
    "ctx",
    "threads",
    "isa",
  ];
  const flags = new Flags(args, {
    values: [...values, ...BACKEND_FLAGS, ...SPECULATION_FLAGS],
    repeated: ["file"],
    switches: ["lines"],
    text: TEXT,
  });
  if (flags.help) {
    out(HELP);
    return 0;
  }
  const typed = Deno.stdin.isTerminal();
  const talks = typed && Deno.stdout.isTerminal() && !flags.is("lines");
  const first = await firstMessage(flags, typed);
  const options = {
    system: flags.text("system"),
    maxTokens: maxTokensOption(flags),
    temperature: flags.number("temperature", 0, MAX_TEMPERATURE) ?? DEFAULT_TEMPERATURE,
    seed: flags.count("seed", 0, Number.MAX_SAFE_INTEGER),
    effort: flags.choice("effort", EFFORTS),
    thinkingBudget: flags.count("think-tokens", 0, MAX_COUNT),
    asides: Deno.stdout.isTerminal(),
  };
  await using model = await loadForOne(flags);
  const { id, contextLength } = model.info;
  if (talks) {
    out(dim(`${id}, ${contextLength} tokens of context. /help lists what else there is; Ctrl-D leaves.\n`));
  }
  const session = new ChatSession(model, options, new TerminalScreen(options.asides));
  if (talks) return await talk(session, first);
  const lines = new PipedLines(Deno.stdin.readable);
  const unlisten = onInterrupt(() => {
    session.leave();
    lines.close();
  });
  try {
    return await (first === undefined ? session.run(lines) : session.ask(first)) ? 0 : 1;
  } finally {
    unlisten();
  }
}

/** Returns the first message, given as TEXT, files or a pipe; undefined if each line of standard input is a message. */
async function firstMessage(flags: Flags, typed: boolean): Promise<string | undefined> {
  if (flags.is("lines")) {
    if (flags.word === undefined && !flags.has("file")) return undefined;
    throw new UsageError("--lines reads its messages from standard input: leave out TEXT and --file");
  }
  const first = await givenText(flags, flags.word);
  if (first !== undefined || typed) return first;
  throw new UsageError("There is no message: give TEXT or --file, or send one to standard input");
}

/** Ctrl-C ends the answer, and the program only where it waits for a message; SIGTERM ends both. */
async function talk(session: ChatSession, first: string | undefined): Promise<number> {
  const lines = new TerminalLines();
  const stop = () => session.interrupt();
  const leave = () => {
    session.leave();
    lines.close();
  };
  Deno.addSignalListener("SIGINT", stop);
  if (Deno.build.os !== "windows") Deno.addSignalListener("SIGTERM", leave);
  if (first !== undefined) await session.ask(first);
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
