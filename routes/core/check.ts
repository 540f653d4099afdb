import type { z } from "@hono/zod-openapi";
import { ApiError } from "./errors.ts";
import { HugeNumber } from "./json.ts";

type Issue = z.core.$ZodIssue;

/** Returns the value parsed by the schema. Throws ApiError 400 that names the first wrong field. */
export function check<Schema extends z.ZodType>(schema: Schema, value: unknown): z.output<Schema> {
  const result = schema.safeParse(value, { reportInput: true });
  if (result.success) return result.data;
  const { issues } = result.error;
  const field = pathText(issues[0].path);
  // The last issue of a field is the most specific: n = 1e300 is not a safe integer, but the useful fact is that it
  // exceeds 128.
  const issue = culprit(issues.slice(0, 4).findLast(({ path }) => pathText(path) === field)!);
  const param = pathText(issue.path);
  throw new ApiError(400, codeOf(issue), describe(issue, param), { param: param || undefined });
}

/**
 * Returns the issue to report. In a union, returns the issue of the alternative that matched deepest, because the caller
 * most likely meant that alternative.
 */
function culprit(issue: Issue): Issue {
  if (issue.code !== "invalid_union") return issue;
  if (issue.errors.length === 0) return { ...issue, input: fieldAt(issue.input, issue.path.at(-1)!) };
  const alternatives = issue.errors.map((issues) => culprit(issues[0]));
  const meant = alternatives.reduce((best, other) => depth(other) > depth(best) ? other : best);
  return depth(meant) > 0 ? { ...meant, path: [...issue.path, ...meant.path] } as Issue : issue;
}

/** Returns the field that distinguishes a union's alternatives. The issue's input is the whole value. */
function fieldAt(value: unknown, name: PropertyKey): unknown {
  return (value as Record<PropertyKey, unknown>)[name];
}

function depth(issue: Issue): number {
  return issue.path.length + (issue.code === "invalid_type" ? 0 : 0.5);
}

/** Returns a path as text: `["messages", 0, "content"]` becomes `messages[0].content`. */
export function pathText(path: readonly PropertyKey[]): string {
  return path.map((key, i) => typeof key === "number" ? `[${key}]` : `${i ? "." : ""}${clip(String(key))}`)
    .join("");
}

function isMissing(issue: Issue): boolean {
  const refused = issue.code === "custom" && issue.params !== undefined;
  return issue.input === undefined && !refused && issue.path.length > 0;
}

function codeOf(issue: Issue): string {
  if (issue.code === "custom" && typeof issue.params?.code === "string") return issue.params.code;
  if (isMissing(issue)) return "missing_required_parameter";
  return issue.code === "invalid_type" ? "invalid_type" : "invalid_value";
}

function describe(issue: Issue, param: string): string {
  if (isMissing(issue)) return `Missing required parameter "${param}"`;
  if (issue.code === "custom" && issue.params !== undefined) return issue.message;
  const got = `(got ${found(issue)})`;
  if (issue.code === "custom" && !issue.message.startsWith("must ")) return `${issue.message} ${got}`;
  return `Invalid ${param ? `"${param}"` : "request body"}: ${rule(issue)} ${got}`;
}

/** Returns the wrong value for the message; for a value that is too long, its length. */
function found({ code, input }: Issue): string {
  if (code !== "too_big") return show(input);
  if (typeof input === "string") return characterCount(input);
  return typeof input === "object" && input !== null && !Array.isArray(input) &&
      !(input instanceof HugeNumber)
    ? `an object of ${Object.keys(input).length}`
    : show(input);
}

/** Maximum UTF-16 units of a text whose characters are counted; for longer texts, the count is estimated. */
const COUNTED_UNITS = 1 << 20;

function characterCount(text: string): string {
  if (text.length > COUNTED_UNITS) return `at least ${Math.ceil(text.length / 2)}`;
  let count = 0;
  for (const _ of text) count++;
  return String(count);
}

const TYPES: Record<string, string> = {
  array: "an array",
  boolean: "true or false",
  int: "an integer",
  number: "a number",
  object: "an object",
  string: "a string",
  tuple: "an array",
};

/** Returns the rule that the value must satisfy. */
function rule(issue: Issue): string {
  switch (issue.code) {
    case "invalid_type":
      return `must be ${TYPES[issue.expected] ?? issue.expected}`;
    case "too_small":
      return bound(issue.origin, "at least", Number(issue.minimum));
    case "too_big":
      return bound(issue.origin, "at most", Number(issue.maximum));
    case "invalid_value":
      return `must be ${issue.values.map((value) => JSON.stringify(value)).join(" or ")}`;
    default:
      return issue.message;
  }
}

function bound(origin: string, which: string, limit: number): string {
  if (origin === "string") return `must have ${which} ${limit} ${limit === 1 ? "character" : "characters"}`;
  if (origin === "array") return `must have ${which} ${limit} ${limit === 1 ? "entry" : "entries"}`;
  return `must be ${which} ${limit}`;
}

const SHOWN_CHARACTERS = 60;

function clip(text: string): string {
  return text.length > SHOWN_CHARACTERS ? `${text.slice(0, SHOWN_CHARACTERS)}…` : text;
}

/** Returns a short form of any value for an error message, for values of any length and depth. */
export function show(value: unknown): string {
  if (value instanceof HugeNumber) return `${clip(value.written)}, more than a 64-bit float holds`;
  if (value === Infinity || value === -Infinity) return "a number that is more than a 64-bit float holds";
  if (typeof value === "string") return JSON.stringify(clip(value));
  if (Array.isArray(value)) return `an array of ${value.length}`;
  return typeof value === "object" && value !== null ? "an object" : String(value);
}
