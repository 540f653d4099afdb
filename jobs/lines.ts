import { Pause } from "./run/pause.ts";
import { readFully, type StorageFile } from "./journal/storage.ts";

/** A non-blank line of a JSONL file. */
export interface RawLine {
  /** Position of the line among the non-blank lines, from 0. */
  readonly index: number;
  /** Line number in the file, from 1, as an editor shows it. */
  readonly number: number;
  /** The line without its end, valid until the next line is requested; undefined if longer than `maxLineBytes`. */
  readonly bytes: Uint8Array | undefined;
  readonly length: number;
  /** Name of the line in messages; by default "Line NUMBER". */
  readonly place?: string;
  /** A fault that was found before parsing, for example in a table row. */
  readonly fault?: { readonly customId: string; readonly code: string; readonly message: string };
}

const CHUNK_BYTES = 64 * 1024;
const LF = 0x0a, CR = 0x0d, SPACE = 0x20, TAB = 0x09;

/**
 * Yields the lines of a JSONL file in constant memory: one chunk and one line. LF and CRLF end a line; the last line
 * needs no end. A leading byte order mark is dropped. Blank lines are skipped but count in `number`.
 */
export async function* readLines(file: StorageFile, maxLineBytes: number): AsyncGenerator<RawLine> {
  const chunk = new Uint8Array(CHUNK_BYTES);
  const rest = new LineRest(maxLineBytes);
  const pause = new Pause();
  let index = 0;
  let number = 1;
  let offset = 0;

  for (;;) {
    await pause.now();
    const count = await readFully(file, chunk, offset);
    if (count === 0) break;
    let start = offset === 0 && startsWithMark(chunk.subarray(0, count)) ? 3 : 0;
    offset += count;
    for (;;) {
      const end = chunk.subarray(0, count).indexOf(LF, start);
      if (end < 0) break;
      const line = rest.end(chunk.subarray(start, end));
      if (!isBlank(line)) yield { index: index++, number, bytes: line.bytes, length: line.length };
      number += 1;
      start = end + 1;
    }
    rest.add(chunk.subarray(start, count));
  }
  const line = rest.end(new Uint8Array(0));
  if (!isBlank(line)) yield { index: index++, number, bytes: line.bytes, length: line.length };
}

interface LineBytes {
  bytes: Uint8Array | undefined;
  length: number;
}

/** The start of a line that ends in a later chunk. Of a line that is too long, only the length is kept. */
class LineRest {
  private buffer = new Uint8Array(0);
  private length = 0;
  private lastByte = 0;

  /** Holds one byte more than the limit, because a carriage return at the end of a line does not count. */
  constructor(private readonly maxLineBytes: number) {}

  add(bytes: Uint8Array): void {
    const length = this.length + bytes.length;
    if (length <= this.maxLineBytes + 1) {
      if (length > this.buffer.length) {
        const grown = new Uint8Array(
          Math.min(this.maxLineBytes + 1, Math.max(length, 2 * this.buffer.length)),
        );
        grown.set(this.buffer.subarray(0, this.length));
        this.buffer = grown;
      }
      this.buffer.set(bytes, this.length);
    }
    this.length = length;
    this.lastByte = bytes.at(-1) ?? this.lastByte;
  }

  /** Returns the whole line, given its last bytes, and starts the next line. */
  end(last: Uint8Array): LineBytes {
    let bytes: Uint8Array | undefined = last;
    if (this.length > 0) {
      this.add(last);
      bytes = this.length <= this.maxLineBytes + 1 ? this.buffer.subarray(0, this.length) : undefined;
    } else {
      this.lastByte = last.at(-1) ?? 0;
    }
    const length = Math.max(this.length, last.length) - (this.lastByte === CR ? 1 : 0);
    this.length = 0;
    return { bytes: length <= this.maxLineBytes ? bytes?.subarray(0, length) : undefined, length };
  }
}

function startsWithMark(chunk: Uint8Array): boolean {
  return chunk[0] === 0xef && chunk[1] === 0xbb && chunk[2] === 0xbf;
}

function isBlank({ bytes }: LineBytes): boolean {
  if (bytes === undefined) return false;
  for (let i = 0; i < bytes.length; i++) {
    if (bytes[i] !== SPACE && bytes[i] !== TAB && bytes[i] !== CR) return false;
  }
  return true;
}
