import process from "node:process";
import { createInterface } from "node:readline";
import { out } from "../shared/terminal.ts";

/** What a user gave: lines that belong together, Ctrl-C, or the end (Ctrl-D, or that of a pipe). */
export type Input = { readonly type: "text"; readonly text: string } | { readonly type: "interrupt" | "end" };

/** Where a user's lines come from. */
export interface InputLines {
  read(prompt: string): Promise<Input>;
}

/** Lines that were pasted come in one piece; who types is slower. */
const PASTE_MS = 20;

/** A terminal: lines are edited, the arrow keys find earlier ones. Outside of read() Ctrl-C is a signal, as in any program. */
export class TerminalLines implements InputLines {
  /** The last lines, newest first. */
  #history: string[] = [];
  #close = () => {};

  read(prompt: string): Promise<Input> {
    const { promise, resolve } = Promise.withResolvers<Input>();
    const lines: string[] = [];
    let input: Input = { type: "end" };
    let timer: ReturnType<typeof setTimeout> | undefined;
    // An interface for each message: while an answer comes, the terminal is as it was.
    const reader = createInterface({
      input: process.stdin,
      output: process.stdout,
      terminal: true,
      history: this.#history,
      prompt,
    });
    reader.on("history", (history: string[]) => this.#history = history);
    reader.on("line", (line: string) => {
      lines.push(line);
      clearTimeout(timer);
      timer = setTimeout(() => {
        if (reader.line !== "") return; // the last of the pasted lines waits for Enter
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

  /** Who reads now is told that it is the end. */
  close(): void {
    this.#close();
  }
}

/** A pipe or a file: a line a message, without prompts. */
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

  /** Who reads is told that it is the end, though whoever writes there has not ended. */
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
