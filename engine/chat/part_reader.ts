import type { Answer } from "./answer.ts";
import { Input, type Reading } from "./input.ts";
import type { Marks } from "./marks.ts";
import type { ChatPart, ChatReader } from "./types.ts";

/** Advances a reader as far as the input allows. */
export class PartReader implements ChatReader {
  readonly #input: Input;
  readonly #reading: Reading;

  constructor(
    private readonly marks: Marks,
    private readonly answer: Answer,
    read: (input: Input, answer: Answer) => Reading,
  ) {
    this.#input = new Input(marks);
    this.#reading = read(this.#input, answer);
    this.#reading.next(); // runs the reader until it needs the first input
  }

  get thinking(): boolean {
    return this.answer.thinking;
  }

  text(text: string): ChatPart[] {
    return text === "" ? [] : this.#add(text);
  }

  marker(token: number): ChatPart[] {
    return this.#add(this.marks.sign(token) ?? "");
  }

  end(): ChatPart[] {
    this.#input.end();
    while (!this.#reading.next().done);
    this.answer.end();
    return this.answer.take();
  }

  #add(text: string): ChatPart[] {
    this.#input.add(text);
    this.#reading.next();
    return this.answer.take();
  }
}
