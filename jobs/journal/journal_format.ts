import { crc32 } from "node:zlib";
import type { Asked } from "../asked.ts";
import { BatchError } from "../errors.ts";
import type { ModelIdentity } from "../model_identity.ts";

/*
 * The journal is the record of a job: every answer, in the order of completion.
 *
 *   block 0, 4096 bytes   magic, then a frame with the header (JSON): the input and settings of the job
 *   block 1, 4096 bytes   two slots of 2048 bytes: zeros while the job can resume, then frames (JSON) that say how
 *                         it ended; the frame with the higher sequence number is valid
 *   block 2, 4096 bytes   a copy of block 0, since format 2
 *   from 12288 on         one frame per answer; in format 1 from 8192 on
 *
 * A frame is: payload length u32, CRC-32 u32, payload; all little-endian. The CRC covers the frame's offset, the length
 * and the payload, so it detects zeros, frames copied from another offset, and half-written frames. The payload of an
 * answer is: kind u8, line index u32, prompt tokens u32, output tokens u32, then the line of the output file.
 *
 * The header and the two slots are separate, so a torn write of one slot damages neither the header nor the other slot.
 * If one block is damaged, nothing is lost: the header has a copy, and the end of a job is recorded in both slots.
 */
const MAGIC = new TextEncoder().encode("compyjob");
const FORMAT_VERSION = 2;
/** Version of the format without a copy of the header. */
const SINGLE_HEADER = 1;
const BLOCK = 4096;
const SLOT = BLOCK / 2;
const COPY_OFFSET = 2 * BLOCK;
/** Bytes before the answers of a new journal. */
export const HEAD_BYTES = 3 * BLOCK;
export const FRAME_BYTES = 8;
const RECORD_BYTES = 13;
/** Maximum bytes of a payload, larger than any answer. It bounds the memory that a damaged length field can request. */
export const MAX_PAYLOAD = 256 * 1024 * 1024;
export const MAX_RECORD_LINE = MAX_PAYLOAD - RECORD_BYTES;

/** Identifies the job that a journal's answers belong to. */
export interface JobIdentity {
  /** Identity of the input, from checkInput. */
  readonly input: string;
  readonly inputSize: number;
  readonly lineCount: number;
  /** Options added to each row of a table; undefined for other jobs and in journals of earlier versions. */
  readonly asked?: Asked;
  /** Everything besides the input that the answers depend on. */
  readonly settings: ModelIdentity;
  /**
   * The processor that computed the first answers. Another processor may resume the job, although it rounds
   * differently.
   */
  readonly processor?: string;
}

export interface Counts {
  completed: number;
  failed: number;
  promptTokens: number;
  outputTokens: number;
}

/** Order of the lines in the output and error files: as in the input, or in order of completion. */
export type AnswerOrder = "input" | "completed";

/** Counts and file sizes of a job that is done. */
export interface Outputs {
  readonly counts: Counts;
  readonly outputBytes: number;
  /** Bytes of the error file; 0 if there is none. */
  readonly errorBytes: number;
}

export interface DoneJob extends Outputs {
  readonly state: "done";
  /** Order of the lines; undefined in journals of earlier versions. */
  readonly order?: AnswerOrder;
  /**
   * State of a retry of failed lines. "running": the retry's input is complete; `revised` holds the options that differ
   * from the job's. "merging": the new outputs are complete under their partial names; it lasts until both have
   * replaced the old outputs.
   */
  readonly retry?:
    | { readonly state: "running"; readonly revised?: Asked }
    | { readonly state: "merging"; readonly to: Outputs };
}

export type JobEnd = DoneJob | { readonly state: "failed"; readonly reason: string };

/** How a job ended, as stored in one of the two slots. */
export interface StoredEnd {
  readonly end: JobEnd;
  readonly sequence: number;
  readonly slot: 0 | 1;
  /** Whether the other slot has the same content, durable before this slot was written. */
  readonly isCopy?: boolean;
}

export interface JournalRecord {
  /** Index of the input line. */
  readonly index: number;
  /** Whether the line goes to the output file instead of the error file. */
  readonly completed: boolean;
  readonly promptTokens: number;
  readonly outputTokens: number;
  /** The line of the output or error file, without a line end. */
  readonly line: Uint8Array;
}

/** The header of a journal. */
export interface StoredHeader extends JobIdentity {
  readonly version: number;
}

/** Returns the file offset of the journal's first answer. */
export function recordsOffset({ version }: StoredHeader): number {
  return version === SINGLE_HEADER ? COPY_OFFSET : HEAD_BYTES;
}

/** Returns the blocks before the answers of a new job. Throws RangeError if the header is too large. */
export function encodeHead(identity: JobIdentity): Uint8Array {
  const blocks = new Uint8Array(HEAD_BYTES);
  const header = { version: FORMAT_VERSION, ...identity };
  for (const offset of [0, COPY_OFFSET]) blocks.set(encodeHeader(header, offset), offset);
  return blocks;
}

/** Returns the block with the header, or with its copy, for the file offset `offset`. */
export function encodeHeader(header: StoredHeader, offset: number): Uint8Array {
  const frame = encodeFrame(offset + MAGIC.length, encodeJson(header));
  if (MAGIC.length + frame.length > BLOCK) {
    throw new RangeError("The settings of a job do not fit its journal");
  }
  const block = new Uint8Array(BLOCK);
  block.set(MAGIC);
  block.set(frame, MAGIC.length);
  return block;
}

/**
 * Reads the header, or its copy, from the first HEAD_BYTES of a file of `size` bytes. `damaged` is the file offset of
 * the block that cannot be read. Returns undefined if the file is new, or if its writing stopped before the header
 * was complete; the file then has no answers. Throws BatchError if the file is not a journal, or if both header and
 * copy are lost.
 */
export function decodeHeader(
  path: string,
  blocks: Uint8Array,
  size: number,
): { header: StoredHeader; damaged?: number } | undefined {
  const [first, copy] = [0, COPY_OFFSET].map((offset) => headerAt(blocks, offset));
  const header = first ?? copy;
  if (header === undefined) {
    const [atFirst, atCopy] = [0, COPY_OFFSET].map((offset) =>
      hasMagic(blocks.subarray(offset, offset + BLOCK))
    );
    if (atFirst && atCopy && size <= HEAD_BYTES) return undefined;
    if (!atFirst && !(atCopy && size > HEAD_BYTES)) {
      throw foreign(`"${path}" is not a batch journal and is left alone; move it away or`);
    }
    throw new BatchError(
      "journal_damaged",
      `"${path}" is damaged in its first ${HEAD_BYTES} bytes, so that its answers cannot be matched to a job; remove it ` +
        "to start over",
      false,
    );
  }
  if (header.version !== FORMAT_VERSION && header.version !== SINGLE_HEADER) {
    throw foreign(
      `"${path}" must have journal format ${FORMAT_VERSION} (got ${header.version}); finish the job with the version of ` +
        "compy that began it, or",
    );
  }
  if (header.version === SINGLE_HEADER || (first !== undefined && copy !== undefined)) return { header };
  return { header, damaged: first === undefined ? 0 : COPY_OFFSET };
}

/** Returns the header in the block at `offset`; undefined if it is damaged. */
function headerAt(blocks: Uint8Array, offset: number): StoredHeader | undefined {
  const block = blocks.subarray(offset, offset + BLOCK);
  if (!MAGIC.every((byte, i) => byte === block[i])) return undefined;
  const payload = decodeFrame(offset + MAGIC.length, block.subarray(MAGIC.length));
  return payload && decodeJson(payload) as StoredHeader;
}

function foreign(problem: string): BatchError {
  return new BatchError("journal_foreign", [`${problem} give another `, { output: undefined }], false);
}

/**
 * Returns whether a block may be a torn or lost write of a header: part of the magic followed by zeros, or only zeros.
 * The slots may still be intact and record a failed sync.
 */
function hasMagic(block: Uint8Array): boolean {
  const differs = MAGIC.findIndex((byte, i) => byte !== block[i]);
  return differs < 0 || block.subarray(differs).every((byte) => byte === 0);
}

/** Returns the file offset of the slot that stores how a job ended. */
export function slotOffset(slot: 0 | 1): number {
  return BLOCK + slot * SLOT;
}

/** Maximum characters of a failure reason; with JSON escapes, the reason must fit into its slot. */
const MAX_REASON = 300;

/** Returns the bytes of a slot that stores how a job ended. */
export function encodeEnd({ end, sequence, slot, isCopy }: StoredEnd): Uint8Array {
  const kept = end.state === "failed" ? { ...end, reason: end.reason.slice(0, MAX_REASON) } : end;
  const bytes = new Uint8Array(SLOT);
  bytes.set(encodeFrame(slotOffset(slot), encodeJson({ sequence, isCopy, ...kept })));
  return bytes;
}

/** Returns how the job ended; undefined while it can resume. */
export function decodeEnd(blocks: Uint8Array): StoredEnd | undefined {
  const found: StoredEnd[] = [];
  for (const slot of [0, 1] as const) {
    const offset = slotOffset(slot);
    const payload = decodeFrame(offset, blocks.subarray(offset, COPY_OFFSET));
    if (payload === undefined) continue;
    // Earlier versions wrote the end only once, without a sequence number.
    const { sequence = 0, isCopy = false, ...end } = decodeJson(payload) as
      & JobEnd
      & Partial<Pick<StoredEnd, "sequence" | "isCopy">>;
    found.push({ end, sequence, slot, isCopy });
  }
  return found.sort((a, b) => b.sequence - a.sequence || Number(a.isCopy) - Number(b.isCopy))[0];
}

function encodeFrame(offset: number, payload: Uint8Array): Uint8Array {
  const frame = new Uint8Array(FRAME_BYTES + payload.length);
  frame.set(payload, FRAME_BYTES);
  sealFrame(offset, frame);
  return frame;
}

/** Writes the length and checksum before the payload that `frame` already contains. */
function sealFrame(offset: number, frame: Uint8Array): void {
  const view = new DataView(frame.buffer, frame.byteOffset, frame.byteLength);
  view.setUint32(0, frame.length - FRAME_BYTES, true);
  view.setUint32(4, frameChecksum(offset, frame.subarray(FRAME_BYTES)), true);
}

/**
 * Returns the payload length of the frame at the start of `bytes` (at least FRAME_BYTES). The length is not verified
 * yet.
 */
export function frameLength(bytes: Uint8Array): number {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength).getUint32(0, true);
}

/** Returns the payload of the frame at the start of `bytes`; undefined if it is incomplete or damaged. */
export function decodeFrame(offset: number, bytes: Uint8Array): Uint8Array | undefined {
  if (bytes.length < FRAME_BYTES) return undefined;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const length = view.getUint32(0, true);
  if (FRAME_BYTES + length > bytes.length) return undefined;
  const payload = bytes.subarray(FRAME_BYTES, FRAME_BYTES + length);
  return frameChecksum(offset, payload) === view.getUint32(4, true) ? payload : undefined;
}

const place = new Uint8Array(12);
const placeView = new DataView(place.buffer);

function frameChecksum(offset: number, payload: Uint8Array): number {
  placeView.setFloat64(0, offset, true);
  placeView.setUint32(8, payload.length, true);
  return crc32(payload, crc32(place));
}

/** Returns the frames of `records`, to be written at file offset `offset`, and the end of each frame in `bytes`. */
export function encodeRecords(
  offset: number,
  records: readonly JournalRecord[],
): { bytes: Uint8Array; ends: number[] } {
  const ends: number[] = [];
  let size = 0;
  for (const { line } of records) ends.push(size += FRAME_BYTES + RECORD_BYTES + line.length);
  const bytes = new Uint8Array(size);
  const view = new DataView(bytes.buffer);
  let start = 0;
  for (const [i, record] of records.entries()) {
    const payload = start + FRAME_BYTES;
    view.setUint8(payload, record.completed ? 1 : 0);
    view.setUint32(payload + 1, record.index, true);
    view.setUint32(payload + 5, record.promptTokens, true);
    view.setUint32(payload + 9, record.outputTokens, true);
    bytes.set(record.line, payload + RECORD_BYTES);
    sealFrame(offset + start, bytes.subarray(start, ends[i]));
    start = ends[i];
  }
  return { bytes, ends };
}

/** Returns the record of a payload; undefined if the payload is too short. */
export function decodeRecord(payload: Uint8Array): JournalRecord | undefined {
  if (payload.length < RECORD_BYTES) return undefined;
  const view = new DataView(payload.buffer, payload.byteOffset, payload.byteLength);
  return {
    completed: view.getUint8(0) === 1,
    index: view.getUint32(1, true),
    promptTokens: view.getUint32(5, true),
    outputTokens: view.getUint32(9, true),
    line: payload.subarray(RECORD_BYTES),
  };
}

export function encodeJson(value: unknown): Uint8Array {
  return new TextEncoder().encode(JSON.stringify(value));
}

function decodeJson(bytes: Uint8Array): unknown {
  return JSON.parse(new TextDecoder().decode(bytes));
}
