/** Records keywords that a grammar cannot express: they are refused or loosened. */

import { type Budget, patternBudget } from "../pattern/automaton.ts";
import { ConstraintError } from "../types.ts";

export type Schema = Readonly<Record<string, unknown>>;
export type Path = readonly string[];

/** Collects the loosened keywords of one schema while it is read, and its remaining budgets. */
export class Findings {
  /** Pointers of keywords that the grammar does not enforce, or enforces in part. */
  readonly loosened: string[] = [];
  /** Remaining budget for translating the schema's patterns. */
  readonly patterns: Budget = patternBudget();
  /** Remaining budget of schema comparisons; about 1,000 take a millisecond. */
  readonly comparisons: Budget = { left: 20_000 };

  /**
   * `mayLoosen`: the grammar may accept more than the schema. `onlyPatterns`: keywords beside a pattern are dropped,
   * because the library refused both together.
   */
  constructor(readonly mayLoosen: boolean, readonly onlyPatterns = false) {}

  /** Throws ConstraintError for a keyword that cannot be expressed, or notes that it is left out. */
  refuse(path: Path, what: string): void {
    if (!this.mayLoosen) throw refused(path, what);
    this.loosened.push(pointer(path));
  }
}

export function refused(path: Path, what: string, isUnsatisfiable = false): ConstraintError {
  const place = path.length === 0 ? "The schema" : `The schema's ${show(pointer(path))}`;
  return new ConstraintError(`${place} ${what}`, isUnsatisfiable);
}

export function pointer(path: Path): string {
  return path.map((part) => "/" + part.replaceAll("~", "~0").replaceAll("/", "~1")).join("");
}

/** Returns a value as a short text for messages. */
export function show(value: unknown): string {
  const text = JSON.stringify(value) ?? String(value);
  return text.length > 100 ? text.slice(0, 100).toWellFormed() + "…" : text;
}

export function isSchema(value: unknown): value is Schema {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export function isEmpty(value: unknown): boolean {
  return typeof value === "object" && value !== null && Object.keys(value).length === 0;
}

/** Sets an own property, even if the name is `__proto__`. */
export function define(object: Record<string, unknown>, name: string, value: unknown): void {
  if (name !== "__proto__") object[name] = value;
  else Object.defineProperty(object, name, { value, enumerable: true, configurable: true, writable: true });
}
