import { diskStorage, readLines } from "../../lib/batch/jobs.ts";
import { show } from "../../lib/serving.ts";

/** Maximum bytes of a line; longer lines are refused. */
const MAX_LINE_BYTES = 64 * 2 ** 20;

/** One text of the file. */
export interface TextLine {
  /** Line number in the file, from 1. */
  readonly number: number;
  readonly text: string;
  /** The id that the line gives the text, if any. */
  readonly id?: string | number;
}

/** A line that is not a text, and the reason. */
export interface BadLine {
  readonly number: number;
  readonly reason: string;
}

/**
 * Yields the texts of a JSONL file in order, in constant memory. A line is `"text"`, `{"text": …}` or
 * `{"input": …}`, with an optional `id`.
 */
export async function* readTexts(path: string): AsyncGenerator<TextLine | BadLine> {
  const file = await diskStorage.open(path, "read");
  const decoder = new TextDecoder("utf-8", { fatal: true });
  try {
    for await (const { number, bytes, length } of readLines(file, MAX_LINE_BYTES)) {
      if (bytes === undefined) {
        yield { number, reason: `it has ${length} bytes; at most ${MAX_LINE_BYTES} are allowed` };
      } else yield { number, ...textOf(bytes, decoder) };
    }
  } finally {
    file.close();
  }
}

function textOf(bytes: Uint8Array, decoder: TextDecoder): Omit<TextLine, "number"> | { reason: string } {
  let value: unknown;
  try {
    value = JSON.parse(decoder.decode(bytes));
  } catch (error) {
    return { reason: error instanceof SyntaxError ? "it is not valid JSON" : "it is not valid UTF-8" };
  }
  if (typeof value === "string") return { text: value };
  const { text, input, id } = Object(value) as Record<string, unknown>;
  const given = text ?? input;
  if (typeof given !== "string") {
    return {
      reason: `it must be a text, or an object with a text as "text" or "input" (got ${show(value)})`,
    };
  }
  if (id === undefined || id === null) return { text: given };
  if (typeof id === "string" || typeof id === "number") return { text: given, id };
  return { reason: `"id" must be a text or a number (got ${show(id)})` };
}
