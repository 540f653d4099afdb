import {
  type Args,
  compare,
  contains,
  equal,
  Func,
  isFloat,
  isInt,
  isNumber,
  Lazy,
  toNumber,
  Undefined,
  type Value,
  type Work,
} from "./values.ts";
import { arithmetic } from "./numbers.ts";
import { str } from "./texts.ts";

/** Jinja's `is` tests: `value is test(arguments)`. */

type Test = (value: Value, args: Args, work: Work) => boolean;

const isEqual: Test = (value, { list }, work) => equal(value, list[0], work);
const isGreater: Test = (value, { list }, work) => compare(value, list[0], work) > 0;
const isLess: Test = (value, { list }, work) => compare(value, list[0], work) < 0;
const isAtLeast: Test = (value, { list }, work) => compare(value, list[0], work) >= 0;
const isAtMost: Test = (value, { list }, work) => compare(value, list[0], work) <= 0;
const isUnequal: Test = (value, args, work) => !isEqual(value, args, work);
const isSequence = (value: Value) =>
  typeof value === "string" || Array.isArray(value) || value instanceof Map || value instanceof Undefined;

function remainder(value: Value, by: Value): number {
  return toNumber(arithmetic("%", value, by));
}

export const TESTS: ReadonlyMap<string, Test> = new Map<string, Test>([
  ["boolean", (value) => typeof value === "boolean"],
  [
    "callable",
    (value) => value instanceof Func || typeof value === "object" && value !== null && "begin" in value,
  ],
  ["defined", (value) => !(value instanceof Undefined)],
  ["divisibleby", (value, args) => remainder(value, args.get(0, "num")) === 0],
  ["eq", isEqual],
  ["equalto", isEqual],
  ["==", isEqual],
  ["escaped", () => false],
  ["even", (value) => remainder(value, 2) === 0],
  ["false", (value) => value === false],
  ["float", isFloat],
  ["ge", isAtLeast],
  [">=", isAtLeast],
  ["greaterthan", isGreater],
  ["gt", isGreater],
  [">", isGreater],
  ["in", (value, { list }, work) => contains(list[0], value, work)],
  ["integer", (value) => isInt(value) && typeof value !== "boolean"],
  ["iterable", (value) => isSequence(value) || value instanceof Lazy],
  ["le", isAtMost],
  ["<=", isAtMost],
  ["lessthan", isLess],
  ["lt", isLess],
  ["<", isLess],
  ["lower", (value, _, work) => isCased(str(value, work), "toLowerCase", "toUpperCase")],
  ["mapping", (value) => value instanceof Map],
  ["ne", isUnequal],
  ["!=", isUnequal],
  ["none", (value) => value === null],
  ["number", isNumber],
  ["odd", (value) => remainder(value, 2) === 1],
  ["sameas", (value, { list }) => value === list[0]],
  ["sequence", isSequence],
  ["string", (value) => typeof value === "string"],
  ["true", (value) => value === true],
  ["undefined", (value) => value instanceof Undefined],
  ["upper", (value, _, work) => isCased(str(value, work), "toUpperCase", "toLowerCase")],
]);

function isCased(
  text: string,
  own: "toLowerCase" | "toUpperCase",
  other: "toLowerCase" | "toUpperCase",
): boolean {
  return text === text[own]() && text !== text[other]();
}
