import type { z } from "@hono/zod-openapi";
import { ApiError } from "./errors.ts";

type Issue = z.core.$ZodIssue;

/** The value as the schema gives it; throws ApiError 400 that names the first wrong field. */
export function check<Schema extends z.ZodType>(schema: Schema, value: unknown): z.output<Schema> {
  const result = schema.safeParse(value, { reportInput: true });
  if (result.success) return result.data;
  const { issues } = result.error;
  const field = pathText(issues[0].path);
  // The last word on a field is the narrowest: n = 1e300 is no safe integer, but above all more than 128.
  const issue = culprit(issues.slice(0, 4).findLast(({ path }) => pathText(path) === field)!);
  const param = pathText(issue.path);
  throw new ApiError(400, codeOf(issue), describe(issue, param), { param: param || undefined });
}

/** In a union, the alternative that came furthest is the one that the caller meant. */
function culprit(issue: Issue): Issue {
  if (issue.code !== "invalid_union") return issue;
  const alternatives = issue.errors.map((issues) => culprit(issues[0]));
  const meant = alternatives.reduce((best, other) => depth(other) > depth(best) ? other : best);
  return depth(meant) > 0 ? { ...meant, path: [...issue.path, ...meant.path] } as Issue : issue;
}

function depth(issue: Issue): number {
  return issue.path.length + (issue.code === "invalid_type" ? 0 : 0.5);
}

/** `["messages", 0, "content"]` -> `messages[0].content`. */
function pathText(path: readonly PropertyKey[]): string {
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
  if (issue.code === "custom") return issue.message;
  const where = param ? `"${param}"` : "request body";
  return `Invalid ${where}: found ${show(issue.input)}, ${allowed(issue)}`;
}

function allowed(issue: Issue): string {
  switch (issue.code) {
    case "invalid_type":
      return `allowed is ${issue.expected === "int" ? "an integer" : `type ${issue.expected}`}`;
    case "too_small":
      return `allowed is at least ${issue.minimum}${unit(issue.origin)}`;
    case "too_big":
      return `allowed is at most ${issue.maximum}${unit(issue.origin)}`;
    case "invalid_value":
      return `allowed is ${issue.values.map((value) => JSON.stringify(value)).join(", ")}`;
    default:
      return issue.message;
  }
}

function unit(origin: string): string {
  if (origin === "string") return " characters";
  return origin === "array" ? " entries" : "";
}

const SHOWN_CHARACTERS = 60;

function clip(text: string): string {
  return text.length > SHOWN_CHARACTERS ? `${text.slice(0, SHOWN_CHARACTERS)}…` : text;
}

/** A value for an error message: short, however long or deep the value is. */
export function show(value: unknown): string {
  if (typeof value === "string") return JSON.stringify(clip(value));
  if (Array.isArray(value)) return `an array of ${value.length}`;
  return typeof value === "object" && value !== null ? "an object" : String(value);
}
