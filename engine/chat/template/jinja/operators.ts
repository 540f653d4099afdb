import { type Arithmetic, arithmetic } from "./numbers.ts";
import { percentFormat } from "./formats.ts";
import { checkLength, isInt, joined, Tuple, Undefined, type Value, type Work } from "./values.ts";

/** Python's operators on two values, which also join, repeat and format strings and lists. */

type Operator = (a: Value, b: Value, work: Work) => Value;

export const OPERATORS: Readonly<Record<string, Operator>> = {
  "+": add,
  "-": numbers("-"),
  "*": multiply,
  "/": numbers("/"),
  "//": numbers("//"),
  "%": (a, b, work) => typeof a === "string" ? percentFormat(a, b, work) : arithmetic("%", a, b),
  "**": numbers("**"),
};

function numbers(operator: Arithmetic): Operator {
  return (a, b) => arithmetic(operator, a, b);
}

export function add(a: Value, b: Value, work: Work): Value {
  if (typeof a === "string" && typeof b === "string") return joined(a, b);
  if (Array.isArray(a) && Array.isArray(b) && a instanceof Tuple === b instanceof Tuple) {
    const items = work.list(a.concat(b));
    return a instanceof Tuple ? Tuple.make(items) : items;
  }
  for (const value of [a, b]) if (value instanceof Undefined) value.fail();
  return arithmetic("+", a, b);
}

function multiply(a: Value, b: Value, work: Work): Value {
  if (isInt(a) && (typeof b === "string" || Array.isArray(b))) return multiply(b, a, work);
  if (!isInt(b)) return arithmetic("*", a, b);
  const count = Math.max(0, Number(b));
  if (typeof a === "string") {
    checkLength(a.length * count);
    return work.text(a.repeat(count));
  }
  if (!Array.isArray(a)) return arithmetic("*", a, b);
  work.items(a.length * count);
  const items = Array.from({ length: a.length * count }, (_, at) => a[at % a.length]);
  return a instanceof Tuple ? Tuple.make(items) : items;
}
