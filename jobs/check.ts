import { createHash, hash } from "node:crypto";
import { crc32 } from "node:zlib";
import { BatchError, ioError } from "./errors.ts";
import { type RawLine, readLines } from "./lines.ts";
import { duplicateRefusal, type LineRefusal, type LineRules, type ParsedLine, parseLine } from "./request.ts";
import type { StorageFile } from "./storage.ts";

export interface InputLimits extends LineRules {
  readonly maxLines: number;
}

export const DEFAULT_LIMITS: InputLimits = { maxLines: 10_000_000, maxLineBytes: 16 * 1024 * 1024 };

/** What a pass over the whole input has found; 12 bytes a line. */
export interface InputCheck {
  /** Bytes of the file. */
  readonly size: number;
  /** Lines that are not blank. */
  readonly lineCount: number;
  readonly refusedCount: number;
  /** SHA-256 over the size and every line's checksum, hex: two inputs of equal identity are the same input. */
  readonly identity: string;
  /** Bytes of each line. */
  readonly lengths: Uint32Array; // [lineCount]
  /** CRC-32 of each line. */
  readonly checksums: Uint32Array; // [lineCount]
  /** Number of the line that has the same custom_id, 0 when the line is the first with it. */
  readonly firstLines: Uint32Array; // [lineCount]
}

/** Reads and checks every line. `onRefusal` hears of each bad one, in order. */
export async function checkInput(
  file: StorageFile,
  name: string,
  limits: InputLimits,
  onRefusal: (refusal: LineRefusal) => void,
  signal?: AbortSignal,
): Promise<InputCheck> {
  const lengths = new GrowingUint32();
  const checksums = new GrowingUint32();
  const firstLines = new GrowingUint32();
  const customIds = new CustomIds();
  let refusedCount = 0;
  let size: number;
  try {
    size = await file.size();
    for await (const line of readLines(file, limits.maxLineBytes)) {
      signal?.throwIfAborted();
      if (line.index === limits.maxLines) throw tooManyLines(name, limits.maxLines);
      const parsed = parseLine(line, limits);
      const customId = parsed.request?.customId ?? parsed.refusal?.customId ?? null;
      const firstLine = customId === null ? 0 : customIds.add(customId, line.number);
      lengths.push(line.length);
      checksums.push(lineChecksum(line));
      firstLines.push(firstLine);
      const { refusal } = withoutDuplicate(parsed, line.number, firstLine);
      if (refusal !== undefined) {
        refusedCount += 1;
        onRefusal(refusal);
      }
    }
  } catch (error) {
    if (signal?.aborted) throw error;
    throw ioError(`read "${name}"`, error);
  }
  if (lengths.length === 0) {
    throw new BatchError(
      "input_unreadable",
      `"${name}" has no lines; a batch line is a JSON object on one line`,
      false,
    );
  }
  const sums = checksums.finish();
  const identity = createHash("sha256").update(`${size}\n`).update(
    new Uint8Array(sums.buffer, 0, sums.byteLength),
  ).digest("hex");
  return {
    size,
    lineCount: sums.length,
    refusedCount,
    identity,
    lengths: lengths.finish(),
    checksums: sums,
    firstLines: firstLines.finish(),
  };
}

/**
 * Parses a line again in a later pass, when all is known about duplicates. Throws when it is not the line that was
 * checked: a file that changes under a running job has no right answer.
 */
export function parseChecked(
  line: RawLine,
  check: InputCheck,
  name: string,
  limits: InputLimits,
): ParsedLine {
  if (line.index >= check.lineCount || lineChecksum(line) !== check.checksums[line.index]) {
    throw inputChanged(name, line.number);
  }
  return withoutDuplicate(parseLine(line, limits), line.number, check.firstLines[line.index]);
}

export function inputChanged(name: string, line: number): BatchError {
  return new BatchError(
    "input_changed",
    `"${name}" was changed while the job ran (seen at line ${line}); put the old content back to go on with the job`,
    true,
  );
}

function withoutDuplicate(parsed: ParsedLine, line: number, firstLine: number): ParsedLine {
  if (parsed.request === undefined || firstLine === 0) return parsed;
  return { refusal: duplicateRefusal(line, parsed.request.customId, firstLine) };
}

/** Lines that are too long to be kept are told apart by their length alone. */
function lineChecksum(line: RawLine): number {
  return line.bytes === undefined ? line.length >>> 0 : crc32(line.bytes);
}

function tooManyLines(name: string, maxLines: number): BatchError {
  return new BatchError("input_too_large", `"${name}" has more than ${maxLines} lines; split it`, false);
}

class GrowingUint32 {
  length = 0;
  private values = new Uint32Array(1024);

  push(value: number): void {
    if (this.length === this.values.length) {
      const grown = new Uint32Array(2 * this.length);
      grown.set(this.values);
      this.values = grown;
    }
    this.values[this.length++] = value;
  }

  finish(): Uint32Array<ArrayBuffer> {
    return this.values.subarray(0, this.length);
  }
}

const KEY_WORDS = 3;

/**
 * Which line had a custom_id first: an open-addressed table of 96 bits of each id's SHA-256 and the line number, 16
 * bytes a slot, because a million texts in a Set are hundreds of megabytes.
 */
class CustomIds {
  private count = 0;
  private readonly key = new Uint32Array(KEY_WORDS);
  private keys = new Uint32Array(1024 * KEY_WORDS); // [slots, 3]
  private lines = new Uint32Array(1024); // [slots], 0 is a free slot

  /** 0 when the id is new, else the line that has it already. */
  add(customId: string, line: number): number {
    if (this.count * 4 >= this.lines.length * 3) this.grow();
    const digest = hash("sha256", customId);
    for (let i = 0; i < KEY_WORDS; i++) this.key[i] = parseInt(digest.slice(8 * i, 8 * i + 8), 16);
    return this.insert(this.key, line);
  }

  private insert(key: Uint32Array, line: number): number {
    const mask = this.lines.length - 1;
    for (let slot = key[0] & mask;; slot = (slot + 1) & mask) {
      if (this.lines[slot] === 0) {
        this.keys.set(key, slot * KEY_WORDS);
        this.lines[slot] = line;
        this.count += 1;
        return 0;
      }
      if (this.isAt(slot, key)) return this.lines[slot];
    }
  }

  private isAt(slot: number, key: Uint32Array): boolean {
    for (let i = 0; i < KEY_WORDS; i++) {
      if (this.keys[slot * KEY_WORDS + i] !== key[i]) return false;
    }
    return true;
  }

  private grow(): void {
    const old = { keys: this.keys, lines: this.lines };
    this.keys = new Uint32Array(2 * old.keys.length);
    this.lines = new Uint32Array(2 * old.lines.length);
    this.count = 0;
    for (let slot = 0; slot < old.lines.length; slot++) {
      if (old.lines[slot] === 0) continue;
      this.insert(old.keys.subarray(slot * KEY_WORDS, (slot + 1) * KEY_WORDS), old.lines[slot]);
    }
  }
}
