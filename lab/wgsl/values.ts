/** What the count knows of a value: always its type, and of integers and truths mostly the value too. */
import type { Scalar, Type } from "./syntax.ts";

/** Why a value is what it is: it differs by lane; it is unknown only because a loop's turns are counted as one. */
export const BY_LANE = 1;
export const BY_TURN = 2;

export interface Value {
  readonly type: Type;
  /** A scalar's, a vector's components, or a structure's members; undefined where it is not known. */
  readonly data?: number | readonly number[] | readonly Value[];
  readonly flags: number;
  /** A literal without a suffix. */
  readonly abstract?: boolean;
}

export const scalar = (of: Scalar): Type => ({ kind: "scalar", of });
export const vector = (of: Scalar, size: number): Type => ({ kind: "vector", of, size });

export function unknown(type: Type, flags = 0): Value {
  return { type, flags };
}

export function word(value: number, flags = 0): Value {
  return { type: scalar("u32"), data: value >>> 0, flags };
}

/** A scalar's number, where it is known. */
export function numberOf({ data }: Value): number | undefined {
  return typeof data === "number" ? data : undefined;
}

export function scalarOf(type: Type): Scalar {
  if (type.kind === "scalar" || type.kind === "vector") return type.of;
  if (type.kind === "atomic") return scalarOf(type.of);
  throw new TypeError(`A ${type.kind} is no number`);
}

/** Components. */
export function widthOf(type: Type): number {
  return type.kind === "vector" ? type.size : 1;
}

export function isFloat(of: Scalar): boolean {
  return of === "f32" || of === "f16";
}

/** The type with other numbers in it. */
export function withScalar(type: Type, of: Scalar): Type {
  return type.kind === "vector" ? vector(of, type.size) : scalar(of);
}

const INTEGER: Readonly<Record<string, (a: number, b: number) => number>> = {
  "+": (a, b) => a + b,
  "-": (a, b) => a - b,
  "*": (a, b) => Math.imul(a, b),
  "/": (a, b) => b === 0 ? a : Math.trunc(a / b),
  "%": (a, b) => b === 0 ? 0 : a % b,
  "&": (a, b) => a & b,
  "|": (a, b) => a | b,
  "^": (a, b) => a ^ b,
  "<<": (a, b) => a << b,
  ">>": (a, b) => a < 0 ? a >> b : a >>> b,
};

const TRUTH: Readonly<Record<string, (a: number, b: number) => boolean>> = {
  "<": (a, b) => a < b,
  ">": (a, b) => a > b,
  "<=": (a, b) => a <= b,
  ">=": (a, b) => a >= b,
  "==": (a, b) => a === b,
  "!=": (a, b) => a !== b,
  "&&": (a, b) => a !== 0 && b !== 0,
  "||": (a, b) => a !== 0 || b !== 0,
};

/** Of two operands that are numbers: the result, known where both are integers that are known. */
export function binary(op: string, a: Value, b: Value): Value {
  const flags = a.flags | b.flags;
  const shape = a.type.kind === "vector" ? a : b.type.kind === "vector" ? b : a.abstract ? b : a;
  const of = scalarOf((a.abstract ? b : a).type);
  const truth = op in TRUTH ? TRUTH[op] : undefined;
  const type = withScalar(shape.type, truth ? "bool" : of);
  const [x, y] = [numberOf(a), numberOf(b)];
  if (op === "&&" && (x === 0 || y === 0)) return { type, data: 0, flags };
  if (op === "||" && (x === 1 || y === 1)) return { type, data: 1, flags };
  if (x === undefined || y === undefined || isFloat(of)) return unknown(type, flags);
  const abstract = a.abstract && b.abstract;
  if (truth) return { type, data: Number(truth(x, y)), flags };
  const result = INTEGER[op](x, y);
  return { type, data: of === "u32" ? result >>> 0 : result | 0, flags, abstract };
}

/** A value of that type out of others: a conversion, a vector out of parts, or a structure. */
export function make(type: Type, args: readonly Value[]): Value {
  const flags = args.reduce((all, { flags }) => all | flags, 0);
  if (type.kind === "named" || type.kind === "array") return { type, data: args, flags };
  const of = scalarOf(type);
  if (isFloat(of) || args.some(({ type }) => isFloat(scalarOf(type)))) return unknown(type, flags);
  if (type.kind === "scalar") {
    const value = args.length === 0 ? 0 : numberOf(args[0]);
    return value === undefined
      ? unknown(type, flags)
      : { type, data: of === "u32" ? value >>> 0 : value, flags };
  }
  const parts = args.flatMap((arg) => {
    if (arg.data === undefined) return [undefined];
    return typeof arg.data === "number" ? [arg.data] : arg.data as number[];
  });
  if (parts.includes(undefined)) return unknown(type, flags);
  const size = widthOf(type);
  const data = parts.length === 0
    ? Array(size).fill(0)
    : parts.length === 1
    ? Array(size).fill(parts[0])
    : parts;
  return { type, data: data as number[], flags };
}
