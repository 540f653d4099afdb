import { depthOf, MAX_JSON_DEPTH } from "../../jobs/json_depth.ts";
import { parseLargeRequest, parseRequest } from "../../jobs/written_numbers.ts";
import { finish, type Paced, PLAIN_BYTES, plainUntil, type Stretch } from "../../engine/mod.ts";
import { ApiError, tooLarge } from "./errors.ts";

/** Limits of untrusted JSON: V8 parses deeper and wider values than the rest of the server can handle. */
export const JSON_LIMITS = {
  depth: MAX_JSON_DEPTH,
  containers: 100_000,
  values: 2_000_000,
  fields: 10_000,
} as const;

/** Number of bytes that are counted before the work may pause; they take 0.1 ms, or 1 ms before V8 optimizes the loop. */
const BYTES_PER_OFFER = 1 << 14;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const BRACKET = 0x5b;
/** Most bytes of a data URL before its base64. */
const DATA_PREFIX = 128;

/**
 * Returns the value of UTF-8 JSON within JSON_LIMITS. Throws ApiError 400 with the fault. Throws ApiError 413 for more
 * than `mostBytes` bytes. Long strings that can be images in base64 do not count.
 */
export function parseJson(bytes: Uint8Array, mostBytes = Infinity): unknown {
  return finish(parsing(bytes, mostBytes));
}

function* parsing(bytes: Uint8Array, mostBytes: number): Paced<unknown> {
  yield* checkShape(bytes);
  const long: Stretch[] = [];
  let value: unknown;
  try {
    value = bytes.length > MAX_HUGE_TEXT ? yield* parseLargeRequest(bytes, long) : parseSmall(bytes);
  } catch (error) {
    if (error instanceof TypeError) {
      throw new ApiError(
        400,
        "invalid_utf8",
        "The request body is not valid UTF-8; send JSON encoded as UTF-8",
      );
    }
    const reason = error instanceof Error ? error.message.slice(0, 200) : "";
    throw new ApiError(400, "invalid_json", `The request body is not valid JSON: ${reason}`);
  }
  let others = bytes.length;
  for (const stretch of long) {
    yield;
    if (mayBeImage(bytes, stretch)) others -= stretch.end - stretch.start;
  }
  if (others > mostBytes) throw tooLarge(mostBytes, others, "besides its images");
  return value;
}

/** Whether the string has no commas and brackets, as base64 and data URLs. Other strings may be JSON, which is parsed later. */
function mayBeImage(bytes: Uint8Array, { start, end }: Stretch): boolean {
  const prefix = bytes.subarray(start, Math.min(end, start + DATA_PREFIX)).indexOf(COMMA) + 1;
  const content = bytes.subarray(start + prefix, end);
  return !content.includes(COMMA) && !content.includes(BRACKET);
}

function parseSmall(bytes: Uint8Array): unknown {
  const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  return HUGE.test(text)
    ? JSON.parse(text, keepHuge as (key: string, value: unknown) => unknown)
    : parseRequest(text);
}

/**
 * A number that is valid JSON but exceeds a 64-bit float. No field accepts it; messages show it as written. In bodies
 * over MAX_HUGE_TEXT bytes it becomes Infinity.
 */
export class HugeNumber {
  constructor(readonly written: string) {}
}

/** Pattern that matches all numbers beyond 1.8e308, and some other text. */
const HUGE = /\d[eE]\+?\d{3}|(?<!\d)\d{309}/;
/** Maximum length of a text that is searched for such large numbers: parsing with a reviver is eighty times slower. */
const MAX_HUGE_TEXT = 1 << 16;

function keepHuge(_key: string, value: unknown, { source }: { source: string }): unknown {
  return value === Infinity || value === -Infinity ? new HugeNumber(source) : value;
}

/** Counts brackets and commas outside strings, before parsing. Throws ApiError above a limit. */
function* checkShape(bytes: Uint8Array): Paced<void> {
  let depth = 0;
  let deepest = 0;
  let containers = 0;
  let values = 1;
  let fields = 0;
  let isText = false;
  /** In a string, the position after its last escape. */
  let plain = 0;
  /** Commas in the container that is open at each depth; arrays count from -Infinity. */
  const commas = new Float64Array(JSON_LIMITS.depth + 1);
  let pauseAt = BYTES_PER_OFFER;
  for (let i = 0; i < bytes.length; i++) {
    if (i >= pauseAt) {
      pauseAt = i + BYTES_PER_OFFER;
      yield;
    }
    const byte = bytes[i];
    if (isText) {
      if (byte === BACKSLASH) plain = ++i + 1;
      else if (byte === QUOTE) isText = false;
      else if (i - plain > PLAIN_BYTES) {
        i = plainUntil(bytes, i + 1, Math.min(i + BYTES_PER_OFFER, bytes.length)) - 1;
      }
    } else if (byte === QUOTE) {
      isText = true;
      plain = i + 1;
    } else if (byte === BRACKET || byte === 0x7b) { // [ {
      containers++;
      deepest = Math.max(deepest, ++depth);
      commas[depth] = byte === 0x7b ? 0 : -Infinity;
    } else if (byte === 0x5d || byte === 0x7d) { // ] or }
      depth--;
    } else if (byte === COMMA) {
      values++;
      if (++commas[depth] > fields) fields = commas[depth];
    }
  }
  atMost("depth", deepest);
  atMost("containers", containers);
  atMost("values", values);
  atMost("fields", fields + 1);
}

const WHAT = {
  depth: "levels of arrays and objects",
  containers: "arrays and objects",
  values: "values",
  fields: "fields in one object",
};

function atMost(limit: keyof typeof JSON_LIMITS, count: number): void {
  if (count <= JSON_LIMITS[limit]) return;
  const message = `The request body must have at most ${JSON_LIMITS[limit]} ${WHAT[limit]} (got ${count})`;
  throw new ApiError(400, "invalid_json", message);
}

/** Throws ApiError if a parsed value is deeper than JSON_LIMITS allows. */
export function checkDepth(value: unknown): void {
  atMost("depth", depthOf(value));
}
