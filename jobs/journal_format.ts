import { crc32 } from "node:zlib";
import type { Asked } from "./asked.ts";
import { BatchError } from "./errors.ts";
import type { ModelIdentity } from "./model_identity.ts";

/*
 * The journal is the record of a job: every answer, in the order in which answers came.
 *
 *   block 0, 4096 bytes   magic, then a frame with the header (JSON): which input and settings the answers belong to
 *   block 1, 4096 bytes   two slots of 2048 bytes: zeros while the job can resume, then frames that say how it ended
 *                         (JSON); the one with the higher sequence number counts
 *   from 8192 on          a frame for each answer
 *
 * A frame is: length of the payload u32, CRC-32 u32, payload; all little-endian. The CRC covers the frame's offset, the
 * length and the payload, so that zeros, a frame of another place and a half-written frame are all seen. An answer's
 * payload is: kind u8, line index u32, prompt tokens u32, output tokens u32, then the line of the output file.
 *
 * Block and slots are apart so that a torn write of how the job ended harms neither the header nor what was said before.
 */
const MAGIC = new TextEncoder().encode("compyjob");
const FORMAT_VERSION = 1;
const BLOCK = 4096;
const SLOT = BLOCK / 2;
export const RECORDS_OFFSET = 2 * BLOCK;
export const FRAME_BYTES = 8;
const RECORD_BYTES = 13;
/** More than an answer needs; bounds what a damaged length can make the reader allocate. */
export const MAX_PAYLOAD = 256 * 1024 * 1024;
export const MAX_RECORD_LINE = MAX_PAYLOAD - RECORD_BYTES;

/** What a journal's answers belong to. */
export interface JobIdentity {
  /** `identity` of checkInput. */
  readonly input: string;
  readonly inputSize: number;
  readonly lineCount: number;
  /** What is asked of each row of a table; missing in other jobs, and in journals of earlier versions. */
  readonly asked?: Asked;
  /** What else the answers depend on. */
  readonly settings: ModelIdentity;
  /** What computed the first answers. Only recorded: another may resume the job, though it rounds otherwise. */
  readonly processor?: string;
}

export interface Counts {
  completed: number;
  failed: number;
  promptTokens: number;
  outputTokens: number;
}

/** Of the lines in the output and error files: as in the input, or as the answers came. */
export type AnswerOrder = "input" | "completed";

/** What is in the files of a job that is done. */
export interface Outputs {
  readonly counts: Counts;
  readonly outputBytes: number;
  /** 0 when there is no error file. */
  readonly errorBytes: number;
}

export interface DoneJob extends Outputs {
  readonly state: "done";
  /** Missing in journals of earlier versions. */
  readonly order?: AnswerOrder;
  /**
   * While the failed lines are answered once more: "running" from when its input is whole (`revised` is what it asks otherwise
   * than the job did), then "merging" from when the
   * new outputs are whole under their partial names until both have taken the place of the old ones.
   */
  readonly retry?:
    | { readonly state: "running"; readonly revised?: Asked }
    | { readonly state: "merging"; readonly to: Outputs };
}

export type JobEnd = DoneJob | { readonly state: "failed"; readonly reason: string };

/** How a job ended, as it stands in one of the slots. */
export interface StoredEnd {
  readonly end: JobEnd;
  readonly sequence: number;
  readonly slot: 0 | 1;
}

export interface JournalRecord {
  /** Index of the input line. */
  readonly index: number;
  /** true: for the output file; false: for the error file. */
  readonly completed: boolean;
  readonly promptTokens: number;
  readonly outputTokens: number;
  /** The line of the output or error file, without line end. */
  readonly line: Uint8Array;
}

/** Blocks 0 and 1 of a new job. */
export function encodeHeader(identity: JobIdentity): Uint8Array {
  const frame = encodeFrame(MAGIC.length, encodeJson({ version: FORMAT_VERSION, ...identity }));
  if (MAGIC.length + frame.length > BLOCK) {
    throw new RangeError("The settings of a job do not fit its journal");
  }
  const blocks = new Uint8Array(RECORDS_OFFSET);
  blocks.set(MAGIC);
  blocks.set(frame, MAGIC.length);
  return blocks;
}

/**
 * Reads the first blocks of a file of `size` bytes. undefined when it is new, or when its maker was stopped before the
 * header was whole (no answer came then). Throws for a file that is not a journal, and for one that lost its header.
 */
export function decodeHeader(path: string, blocks: Uint8Array, size: number): JobIdentity | undefined {
  if (!hasMagic(blocks)) {
    throw new BatchError(
      "journal_foreign",
      `"${path}" is not a batch journal and is left alone; move it away or give another --out`,
      false,
    );
  }
  const payload = decodeFrame(MAGIC.length, blocks.subarray(MAGIC.length, BLOCK));
  if (payload === undefined) {
    if (size <= RECORDS_OFFSET) return undefined;
    throw new BatchError(
      "journal_damaged",
      `"${path}" is damaged in its first ${BLOCK} bytes, so that its answers cannot be matched to a job; remove it ` +
        "to start over",
      false,
    );
  }
  const header = decodeJson(payload) as JobIdentity & { version: unknown };
  if (header.version !== FORMAT_VERSION) {
    throw new BatchError(
      "journal_foreign",
      `"${path}" must have journal format ${FORMAT_VERSION} (got ${header.version}); finish the job with the version ` +
        "of compy that began it, or give another --out",
      false,
    );
  }
  return header;
}

/**
 * A write that was torn may leave a part of the magic and zeros behind it, and one that was lost only zeros: block 1 may
 * be there all the same, and say that the sync had failed.
 */
function hasMagic(blocks: Uint8Array): boolean {
  const differs = MAGIC.findIndex((byte, i) => byte !== blocks[i]);
  return differs < 0 || blocks.subarray(differs, BLOCK).every((byte) => byte === 0);
}

/** Offset of a slot for how a job ended. */
export function slotOffset(slot: 0 | 1): number {
  return BLOCK + slot * SLOT;
}

/** Characters of a reason that are kept: with escapes in it, it must fit its slot. */
const MAX_REASON = 300;

/** A slot's content. */
export function encodeEnd({ end, sequence, slot }: StoredEnd): Uint8Array {
  const kept = end.state === "failed" ? { ...end, reason: end.reason.slice(0, MAX_REASON) } : end;
  const bytes = new Uint8Array(SLOT);
  bytes.set(encodeFrame(slotOffset(slot), encodeJson({ sequence, ...kept })));
  return bytes;
}

/** How a job ended, undefined while it can resume. */
export function decodeEnd(blocks: Uint8Array): StoredEnd | undefined {
  const found: StoredEnd[] = [];
  for (const slot of [0, 1] as const) {
    const offset = slotOffset(slot);
    const payload = decodeFrame(offset, blocks.subarray(offset, RECORDS_OFFSET));
    if (payload === undefined) continue;
    // Earlier versions wrote once, without a number.
    const { sequence = 0, ...end } = decodeJson(payload) as JobEnd & { sequence?: number };
    found.push({ end, sequence, slot });
  }
  return found.sort((a, b) => b.sequence - a.sequence)[0];
}

function encodeFrame(offset: number, payload: Uint8Array): Uint8Array {
  const frame = new Uint8Array(FRAME_BYTES + payload.length);
  frame.set(payload, FRAME_BYTES);
  sealFrame(offset, frame);
  return frame;
}

/** Writes length and checksum before the payload that `frame` has already. */
function sealFrame(offset: number, frame: Uint8Array): void {
  const view = new DataView(frame.buffer, frame.byteOffset, frame.byteLength);
  view.setUint32(0, frame.length - FRAME_BYTES, true);
  view.setUint32(4, frameChecksum(offset, frame.subarray(FRAME_BYTES)), true);
}

/** Length of the payload of the frame that `bytes` (at least FRAME_BYTES) begin with; not checked yet. */
export function frameLength(bytes: Uint8Array): number {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength).getUint32(0, true);
}

/** The payload of the frame that `bytes` begin with, undefined when it is not whole. */
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

/** The frames of `records`, the first at `offset` of the file, and where in the result each ends. */
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

/** undefined when the payload is not a record. */
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

function encodeJson(value: unknown): Uint8Array {
  return new TextEncoder().encode(JSON.stringify(value));
}

function decodeJson(bytes: Uint8Array): unknown {
  return JSON.parse(new TextDecoder().decode(bytes));
}
