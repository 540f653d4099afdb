/** Translates string keywords, and drops values that answers cannot contain. */

import { isWritable } from "../pattern/ecma_pattern.ts";
import { rustPatterns } from "../pattern/rust_pattern.ts";
import type { Findings, Path, Schema } from "./findings.ts";
import { FORMATS } from "./formats.ts";

const UNWRITTEN = "has a character that answers do not write: they are without \\uXXXX";

/** Returns `pattern` and `format` as patterns that must all match. An unknown format is ignored. */
export function patternsOf({ pattern, format }: Schema, path: Path, findings: Findings): string[] {
  const own = pattern === undefined ? [] : translated(pattern, [...path, "pattern"], findings) ?? [];
  const known = typeof format === "string" ? FORMATS.get(format) : undefined;
  if (known !== undefined && own.length > 0 && findings.onlyPatterns) {
    findings.refuse([...path, "format"], "is not supported beside a pattern");
    return own;
  }
  return known === undefined ? own : [...own, known];
}

/** Returns a pattern in the library's syntax; undefined if the keyword is loosened. */
export function translated(value: unknown, path: Path, findings: Findings): string[] | undefined {
  if (typeof value !== "string") return void findings.refuse(path, "must be a string");
  try {
    return rustPatterns(value, findings.patterns);
  } catch (error) {
    if (error instanceof SyntaxError) return void findings.refuse(path, error.message);
    throw error;
  }
}

/** Refuses or loosens a name that is not well-formed Unicode: no answer can contain it. */
export function checkName(name: unknown, path: Path, findings: Findings): boolean {
  if (typeof name !== "string" || name.isWellFormed()) return true;
  findings.refuse(path, "has half a surrogate pair");
  return false;
}

/** Returns the values of an `enum` that answers can contain. In other values, the library would drop characters. */
export function writableOf(
  values: readonly unknown[],
  path: Path,
  findings: Findings,
): unknown[] | undefined {
  const writable = values.filter(canWrite);
  if (writable.length === 0 && values.length > 0) return void findings.refuse(path, UNWRITTEN);
  return writable;
}

function canWrite(value: unknown): boolean {
  if (typeof value === "string") return isWritable(value);
  if (typeof value !== "object" || value === null) return true;
  return Object.entries(value).every(([name, inner]) => name.isWellFormed() && canWrite(inner));
}
