import { Float, float, isInt, isNumber, toNumber, Undefined, type Value } from "./values.ts";

/** Arithmetic and number formatting as in Python. */

export type Arithmetic = "+" | "-" | "*" | "/" | "//" | "%" | "**";

/** Maximum bits of integers that a template computes. Integers in its data may be larger. */
const MAX_BITS = 128;

/** Returns the result of an operator on two numbers. Throws if Python raises an exception. */
export function arithmetic(operator: Arithmetic, a: Value, b: Value): Value {
  for (const value of [a, b]) if (value instanceof Undefined) value.fail();
  if (!isNumber(a) || !isNumber(b)) throw new Error(`unsupported operand types for ${operator}`);
  if (isInt(a) && isInt(b) && operator !== "/" && !(operator === "**" && Number(b) < 0)) {
    return integers(operator, a, b);
  }
  return float(floats(operator, toNumber(a), toNumber(b)));
}

function floats(operator: Arithmetic, a: number, b: number): number {
  if (b === 0 && (operator === "/" || operator === "//" || operator === "%")) {
    throw new Error("division by zero");
  }
  switch (operator) {
    case "+":
      return a + b;
    case "-":
      return a - b;
    case "*":
      return a * b;
    case "/":
      return a / b;
    case "//":
      return Math.floor(a / b);
    case "%":
      return a - b * Math.floor(a / b);
    case "**":
      return a ** b;
  }
}

function integers(
  operator: Arithmetic,
  a: number | bigint | boolean,
  b: number | bigint | boolean,
): number | bigint {
  const near = floats(operator, Number(a), Number(b));
  if (typeof a !== "bigint" && typeof b !== "bigint" && Number.isSafeInteger(near)) return near;
  if (!(Math.abs(near) < 2 ** MAX_BITS)) throw new Error(`an integer must have at most ${MAX_BITS} bits`);
  const [x, y] = [BigInt(a), BigInt(b)];
  switch (operator) {
    case "+":
      return integer(x + y);
    case "-":
      return integer(x - y);
    case "*":
      return integer(x * y);
    case "//":
      return integer((x - ((x % y) + y) % y) / y);
    case "%":
      return integer(((x % y) + y) % y);
    default:
      return integer(x ** y);
  }
}

/** Returns a Python int: a JavaScript number if that is exact, else a bigint. */
export function integer(value: bigint): number | bigint {
  const near = Number(value);
  return Number.isSafeInteger(near) ? near : value;
}

export function negative(value: Value): Value {
  return value instanceof Float ? new Float(-value.value) : arithmetic("-", 0, value);
}

/** Returns the text of a number as Python's `repr` writes it. */
export function numberText(value: number | bigint | Float): string {
  if (typeof value === "bigint" || Number.isInteger(value)) {
    return typeof value === "number" && !Number.isSafeInteger(value) ? String(BigInt(value)) : String(value);
  }
  const number = toNumber(value);
  if (Number.isNaN(number)) return "nan";
  if (!Number.isFinite(number)) return number > 0 ? "inf" : "-inf";
  if (number === 0) return Object.is(number, -0) ? "-0.0" : "0.0";
  const [digits, power] = number.toExponential().split("e");
  const exponent = Number(power);
  if (exponent < -4 || exponent >= 16) {
    return `${digits}e${exponent < 0 ? "-" : "+"}${String(Math.abs(exponent)).padStart(2, "0")}`;
  }
  const plain = exponent < 0
    ? number.toFixed(digits.replace(/[-.]/g, "").length - 1 - exponent)
    : String(number);
  return plain.includes(".") ? plain : `${plain}.0`;
}

/** Maximum digits of a number's text. */
const MAX_DIGITS = 1000;

const INT = /^[+-]?\d+(_\d+)*$/;
const FLOAT = /^[+-]?((\d+(_\d+)*)?\.\d+(_\d+)*|\d+(_\d+)*\.?)(e[+-]?\d+)?$/i;
const NAMED = /^([+-]?)(inf(inity)?|nan)$/i;

/** Parses an int as Python's `int` does; undefined if the text is not one. */
export function parseInteger(text: string, base = 10): number | bigint | undefined {
  if (text.length > MAX_DIGITS) return undefined;
  const plain = text.trim().replaceAll("_", "");
  if (base === 10) return INT.test(text.trim()) ? integer(BigInt(plain)) : undefined;
  const prefix = { 2: "0b", 8: "0o", 16: "0x" }[base];
  const digits = prefix === undefined ? plain : plain.toLowerCase().replace(prefix, "");
  const allowed = "0123456789abcdefghijklmnopqrstuvwxyz".slice(0, base);
  if (digits === "" || [...digits.toLowerCase()].some((digit) => !allowed.includes(digit))) return undefined;
  return parseInt(digits, base);
}

/** Parses a float as Python's `float` does; undefined if the text is not one. */
export function parseFloating(text: string): number | Float | undefined {
  if (text.length > MAX_DIGITS) return undefined;
  const plain = text.trim();
  const [, sign, name] = NAMED.exec(plain) ?? [];
  if (name !== undefined) return /nan/i.test(name) ? NaN : sign === "-" ? -Infinity : Infinity;
  return FLOAT.test(plain) ? float(Number(plain.replaceAll("_", ""))) : undefined;
}

/**
 * Returns the result of Python's `round`: a tie goes to the even digit. The result is an int if `digits` is undefined.
 */
export function rounded(value: number, digits: number): number {
  if (!Number.isFinite(value)) return value;
  const factor = 10 ** Math.abs(digits);
  const scaled = digits < 0 ? value / factor : value * factor;
  const floor = Math.floor(scaled);
  // A tie is exact only if the binary value ends at that digit: 2.675 is stored slightly lower.
  const exact = digits <= 0 || Number.isInteger(value * 2 ** 10);
  const tie = scaled - floor === 0.5 && exact;
  if (tie) return (floor % 2 === 0 ? floor : floor + 1) / (digits < 0 ? 1 / factor : factor);
  return digits < 0 ? Math.round(scaled) * factor : Number(value.toFixed(Math.min(digits, 100)));
}
