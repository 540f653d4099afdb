import { createHash } from "node:crypto";
import { crc32 } from "node:zlib";
import { CustomIds } from "./journal/custom_ids.ts";
import { BatchError, ioError } from "./errors.ts";
import { GrowingTable } from "./journal/growing_table.ts";
import type { JobInput } from "./input.ts";
import type { RawLine } from "./lines.ts";
import {
  type BatchRequest,
  duplicateRefusal,
  type LineRefusal,
  type LineRules,
  type ParsedLine,
  parseInSlices,
  placeOf,
} from "./request.ts";

export interface InputLimits extends LineRules {
  readonly maxLines: number;
}

/** Returns the default limits for a file whose lines may name these endpoints. */
export function inputLimits(endpoints: readonly string[]): InputLimits {
  return { maxLines: 10_000_000, maxLineBytes: 16 * 1024 * 1024, endpoints };
}

/** Result of one pass over the whole input. It occupies 12 bytes of memory per line. */
export interface InputCheck {
  /** File size in bytes. */
  readonly size: number;
  /** Number of lines that are not blank. */
  readonly lineCount: number;
  readonly refusedCount: number;
  /**
   * Hex SHA-256 over the file size, all line checksums and, if the input has one, its digest. Equal identities mean
   * equal inputs.
   */
  readonly identity: string;
  /** Bytes of all lines, without line ends. */
  readonly totalBytes: number;
  /** Bytes of each line. */
  readonly lengths: Uint32Array; // [lineCount]
  /** CRC-32 of each line. */
  readonly checksums: Uint32Array; // [lineCount]
  /** For each line, the number of the first line with the same custom_id; 0 if this line is the first. */
  readonly firstLines: Uint32Array; // [lineCount]
}

/** Returns the fault that the endpoint's rules find in a line's body; undefined for a valid body. */
export type Examine = (
  request: BatchRequest,
) => Promise<Pick<LineRefusal, "code" | "message" | "param"> | undefined>;

/** Reads and checks every line, and calls `onRefusal` for each bad one, in order. Throws BatchError. */
export async function checkInput(
  input: JobInput,
  name: string,
  limits: InputLimits,
  onRefusal: (refusal: LineRefusal) => void,
  { signal, examine }: { signal?: AbortSignal; examine?: Examine } = {},
): Promise<InputCheck> {
  const lengths = new GrowingTable(limits.maxLines);
  const checksums = new GrowingTable(limits.maxLines);
  const firstLines = new GrowingTable(limits.maxLines);
  const customIds = new CustomIds(limits.maxLines);
  let totalBytes = 0;
  let refusedCount = 0;
  let digest: string | undefined;
  try {
    for await (const line of input.lines(limits.maxLineBytes)) {
      signal?.throwIfAborted();
      if (line.index === limits.maxLines) throw tooManyLines(name, limits.maxLines);
      const parsed = await parseInSlices(line, limits);
      const customId = parsed.request?.customId ?? parsed.refusal?.customId ?? null;
      const firstLine = customId === null ? 0 : customIds.add(customId, line.number);
      lengths.push(line.length);
      checksums.push(lineChecksum(line));
      firstLines.push(firstLine);
      totalBytes += line.length;
      const { request, refusal: own } = withoutDuplicate(parsed, line.number, firstLine);
      const refusal = own ?? await examined(request!, line, examine);
      if (refusal !== undefined) {
        refusedCount += 1;
        onRefusal(refusal);
      }
    }
    digest = await input.digest?.();
  } catch (error) {
    if (signal?.aborted) throw error;
    throw ioError(`read "${name}"`, error);
  } finally {
    customIds.free();
  }
  if (lengths.length === 0) {
    throw new BatchError(
      "input_unreadable",
      `"${name}" must have at least one line`,
      false,
    );
  }
  const sums = checksums.view();
  const hash = createHash("sha256").update(`${input.size}\n`)
    .update(new Uint8Array(sums.buffer, 0, sums.byteLength));
  if (digest !== undefined) hash.update(digest);
  const identity = hash.digest("hex");
  return {
    size: input.size,
    lineCount: sums.length,
    refusedCount,
    identity,
    totalBytes,
    lengths: lengths.view(),
    checksums: sums,
    firstLines: firstLines.view(),
  };
}

async function examined(
  request: BatchRequest,
  line: RawLine,
  examine: Examine | undefined,
): Promise<LineRefusal | undefined> {
  const wrong = await examine?.(request);
  if (wrong === undefined) return undefined;
  const { customId } = request;
  return { line: line.number, customId, ...wrong, message: `${placeOf(line)}: ${wrong.message}` };
}

/**
 * Parses a line again in a later pass, when all duplicates are known. Throws BatchError when the line differs from the
 * checked one: a file that changes during the job has no correct answer.
 */
export async function parseChecked(
  line: RawLine,
  check: InputCheck,
  name: string,
  limits: InputLimits,
): Promise<ParsedLine> {
  if (line.index >= check.lineCount || lineChecksum(line) !== check.checksums[line.index]) {
    throw inputChanged(name, line.number);
  }
  return withoutDuplicate(await parseInSlices(line, limits), line.number, check.firstLines[line.index]);
}

export function inputChanged(name: string, line?: number): BatchError {
  const where = line === undefined ? "" : ` (seen at line ${line})`;
  return new BatchError(
    "input_changed",
    `"${name}" was changed while the job ran${where}; put the old content back to resume the job`,
    true,
  );
}

function withoutDuplicate(parsed: ParsedLine, line: number, firstLine: number): ParsedLine {
  if (parsed.request === undefined || firstLine === 0) return parsed;
  const { customId, url } = parsed.request;
  return { refusal: duplicateRefusal(line, customId, firstLine), url };
}

/** Returns the checksum of a line. A line that is too long to keep is compared only by its length. */
function lineChecksum(line: RawLine): number {
  return line.bytes === undefined ? line.length >>> 0 : crc32(line.bytes);
}

function tooManyLines(name: string, maxLines: number): BatchError {
  return new BatchError(
    "input_too_large",
    `"${name}" must have at most ${maxLines} lines (got more); split it`,
    false,
  );
}
