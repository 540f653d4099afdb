import { GgufError, type GgufErrorCode } from "./errors.ts";

/** Random access to the bytes of a header. */
export interface ReadableBytes {
  /** Size of the whole file in bytes. */
  readonly size: number;
  /** Fills `into` from byte `offset` on. Returns the bytes read. */
  read(offset: number, into: Uint8Array<ArrayBuffer>): number;
}

/**
 * Limit for a header (everything before the tensor data): several times the largest published headers, about
 * 16 MB.
 */
export const MAX_HEADER_BYTES = 64 * 1024 * 1024;
/** Limit for a string value. The longest in published files are chat templates of about 20 KB. */
const MAX_STRING_BYTES = 16 * 1024 * 1024;
const WINDOW_BYTES = 1024 * 1024;
const BATCH_STRINGS = 4096;
const BATCH_BYTES = 64 * 1024;

/**
 * Reads little-endian fields in sequence through a window of 1 MiB. The window grows only for a longer value
 * with a validated length. Nothing is read or allocated before it is known to lie inside the file and the
 * limit.
 */
export class Cursor {
  /** File offset of the next byte to read. */
  position = 0;
  readonly #source: ReadableBytes;
  readonly #end: number;
  #window: Uint8Array<ArrayBuffer>;
  #view: DataView;
  #start = 0; // file offset of window[0]
  #filled = 0; // valid bytes in the window
  #lengthAt = 0; // window offset of the last length
  readonly #scratch = { bytes: new Uint8Array(BATCH_BYTES), units: new Uint32Array(BATCH_STRINGS) };
  readonly #decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

  constructor(source: ReadableBytes) {
    this.#source = source;
    this.#end = Math.min(source.size, MAX_HEADER_BYTES);
    this.#window = new Uint8Array(Math.min(this.#end, WINDOW_BYTES));
    this.#view = new DataView(this.#window.buffer);
  }

  /** Bytes from here to the end of the file or of the header limit. */
  get remaining(): number {
    return this.#end - this.position;
  }

  /** Names the limit for a header in a message: the end of the file or the maximum. */
  get endInWords(): string {
    return this.#end < this.#source.size
      ? `a header of at most ${MAX_HEADER_BYTES} bytes`
      : `what the file's ${this.#source.size} bytes hold (is it cut short?)`;
  }

  u8(field: string): number {
    return this.#window[this.#take(1, field)];
  }

  u32(field: string): number {
    return this.#view.getUint32(this.#take(4, field), true);
  }

  u64(field: string): bigint {
    return this.#view.getBigUint64(this.#take(8, field), true);
  }

  /**
   * Reads a 64-bit length or count as a number. Above 2^53 the number is rounded, but still exceeds every
   * limit it is compared with.
   */
  length(field: string): number {
    const at = this.#lengthAt = this.#take(8, field);
    return this.#view.getUint32(at, true) + this.#view.getUint32(at + 4, true) * 0x1_0000_0000;
  }

  /** The exact value of the last length, for error messages. Valid only until the next read. */
  get exactLength(): bigint {
    return this.#view.getBigUint64(this.#lengthAt, true);
  }

  /** Skips `count` bytes, at most 8, and returns a DataView and the bytes' offset in the view. */
  scalar(count: number, field: string): { view: DataView; at: number } {
    const at = this.#take(count, field);
    return { view: this.#view, at };
  }

  /** Returns a copy of the next `count` bytes. The caller must check `count` against `remaining`. */
  bytes(count: number, field: string): Uint8Array<ArrayBuffer> {
    if (count > this.remaining) this.#refuseEnd(count, field);
    const into = new Uint8Array(count);
    const buffered = Math.max(0, Math.min(count, this.#start + this.#filled - this.position));
    const at = this.position - this.#start;
    into.set(this.#window.subarray(at, at + buffered));
    if (buffered < count) {
      this.#read(this.position + buffered, into.subarray(buffered), count - buffered, field);
    }
    this.position += count;
    return into;
  }

  /** Returns a length-prefixed UTF-8 string of at most `maxBytes`. Throws GgufError(GGUF_STRING). */
  string(field: string, maxBytes: number = MAX_STRING_BYTES): string {
    const start = this.position;
    const length = this.length(field);
    if (length > this.remaining || length > maxBytes) {
      const most = length > maxBytes
        ? `${maxBytes} bytes`
        : `the ${this.remaining} bytes left: ${this.endInWords}`;
      const detail = `a length of ${this.exactLength} is more than ${most}`;
      throw new GgufError("GGUF_STRING", detail, { byte: start, field });
    }
    const at = this.#take(length, field);
    try {
      return this.#decoder.decode(this.#window.subarray(at, at + length));
    } catch {
      throw new GgufError("GGUF_STRING", "must be valid UTF-8", {
        byte: start + 8,
        field,
      });
    }
  }

  /**
   * Returns `count` strings, decoded in batches: one decoder call costs as much as a dozen short strings. The
   * caller must check `count`. Throws as `string` does.
   */
  strings(count: number, field: string): string[] {
    const texts: string[] = [];
    while (texts.length < count) {
      const start = this.position;
      const next = Math.min(count - texts.length, BATCH_STRINGS);
      if (this.#batch(texts, next, field)) continue;
      // The batch has a long string or invalid UTF-8. Read one by one, so that the error names the right
      // byte.
      this.position = start;
      for (let i = 0; i < next; i++) texts.push(this.string(field));
    }
    return texts;
  }

  /**
   * Appends up to `count` short strings to `texts`. Returns false and appends nothing where the first string
   * is long or not valid.
   */
  #batch(texts: string[], count: number, field: string): boolean {
    const { bytes, units } = this.#scratch;
    let strings = 0;
    let filled = 0;
    while (strings < count) {
      const length = this.length(field);
      if (length > bytes.length - filled || length > this.remaining) {
        this.position -= 8;
        break;
      }
      const from = this.#take(length, field);
      let width = 0; // UTF-16 units: two for each 4-byte character, else one
      for (let i = from; i < from + length; i++) {
        const byte = this.#window[i];
        bytes[filled++] = byte;
        if ((byte & 0xc0) !== 0x80) width += byte < 0xf0 ? 1 : 2;
      }
      // A string that begins inside a character could complete the previous string's last character.
      if (length > 0 && (this.#window[from] & 0xc0) === 0x80) return false;
      units[strings++] = width;
    }
    if (strings === 0) return false;
    let text;
    try {
      text = this.#decoder.decode(bytes.subarray(0, filled));
    } catch {
      return false;
    }
    for (let i = 0, begin = 0; i < strings; i++) {
      texts.push(text.slice(begin, begin + units[i]));
      begin += units[i];
    }
    return true;
  }

  /** Skips `count` bytes and returns their offset in the window. */
  #take(count: number, field: string): number {
    let at = this.position - this.#start;
    if (at + count > this.#filled) {
      if (count > this.remaining) this.#refuseEnd(count, field);
      this.#refill(count, field);
      at = 0;
    }
    this.position += count;
    return at;
  }

  /** Moves the window to `position` and fills it with at least `count` bytes. */
  #refill(count: number, field: string): void {
    const kept = this.#window.subarray(this.position - this.#start, this.#filled);
    const keptBytes = kept.length;
    if (count > this.#window.length) {
      const larger = new Uint8Array(count);
      larger.set(kept);
      this.#window = larger;
      this.#view = new DataView(larger.buffer);
    } else {
      this.#window.copyWithin(0, this.position - this.#start, this.#filled);
    }
    this.#start = this.position;
    const wanted = Math.min(this.#window.length, this.remaining) - keptBytes;
    const into = this.#window.subarray(keptBytes, keptBytes + wanted);
    this.#filled = keptBytes;
    this.#filled += this.#read(this.position + keptBytes, into, count - keptBytes, field);
  }

  /**
   * Reads all available bytes. Fewer than `atLeast` means that the file has shrunk since its size was read.
   */
  #read(offset: number, into: Uint8Array<ArrayBuffer>, atLeast: number, field: string): number {
    let done = 0;
    while (done < into.length) {
      const got = this.#source.read(offset + done, into.subarray(done));
      if (got === 0) break;
      done += got;
    }
    if (done < atLeast) {
      const end = offset + done;
      const detail = `the file ended at byte ${end}; it had ${this.#source.size} bytes when it was opened`;
      throw new GgufError("GGUF_TRUNCATED", detail, { byte: this.position, field });
    }
    return done;
  }

  #refuseEnd(count: number, field: string): never {
    const code: GgufErrorCode = this.#end < this.#source.size ? "GGUF_COUNT" : "GGUF_TRUNCATED";
    const detail = `${count} bytes are needed, but only ${this.remaining} are left: ${this.endInWords}`;
    throw new GgufError(code, detail, { byte: this.position, field });
  }
}
