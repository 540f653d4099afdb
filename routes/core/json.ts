import { depthOf, MAX_JSON_DEPTH } from "../../jobs/json_depth.ts";
import { parseRequest } from "../../jobs/written_numbers.ts";
import { ApiError } from "./errors.ts";

/** Limits of untrusted JSON: V8 parses deeper and wider values than the rest of the server can handle. */
export const JSON_LIMITS = { depth: MAX_JSON_DEPTH, containers: 100_000, values: 2_000_000 } as const;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;

/** Returns the value of UTF-8 JSON within JSON_LIMITS. Throws ApiError 400 that says what is wrong. */
export function parseJson(bytes: Uint8Array): unknown {
  checkShape(bytes);
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw new ApiError(
      400,
      "invalid_utf8",
      "The request body is not valid UTF-8; send JSON encoded as UTF-8",
    );
  }
  try {
    return text.length <= MAX_HUGE_TEXT && HUGE.test(text)
      ? JSON.parse(text, keepHuge as (key: string, value: unknown) => unknown)
      : parseRequest(text);
  } catch (error) {
    const reason = error instanceof Error ? error.message.slice(0, 200) : "";
    throw new ApiError(400, "invalid_json", `The request body is not valid JSON: ${reason}`);
  }
}

/**
 * A number that is valid JSON but does not fit a 64-bit float. No field accepts it; messages show it as written. In
 * texts over MAX_HUGE_TEXT it becomes Infinity.
 */
export class HugeNumber {
  constructor(readonly written: string) {}
}

/** Matches numbers beyond 1.8e308, and some other text. */
const HUGE = /\d[eE]\+?\d{3}|(?<!\d)\d{309}/;
/** Longer texts are not searched for such numbers: parsing with a reviver is eighty times slower. */
const MAX_HUGE_TEXT = 1 << 16;

function keepHuge(_key: string, value: unknown, { source }: { source: string }): unknown {
  return value === Infinity || value === -Infinity ? new HugeNumber(source) : value;
}

/** Counts brackets and commas outside strings, before anything is built. Throws ApiError above a limit. */
function checkShape(bytes: Uint8Array): void {
  let depth = 0;
  let deepest = 0;
  let containers = 0;
  let values = 1;
  for (let i = 0; i < bytes.length; i++) {
    const byte = bytes[i];
    if (byte === QUOTE) {
      for (i++; i < bytes.length && bytes[i] !== QUOTE; i++) if (bytes[i] === BACKSLASH) i++;
    } else if (byte === 0x5b || byte === 0x7b) { // [ {
      containers++;
      deepest = Math.max(deepest, ++depth);
    } else if (byte === 0x5d || byte === 0x7d) { // ] }
      depth--;
    } else if (byte === 0x2c) values++; // ,
  }
  atMost("depth", deepest);
  atMost("containers", containers);
  atMost("values", values);
}

const WHAT = { depth: "levels of arrays and objects", containers: "arrays and objects", values: "values" };

function atMost(limit: keyof typeof JSON_LIMITS, count: number): void {
  if (count <= JSON_LIMITS[limit]) return;
  const message = `The request body must have at most ${JSON_LIMITS[limit]} ${WHAT[limit]} (got ${count})`;
  throw new ApiError(400, "invalid_json", message);
}

/** Applies the same depth limit to a value that was parsed elsewhere. */
export function checkDepth(value: unknown): void {
  atMost("depth", depthOf(value));
}
