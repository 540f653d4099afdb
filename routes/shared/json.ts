import { depthOf, MAX_JSON_DEPTH } from "../../jobs/json_depth.ts";
import { ApiError } from "./errors.ts";

/** Bounds of any JSON that a stranger sends: V8 parses deeper and wider than the rest of the server could bear. */
export const JSON_LIMITS = { depth: MAX_JSON_DEPTH, containers: 100_000, values: 2_000_000 } as const;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;

/** Parses UTF-8 JSON within JSON_LIMITS; throws ApiError 400 that says what is wrong. */
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
      : JSON.parse(text);
  } catch (error) {
    const reason = error instanceof Error ? error.message.slice(0, 200) : "";
    throw new ApiError(400, "invalid_json", `The request body is not valid JSON: ${reason}`);
  }
}

/**
 * A number that JSON allows and a 64-bit float does not hold: no field takes it, and messages show it as it was written.
 * In long texts it is Infinity.
 */
export class HugeNumber {
  constructor(readonly written: string) {}
}

/** What numbers beyond 1.8e308 look like, and other text may. */
const HUGE = /\d[eE]\+?\d{3}|(?<!\d)\d{309}/;
/** Characters of a text in which they are looked for: parsing with a reviver is eighty times as slow. */
const MAX_HUGE_TEXT = 1 << 16;

function keepHuge(_key: string, value: unknown, { source }: { source: string }): unknown {
  return value === Infinity || value === -Infinity ? new HugeNumber(source) : value;
}

/** Counts brackets and commas outside of strings, before anything is built from them. */
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

/** The same depth bound for a value that was parsed elsewhere. */
export function checkDepth(value: unknown): void {
  atMost("depth", depthOf(value));
}
