import { numberText } from "./numbers.ts";
import {
  Float,
  isNumber,
  joined,
  Lazy,
  Tuple,
  typeName,
  Undefined,
  type Value,
  View,
  type Work,
} from "./values.ts";

/** Python's texts of values: `str`, `repr` and `json.dumps`. */

/** Maximum nesting of a printed value; Python has a similar limit. */
const MAX_DEPTH = 300;
/** Cost in steps of printing a value inside a list or dict. */
const STEPS_PER_VALUE = 4;

export function str(value: Value, work: Work): string {
  if (typeof value === "string") return value;
  return value instanceof Undefined ? "" : repr(value, work);
}

export function repr(value: Value, work: Work, depth = 0): string {
  if (depth > MAX_DEPTH) throw new Error(`it prints a value that is nested more than ${MAX_DEPTH} deep`);
  work.spend(typeof value === "bigint" ? 100 : STEPS_PER_VALUE);
  if (typeof value === "string") return work.text(textRepr(work.slow(value)));
  if (value === null) return "None";
  if (isNumber(value)) return typeof value === "boolean" ? (value ? "True" : "False") : numberText(value);
  if (value instanceof Undefined) return "Undefined";
  const list = (items: readonly Value[]) => listed(items.map((item) => () => repr(item, work, depth + 1)));
  if (value instanceof View) return `${value.kind}([${list(value)}])`;
  if (value instanceof Tuple) return value.length === 1 ? `(${list(value)},)` : `(${list(value)})`;
  if (Array.isArray(value)) return `[${list(value)}]`;
  if (value instanceof Map) {
    const entries = [...value].map(([key, item]) => () =>
      `${repr(key, work, depth + 1)}: ${repr(item, work, depth + 1)}`
    );
    return `{${listed(entries)}}`;
  }
  return value instanceof Lazy ? "<generator object>" : "<object>";
}

/** Joins texts, and stops when they become too long. */
function listed(items: readonly (() => string)[], separator = ", "): string {
  let text = "";
  for (const [at, item] of items.entries()) text = joined(text, (at > 0 ? separator : "") + item());
  return text;
}

const ESCAPES: Readonly<Record<string, string>> = { "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t" };

function textRepr(text: string): string {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  // Escapes characters that Python does not print. U+FDD0 stays, because it is a mark of literal_marks.ts.
  const body = text.replaceAll(/(?![ \ufdd0])[\\'\p{C}\p{Z}]/gu, (found) => {
    if (found === "'") return quote === "'" ? "\\'" : found;
    const code = found.codePointAt(0)!;
    const hex = (letter: string, length: number) => `\\${letter}${code.toString(16).padStart(length, "0")}`;
    return ESCAPES[found] ?? (code < 0x100 ? hex("x", 2) : code < 0x10000 ? hex("u", 4) : hex("U", 8));
  });
  return quote + body + quote;
}

export interface JsonStyle {
  readonly indent?: string;
  readonly separators: readonly [string, string];
  readonly sortKeys: boolean;
  readonly ascii: boolean;
}

/** Returns the result of Python's `json.dumps`. Throws for values that JSON cannot represent. */
export function json(value: Value, style: JsonStyle, work: Work, lead = "\n"): string {
  if (lead.length > MAX_DEPTH * 16) throw new Error("it prints a value that is nested too deep");
  work.spend(typeof value === "bigint" ? 100 : STEPS_PER_VALUE);
  // Python refuses a generator here, but llama.cpp's template of DeepSeek R1 relies on an interpreter that accepts it.
  if (value instanceof Lazy) return json(value.take(), style, work, lead);
  const text = plainJson(value, style, work);
  if (text !== undefined) return text;
  const inner = lead + (style.indent ?? " ");
  const [comma, colon] = style.separators;
  const wrap = (open: string, close: string, items: (() => string)[]) => {
    if (items.length === 0) return open + close;
    if (style.indent === undefined) return open + listed(items, comma) + close;
    return open + inner + listed(items, comma + inner) + lead + close;
  };
  if (Array.isArray(value) && !(value instanceof View)) {
    return wrap("[", "]", value.map((item) => () => json(item, style, work, inner)));
  }
  if (!(value instanceof Map)) {
    throw new Error(`a value of type '${typeName(value)}' is not JSON serializable`);
  }
  const entries = [...value];
  if (style.sortKeys) entries.sort(([a], [b]) => String(a) < String(b) ? -1 : 1);
  return wrap(
    "{",
    "}",
    entries.map(([key, item]) => () =>
      jsonText(typeof key === "string" ? key : plainJson(key, style, work) ?? "", style, work) + colon +
      json(item, style, work, inner)
    ),
  );
}

/** Returns the JSON of a value other than a list or dict; undefined for lists and dicts. */
function plainJson(value: Value, style: JsonStyle, work: Work): string | undefined {
  if (typeof value === "string") return jsonText(value, style, work);
  if (value === null || typeof value === "boolean") return String(value);
  if (!isNumber(value) || typeof value === "boolean") return undefined;
  const number = value instanceof Float ? value.value : Number(value);
  if (Number.isNaN(number)) return "NaN";
  if (Number.isFinite(number) || typeof value === "bigint") return numberText(value);
  return number > 0 ? "Infinity" : "-Infinity";
}

function jsonText(text: string, { ascii }: JsonStyle, work: Work): string {
  work.spend(text.length / 16);
  const quoted = work.text(JSON.stringify(text));
  if (!ascii) return quoted;
  return work.slow(quoted).replaceAll(
    /[^\0-\x7e]/g,
    (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}
