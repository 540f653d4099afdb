import { depthOf, MAX_JSON_DEPTH } from "./json_depth.ts";
import type { RawLine } from "./lines.ts";
import { parseLargeRequest, parseRequest } from "./written_numbers.ts";
import { finish, isObject, withPauses } from "../engine/mod.ts";

/** A batch line's request. */
export interface BatchRequest {
  readonly customId: string;
  readonly url: string;
  readonly body: Record<string, unknown>;
}

/** The refusal of a line: the fields of the API's error body, and the line's number in the file. */
export interface LineRefusal {
  readonly line: number;
  /** The line's custom_id; null if it has no valid one. */
  readonly customId: string | null;
  readonly code: string;
  readonly message: string;
  readonly param: string | null;
}

export interface RefusedLine {
  readonly request?: undefined;
  readonly refusal: LineRefusal;
  /** The endpoint that the line names, if known. */
  readonly url: string | undefined;
}

export type ParsedLine = { readonly request: BatchRequest; readonly refusal?: undefined } | RefusedLine;

const MAX_CUSTOM_ID_LENGTH = 512;
const BYTE_ORDER_MARK = [0xef, 0xbb, 0xbf];
const MARKED =
  "a byte order mark (U+FEFF) stands before it, as in the midst of files that were joined; remove it";
/** Longer lines, in bytes, are parsed in slices. */
const LARGE_BYTES = 1 << 16;
/** Maximum nesting of a line: the body is one level below it. */
const MAX_LINE_DEPTH = MAX_JSON_DEPTH + 1;

export interface LineRules {
  readonly maxLineBytes: number;
  /** All endpoints that exist. */
  readonly endpoints: readonly string[];
  /** The only endpoint that lines may name; by default they may name any. */
  readonly endpoint?: string;
  /** Builds the endpoint's answer to a refused line; by default in OpenAI's format. */
  readonly refusalBody?: (url: string | undefined, refusal: LineRefusal) => Record<string, unknown>;
}

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Parses a line like parseLine. A large line is parsed in slices; other requests are served between the slices. */
export async function parseInSlices(line: RawLine, rules: LineRules): Promise<ParsedLine> {
  return line.length > LARGE_BYTES ? await withPauses(() => parseLine(line, rules)) : parseLine(line, rules);
}

/** Parses one line of a batch file. Returns a refusal for an invalid line; never throws. */
export function parseLine(line: RawLine, rules: LineRules): ParsedLine {
  let customId: string | null = null;
  let endpoint = rules.endpoint;
  const refuse = (code: string, message: string, param: string | null = null): ParsedLine => ({
    refusal: { line: line.number, customId, code, message: `${placeOf(line)}: ${message}`, param },
    url: endpoint,
  });

  if (line.fault !== undefined) {
    customId = line.fault.customId;
    return refuse(line.fault.code, line.fault.message);
  }
  if (line.bytes === undefined) {
    return refuse("line_too_long", `must have at most ${rules.maxLineBytes} bytes (got ${line.length})`);
  }
  const isMarked = BYTE_ORDER_MARK.every((byte, i) => line.bytes![i] === byte);
  let value: unknown;
  try {
    if (isMarked) throw new SyntaxError(MARKED);
    value = line.length > LARGE_BYTES
      ? finish(parseLargeRequest(line.bytes))
      : parseRequest(decoder.decode(line.bytes));
  } catch (error) {
    if (error instanceof TypeError) {
      return refuse("invalid_utf8", "not valid UTF-8; save the file as UTF-8");
    }
    if (!(error instanceof SyntaxError)) throw error; // such as a pause
    return refuse("invalid_json", `not valid JSON: ${clip(error.message, 200)}`);
  }
  if (!isObject(value)) return refuse("invalid_json", `must be a JSON object (got ${kindOf(value)})`);

  if (isCustomId(value.custom_id)) customId = value.custom_id;
  const depth = depthOf(value);
  if (depth > MAX_LINE_DEPTH) {
    return refuse("too_deep", `must be nested at most ${MAX_JSON_DEPTH} levels deep (got ${depth - 1})`);
  }
  if (customId === null) {
    return refuse(
      "invalid_custom_id",
      `"custom_id" must be a string of 1 to ${MAX_CUSTOM_ID_LENGTH} characters (got ${
        showId(value.custom_id)
      })`,
      "custom_id",
    );
  }
  if (value.method !== "POST") {
    return refuse("invalid_method", `"method" must be "POST" (got ${show(value.method)})`, "method");
  }
  const { url } = value;
  if (typeof url !== "string" || !rules.endpoints.includes(url)) {
    return refuse("invalid_url", urlRefusal(url, rules.endpoints), "url");
  }
  if (rules.endpoint !== undefined && url !== rules.endpoint) {
    const message = `"url" must be the endpoint of the batch, ${rules.endpoint} (got ${url})`;
    return refuse("endpoint_mismatch", message, "url");
  }
  endpoint = url;
  if (!isObject(value.body)) {
    return refuse("invalid_body", `"body" must be a JSON object (got ${kindOf(value.body)})`, "body");
  }
  if (value.body.stream === true) {
    return refuse(
      "stream_not_allowed",
      `"stream" must not be true in a batch: answers are written whole; leave it out`,
      "body.stream",
    );
  }
  return { request: { customId, url, body: value.body } };
}

/** Returns the line's name in messages. */
export function placeOf({ number, place }: Pick<RawLine, "number" | "place">): string {
  return place ?? `Line ${number}`;
}

/** Returns the refusal of a line whose custom_id is already used by an earlier line. */
export function duplicateRefusal(line: number, customId: string, firstLine: number): LineRefusal {
  const message = `Line ${line}: custom_id ${show(customId)} is already used by line ${firstLine}`;
  return { line, customId, code: "duplicate_custom_id", message, param: "custom_id" };
}

function urlRefusal(url: unknown, endpoints: readonly string[]): string {
  return `"url" must be one of ${endpoints.join(", ")} (got ${show(url)})`;
}

/**
 * Returns whether a value is a valid custom_id. Lone surrogates are refused: they would be written as U+FFFD, so the
 * answer could not be matched.
 */
function isCustomId(value: unknown): value is string {
  return typeof value === "string" && value.length >= 1 && value.length <= MAX_CUSTOM_ID_LENGTH &&
    value.isWellFormed();
}

function kindOf(value: unknown): string {
  if (value === undefined) return "nothing";
  if (value === null) return "null";
  return Array.isArray(value) ? "an array" : `a ${typeof value}`;
}

function show(value: unknown): string {
  if (typeof value === "string") return JSON.stringify(clip(value, 80));
  return typeof value === "number" || typeof value === "boolean" ? String(value) : kindOf(value);
}

/** Returns an invalid custom_id as messages show it, with the reason. */
function showId(value: unknown): string {
  if (typeof value !== "string") return show(value);
  if (value.length > MAX_CUSTOM_ID_LENGTH) return `${value.length}: ${show(value)}`;
  return `${show(value)}${value.isWellFormed() ? "" : ", which has half of a surrogate pair"}`;
}

function clip(text: string, length: number): string {
  return text.length <= length ? text : `${text.slice(0, length).toWellFormed()}…`;
}
