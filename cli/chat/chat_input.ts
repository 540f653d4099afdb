import process from "node:process";
import { createInterface } from "node:readline";
import { out } from "../shared/terminal.ts";
import { completions } from "./chat_commands.ts";

/** A user's input: lines that belong together, Ctrl-C, or the end (Ctrl-D, or the end of a pipe). */
export type Input = { readonly type: "text"; readonly text: string } | { readonly type: "interrupt" | "end" };

/** The source of a user's lines. */
export interface InputLines {
  read(prompt: string): Promise<Input>;
}

/** Maximum milliseconds between pasted lines; a typist is slower. */
const PASTE_MS = 20;

/**
 * Reads lines from a terminal, with line editing and a history on the arrow keys. Outside read(), Ctrl-C is an ordinary
 * signal.
 */
export class TerminalLines implements InputLines {
  /** Earlier lines of the user, newest first. */
  #history: string[] = [];
  #close = () => {};

  read(prompt: string): Promise<Input> {
    const { promise, resolve } = Promise.withResolvers<Input>();
    const lines: string[] = [];
    let input: Input = { type: "end" };
    let timer: ReturnType<typeof setTimeout> | undefined;
    // Each message gets a new readline interface, so that the terminal is in its normal mode while an answer is
    // printed.
    const reader = createInterface({
      input: process.stdin,
      output: process.stdout,
      terminal: true,
      history: this.#history,
      completer: completions,
      prompt,
    });
    reader.on("history", (history: string[]) => this.#history = history);
    reader.on("line", (line: string) => {
      lines.push(line);
      clearTimeout(timer);
      timer = setTimeout(() => {
        if (reader.line !== "") return; // the last pasted line waits for Enter
        input = { type: "text", text: lines.join("\n") };
        reader.close();
      }, PASTE_MS);
    });
    reader.on("SIGINT", () => {
      input = { type: "interrupt" };
      reader.close();
    });
    reader.on("close", () => {
      clearTimeout(timer);
      if (input.type !== "text") out("\n");
      resolve(input);
    });
    this.#close = () => reader.close();
    reader.prompt();
    return promise;
  }

  /** Ends a running read(), which then returns the end of the input. */
  close(): void {
    this.#close();
  }
}

/** Reads lines from a pipe or a file, without prompts. Each line is a message. */
export class PipedLines implements InputLines {
  readonly #lines: AsyncIterator<string>;
  readonly #closed: PromiseWithResolvers<IteratorReturnResult<void>> = Promise.withResolvers();

  constructor(bytes: ReadableStream<Uint8Array<ArrayBuffer>>) {
    this.#lines = linesOf(bytes);
  }

  async read(): Promise<Input> {
    const { done, value } = await Promise.race([this.#closed.promise, this.#lines.next()]);
    return done ? { type: "end" } : { type: "text", text: value };
  }

  /** Ends a running read(), even if the writer has not closed the pipe. */
  close(): void {
    this.#closed.resolve({ done: true, value: undefined });
  }
}

async function* linesOf(bytes: ReadableStream<Uint8Array<ArrayBuffer>>): AsyncGenerator<string, void> {
  let rest = "";
  for await (const text of bytes.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + text).split("\n");
    rest = lines.pop()!;
    for (const line of lines) yield line.replace(/\r$/, "");
  }
  if (rest !== "") yield rest;
}
