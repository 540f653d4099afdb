import { CONVERSATION_HELP } from "./chat_commands.ts";
import { ChatSession, type Screen } from "./chat_session.ts";
import { WordWrap } from "./word_wrap.ts";
import { PipedLines, TerminalLines } from "./chat_input.ts";
import { escaped } from "../shared/escape.ts";
import { UsageError } from "../shared/flags.ts";
import { givenText } from "../shared/given_text.ts";
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
} from "../shared/engine_settings.ts";
import { CHAT_TEMPLATE } from "../shared/chat_template.ts";
import { loadForOne } from "../shared/model.ts";
import { type Given, readWords } from "../shared/read_settings.ts";
import { count, HELP_LINE, helpOf, onOff, text, texts } from "../shared/settings.ts";
import { err, onInterrupt, out, ProgressLine } from "../shared/terminal.ts";

const OPTIONS = {
  file: texts("FILE", {
    help: "a UTF-8 text that comes before TEXT; - is standard input; may be given several times",
  }),
  image: texts("FILE", {
    help:
      "a PNG, JPEG, WebP or GIF image for the first message, for a model with a vision tower; may be given several times",
  }),
  lines: onOff({ help: "standard input is a conversation: each line is a message" }),
  model: MODEL,
  system: text("TEXT", { help: "the system message: instructions for the whole conversation" }),
  maxTokens: count({
    short: "n",
    min: 0,
    max: MAX_COUNT,
    help: "maximum tokens of an answer (default: until the answer ends or --ctx is full)",
  }),
  ...SAMPLING_FLAGS,
  effort: EFFORT,
  thinkTokens: THINK_TOKENS,
  chatTemplate: CHAT_TEMPLATE,
  raw: RAW,
  ctx: CTX,
  isa: ISA,
  ...COMPUTE,
  ...DRAFTS,
  ...ADAPTERS,
  ...IMAGES,
};

const TEXT = "TEXT";

const HELP = `Chat with a model in the terminal, or answer one message in a pipe.

Usage: deno task chat [TEXT] [--file FILE] [options]

  TEXT               the first message; - is standard input
${helpOf(OPTIONS)}${HELP_LINE}
In the conversation (the arrow keys find earlier messages):
${CONVERSATION_HELP}
A terminal shows thinking and each answer's speed dimmed, and wraps lines at words except in code blocks. If input or output is not a terminal, chat answers one message:
what was sent to standard input, then each --file, then TEXT, with empty lines between them. Only the answer goes to standard
output.
Exit code: 0 done, 1 failed, or a message in a pipe was not answered, 2 wrong usage.

Examples:
  deno task chat
  deno task chat --model qwen3-4b-q4_0.gguf --system 'You answer in one sentence.'
  deno task chat 'Who are you?'
  deno task chat --model Qwen3-VL-2B-Instruct-Q8_0.gguf --image hen.png 'What is this?'
  git diff | deno task -q chat 'What could break here?' > review.txt
  printf 'Who are you?\\nWhat do you like?\\n' | deno task -q chat --lines
`;

/** Runs `chat …` of the command line. Returns the exit code. */
export async function chatCommand(args: readonly string[]): Promise<number> {
  const given = readWords(OPTIONS, args, HELP, { text: TEXT });
  if (given === undefined) return 0;
  const { values } = given;
  const typed = Deno.stdin.isTerminal();
  const talks = typed && Deno.stdout.isTerminal() && !values.lines;
  const first = await firstMessage(given, typed);
  const { system, maxTokens, effort, thinkTokens: thinkingBudget } = values;
  const asides = Deno.stdout.isTerminal();
  const options = { ...samplingOf(values), system, maxTokens, effort, thinkingBudget, asides };
  await using model = await loadForOne(values);
  const { id, contextLength } = model.info;
  if (talks) {
    out(`${escaped(id)}, ${contextLength} tokens of context. /help lists the commands; Ctrl-D leaves.\n`, {
      dimmed: true,
    });
  }
  const session = new ChatSession(model, options, new TerminalScreen(options.asides, values.raw));
  for (const file of values.image) await session.attach(file);
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
async function firstMessage(
  { word, values: { lines, file } }: Given<typeof OPTIONS>,
  typed: boolean,
): Promise<string | undefined> {
  if (lines) {
    if (word === undefined && file.length === 0) return undefined;
    throw new UsageError("--lines reads its messages from standard input: leave out TEXT and --file");
  }
  const first = await givenText(file, word);
  if (first !== undefined || typed) return first;
  throw new UsageError("The message is missing: give it as TEXT, with --file or on standard input");
}

/** Runs the conversation. Ctrl-C stops the current answer, and a second one leaves. SIGTERM does both at once. */
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

/** Screen of a terminal or pipe: answers go to standard output, problems and progress to standard error. */
class TerminalScreen implements Screen {
  #reading: ProgressLine | undefined;
  #wrap = new WordWrap(columns);
  #isAside = false;

  /** On a pipe, the screen writes only the answers, without changes. */
  constructor(private readonly isTerminal: boolean, private readonly raw: boolean) {}

  text(text: string): void {
    this.#show(text, false);
  }

  aside(text: string): void {
    if (this.isTerminal) this.#show(text, true);
  }

  problem(text: string): void {
    this.#shown();
    this.#flush();
    this.#wrap = new WordWrap(columns);
    err(text);
  }

  #show(text: string, isAside: boolean): void {
    this.#shown();
    if (isAside !== this.#isAside) this.#flush();
    this.#isAside = isAside;
    const shown = this.isTerminal && !this.raw ? this.#wrap.add(text) : text;
    out(shown, { dimmed: isAside, raw: this.raw });
  }

  /** Shows the last word of the answer, which was held back until it was complete. */
  #flush(): void {
    out(this.#wrap.end(), { dimmed: this.#isAside, raw: this.raw });
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

/** Returns the width of standard output's terminal; Infinity if it is unknown. */
function columns(): number {
  return Deno.consoleSize().columns || Infinity;
}
