/** Values of templates, with the meaning that Python gives them. */

/**
 * A template's value: null, a boolean, an int (safe integer or bigint), a float (another number or a Float), a string,
 * a list (array), a Tuple, a dict (Map), or an instance of a class below.
 */
export type Value = unknown;

/** Maximum UTF-16 units of any text in a template: more than a prompt of a million tokens needs. */
const MAX_TEXT = 1 << 23;
/** Maximum UTF-16 units of a text that a template function reads character by character. */
const MAX_SLOW_TEXT = 1 << 19;
/** Maximum items of any list in a template: the limit of Python's sandbox for `range`. */
const MAX_ITEMS = 100_000;
/** Maximum depth of nested macro calls and nested values. */
const MAX_DEPTH = 100;
/** Maximum steps of one rendering: about 150 ms, at up to 0.1 us per step. Each value of the data adds to it. */
const MAX_STEPS = 1_500_000;
const MORE_STEPS_PER_VALUE = 50;
/** Number of steps after which a rendering offers to pause. */
const SLICE = 25_000;
/** Maximum steps of one expression, which cannot pause: about 20 ms. */
const MAX_PIECE = 200_000;
/** UTF-16 units per step for a fast text function. A slow function handles four. */
const UNITS_PER_STEP = 64;

/** Counts the work of one rendering in steps, so that the limit does not depend on the machine's load. */
export class Work {
  readonly #limit: number;
  #left: number;
  #pauseAt: number;
  #depth = 0;

  /** Starts the count. `values`: number of values in the template's data. */
  constructor(values: number) {
    this.#limit = this.#left = MAX_STEPS + values * MORE_STEPS_PER_VALUE;
    this.#pauseAt = this.#left - SLICE;
  }

  spend(steps: number): void {
    this.#left -= steps;
    if (this.#left < 0) throw new Error(`it takes more than ${this.#limit} steps`);
    if (this.#left < this.#pauseAt + SLICE - MAX_PIECE) {
      throw new Error(`an expression takes more than ${MAX_PIECE - SLICE} steps`);
    }
  }

  /** Whether the rendering should pause. Reading true starts the next slice. */
  get due(): boolean {
    if (this.#left > this.#pauseAt) return false;
    this.#pauseAt = this.#left - SLICE;
    return true;
  }

  /** Charges steps for a text that a function reads or creates, and returns the text. */
  text(text: string): string {
    checkLength(text.length);
    this.spend(text.length / UNITS_PER_STEP);
    return text;
  }

  /** Charges steps for a text that a function reads character by character, and returns the text. */
  slow(text: string): string {
    if (text.length > MAX_SLOW_TEXT) {
      throw new Error(`it changes a text of more than ${MAX_SLOW_TEXT} characters in a slow way`);
    }
    this.spend(text.length / 4);
    return text;
  }

  /** Charges steps for a list that a function reads or creates, and returns the list. */
  list<T extends Value[]>(list: T): T {
    this.items(list.length);
    return list;
  }

  items(count: number): void {
    if (!(count <= MAX_ITEMS)) throw new Error(`it makes a list of more than ${MAX_ITEMS} items`);
    this.spend(count);
  }

  /** Charges steps for a new list item; `count` is the new length. */
  item(count: number): void {
    if (count > MAX_ITEMS) this.items(count);
    this.spend(2);
  }

  enter(): void {
    if (++this.#depth > MAX_DEPTH) throw new Error(`it calls macros more than ${MAX_DEPTH} deep`);
  }

  leave(): void {
    this.#depth--;
  }
}

/** Throws if a text of this length would be too long. */
export function checkLength(length: number): void {
  if (length > MAX_TEXT) throw new Error(`it makes a text of more than ${MAX_TEXT} characters`);
}

/** Returns two texts joined. It charges no steps, because it copies nothing. */
export function joined(a: string, b: string): string {
  checkLength(a.length + b.length);
  return a + b;
}

/** A Python float without a fraction, such as 1.0. Other floats are JavaScript numbers. */
export class Float {
  constructor(readonly value: number) {}
}

/** Jinja's undefined value. It prints as nothing; most other uses throw. */
export class Undefined {
  constructor(readonly reason: string) {}

  fail(): never {
    throw new Error(this.reason);
  }
}

export class Tuple extends Array<Value> {
  static override get [Symbol.species]() {
    return Array;
  }

  static make(items: Iterable<Value>): Tuple {
    const tuple = new Tuple();
    for (const item of items) tuple.push(item);
    return tuple;
  }
}

/** The result of a Python dict's `keys`, `values` or `items`. */
export class View extends Tuple {
  kind = "";
}

export function view(kind: string, items: Iterable<Value>): View {
  const made = new View();
  made.kind = `dict_${kind}`;
  for (const item of items) made.push(item);
  return made;
}

/** Python's generators and iterators, which filters return. They can be read once, and have no length. */
export class Lazy {
  #make: (() => Value[]) | undefined;

  constructor(make: () => Value[]) {
    this.#make = make;
  }

  take(): Value[] {
    const items = this.#make?.() ?? [];
    this.#make = undefined;
    return items;
  }
}

/** Jinja's `namespace`: a value whose attributes a template may set. */
export class Namespace {
  constructor(readonly fields: Map<string, Value>) {}
}

/** A value with computed attributes: `loop`, a cycler or a macro. */
export interface Attributes {
  attribute(name: string): Value;
}

export function hasAttributes(value: Value): value is Attributes {
  return typeof value === "object" && value !== null && "attribute" in value;
}

/** The arguments of a call in a template. */
export class Args {
  constructor(readonly list: readonly Value[], readonly named: ReadonlyMap<string, Value> = NONE) {}

  /** Returns the argument at the position or with the name. */
  get(at: number, name: string, fallback?: Value): Value {
    if (at < this.list.length) return this.list[at];
    return this.named.has(name) ? this.named.get(name) : fallback;
  }

  text(at: number, name: string, fallback?: string): string {
    const value = this.get(at, name, fallback);
    if (typeof value !== "string") throw new Error(`${name} must be a text (got ${typeName(value)})`);
    return value;
  }

  int(at: number, name: string, fallback?: number): number {
    const value = this.get(at, name, fallback);
    if (!isInt(value)) throw new Error(`${name} must be an integer (got ${typeName(value)})`);
    return Number(value);
  }

  /** Returns the arguments after the first. */
  get rest(): Args {
    return new Args(this.list.slice(1), this.named);
  }
}

const NONE: ReadonlyMap<string, Value> = new Map();

/** A Python function in a template: a method or a global. */
export class Func {
  constructor(readonly call: (args: Args, work: Work) => Value) {}
}

export function isInt(value: Value): value is number | bigint | boolean {
  return Number.isInteger(value) || typeof value === "bigint" || typeof value === "boolean";
}

export function isFloat(value: Value): value is number | Float {
  return value instanceof Float || typeof value === "number" && !Number.isInteger(value);
}

export function isNumber(value: Value): value is number | bigint | boolean | Float {
  return typeof value === "number" || isInt(value) || value instanceof Float;
}

/** Returns the double that is nearest to a Python number. */
export function toNumber(value: Value): number {
  return Number(value instanceof Float ? value.value : value);
}

/** Returns a number as a Python float. */
export function float(value: number): number | Float {
  return Number.isInteger(value) ? new Float(value) : value;
}

/** Returns Python's name of a value's type. */
export function typeName(value: Value): string {
  if (value === null) return "None";
  if (value instanceof Undefined) return "undefined";
  if (typeof value === "string") return "str";
  if (typeof value === "boolean") return "bool";
  if (isInt(value)) return "int";
  if (isFloat(value)) return "float";
  if (value instanceof Map) return "dict";
  if (value instanceof View) return value.kind;
  if (Array.isArray(value)) return value instanceof Tuple ? "tuple" : "list";
  return value === undefined ? "nothing" : "object";
}

export function truthy(value: Value): boolean {
  if (typeof value === "string" || Array.isArray(value)) return value.length > 0;
  if (typeof value === "boolean") return value;
  if (value === null || value instanceof Undefined) return false;
  if (value instanceof Map) return value.size > 0;
  return isNumber(value) ? toNumber(value) !== 0 : true;
}

/** Returns the items of a value that a template can iterate over. Throws for other values. */
export function iterate(value: Value, work: Work): readonly Value[] {
  if (Array.isArray(value)) return value;
  if (value instanceof Map) return work.list([...value.keys()]);
  if (typeof value === "string") return work.list([...work.slow(value)]);
  if (value instanceof Lazy) return value.take();
  if (value instanceof Undefined) return [];
  throw new Error(`'${typeName(value)}' object is not iterable`);
}

/** Returns the result of Python's `len`. */
export function lengthOf(value: Value, work: Work): number {
  if (Array.isArray(value)) return value.length;
  if (value instanceof Map) return value.size;
  if (value instanceof Undefined) return 0;
  if (typeof value !== "string") throw new Error(`object of type '${typeName(value)}' has no len()`);
  let pairs = 0;
  if (WIDE.test(work.text(value))) {
    for (let at = 0; at < value.length; at++) if (value.codePointAt(at)! > 0xffff) pairs++;
  }
  return value.length - pairs;
}

/** Pattern of a character of two UTF-16 units. */
const WIDE = /[\ud800-\udbff]/;

export function equal(a: Value, b: Value, work: Work): boolean {
  if (a === b) return true;
  if (typeof a === "number" && typeof b === "number") return false;
  if (isNumber(a) && isNumber(b)) {
    return isInt(a) && isInt(b) ? BigInt(a) === BigInt(b) : toNumber(a) === toNumber(b);
  }
  if (Array.isArray(a) && Array.isArray(b)) {
    if (a instanceof Tuple !== b instanceof Tuple || a.length !== b.length) return false;
    work.list(a);
    return a.every((item, at) => equal(item, b[at], work));
  }
  if (a instanceof Map && b instanceof Map) {
    work.items(a.size);
    return a.size === b.size && [...a].every(([key, item]) => b.has(key) && equal(item, b.get(key), work));
  }
  return a instanceof Undefined && b instanceof Undefined;
}

/**
 * Compares two values: returns a negative number, 0 or a positive number. Throws for values that Python cannot order.
 */
export function compare(a: Value, b: Value, work: Work): number {
  if (typeof a === "string" && typeof b === "string") return a < b ? -1 : a > b ? 1 : 0;
  if (isNumber(a) && isNumber(b)) {
    const exact = typeof a === "bigint" && isInt(b) || typeof b === "bigint" && isInt(a);
    const [x, y] = exact ? [BigInt(a as bigint), BigInt(b as bigint)] : [toNumber(a), toNumber(b)];
    return x < y ? -1 : x > y ? 1 : x === y ? 0 : NaN;
  }
  if (Array.isArray(a) && Array.isArray(b) && a instanceof Tuple === b instanceof Tuple) {
    for (let at = 0; at < Math.min(a.length, b.length); at++) {
      work.spend(1);
      if (!equal(a[at], b[at], work)) return compare(a[at], b[at], work);
    }
    return a.length - b.length;
  }
  for (const value of [a, b]) if (value instanceof Undefined) value.fail();
  throw new Error(`cannot order a value of type '${typeName(a)}' and one of type '${typeName(b)}'`);
}

/** Returns the result of Python's `in`. */
export function contains(container: Value, item: Value, work: Work): boolean {
  if (typeof container === "string") {
    if (typeof item !== "string") throw new Error(`'in <string>' requires a text (got ${typeName(item)})`);
    return work.text(container).includes(item);
  }
  if (container instanceof Map) return container.has(key(item));
  return iterate(container, work).some((one) => (work.spend(1), equal(one, item, work)));
}

/** Returns the value as the key of a dict. Equal numbers are one key. */
export function key(value: Value): Value {
  if (Array.isArray(value) && !(value instanceof Tuple) || value instanceof Map) {
    throw new Error(`unhashable type: '${typeName(value)}'`);
  }
  return value instanceof Float ? value.value : value;
}
