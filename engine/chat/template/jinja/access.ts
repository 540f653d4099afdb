import { methodOf, UNSAFE_NAMES } from "./methods.ts";
import {
  Args,
  Func,
  hasAttributes,
  isInt,
  key,
  lengthOf,
  Namespace,
  Tuple,
  typeName,
  Undefined,
  type Value,
  type Work,
} from "./values.ts";

/** Python's attributes, subscripts, slices and calls in a Jinja template, as Jinja's sandbox allows them. */

/** Returns Jinja's `object.name`: an attribute or method, else the item of that name. */
export function attributeOf(object: Value, name: string, work: Work): Value {
  const own = ownAttribute(object, name);
  if (own !== undefined) return own;
  const item = itemIn(object, name, work);
  return item === undefined ? missing(object, name) : item;
}

/** Returns Jinja's `object[index]`: an item, else the attribute of that name. */
export function itemOf(object: Value, index: Value, work: Work): Value {
  const item = itemIn(object, index, work);
  if (item !== undefined) return item;
  const own = typeof index === "string" ? ownAttribute(object, index) : undefined;
  return own === undefined ? missing(object, index) : own;
}

/** Returns the value's attribute; undefined if it has none of that name. */
function ownAttribute(object: Value, name: string): Value {
  if (object instanceof Undefined) object.fail();
  if (object instanceof Namespace) return object.fields.get(name);
  if (hasAttributes(object)) return object.attribute(name);
  const method = methodOf(object, name);
  if (method) return new Func((args, work) => method(object, args, work));
  const unsafe = object instanceof Map && UNSAFE_NAMES.has(name);
  return unsafe ? new Undefined(`access to attribute '${name}' is unsafe`) : undefined;
}

/** Returns the value's item; undefined if it has none at the index. */
function itemIn(object: Value, index: Value, work: Work): Value {
  if (object instanceof Undefined) object.fail();
  if (object instanceof Map) {
    return Array.isArray(index) || index instanceof Map ? undefined : object.get(key(index));
  }
  if (!isInt(index)) return undefined;
  if (Array.isArray(object)) return object.at(Number(index));
  if (typeof object !== "string") return undefined;
  const at = Number(index);
  return (lengthOf(object, work) === object.length ? object : [...work.slow(object)]).at(at);
}

function missing(object: Value, name: Value): Undefined {
  const of = object === null ? "'None'" : `'${typeName(object)}' object`;
  return new Undefined(`${of} has no attribute '${String(name).slice(0, 100)}'`);
}

/** Returns Python's `object[from:to:step]`. */
export function slice(object: Value, bounds: readonly Value[], work: Work): Value {
  if (object instanceof Undefined) object.fail();
  if (typeof object !== "string" && !Array.isArray(object)) {
    return new Undefined(`'${typeName(object)}' object cannot be sliced`);
  }
  const [from, to, step = null] = bounds.map((bound) => {
    if (bound !== null && !isInt(bound)) throw new Error("slice indices must be integers or None");
    return bound === null ? null : Number(bound);
  });
  if (step === 0) throw new Error("slice step cannot be zero");
  const isText = typeof object === "string";
  const plain = isText && lengthOf(object, work) === object.length;
  if (step === null || step === 1) {
    const part = (plain ? object : isText ? [...work.slow(object)] : object).slice(
      from ?? 0,
      to ?? undefined,
    );
    if (typeof part === "string") return part;
    work.items(part.length);
    return isText ? part.join("") : object instanceof Tuple ? Tuple.make(part) : part;
  }
  const items = stepped(isText ? [...work.slow(object)] : object, from, to, step);
  work.items(items.length);
  return isText ? items.join("") : object instanceof Tuple ? Tuple.make(items) : items;
}

function stepped(items: readonly Value[], from: number | null, to: number | null, step: number): Value[] {
  const { length } = items;
  const [low, high] = step > 0 ? [0, length] : [-1, length - 1];
  const clamp = (bound: number) => Math.min(high, Math.max(low, bound < 0 ? bound + length : bound));
  const begin = from === null ? (step > 0 ? low : high) : clamp(from);
  const end = to === null ? (step > 0 ? high : low) : clamp(to);
  const taken: Value[] = [];
  for (let at = begin; step > 0 ? at < end : at > end; at += step) taken.push(items[at]);
  return taken;
}

/** A macro's pending call: the interpreter runs it, because it can pause. */
export interface Pending {
  readonly pending: () => Generator<undefined, Value>;
}

/** A macro of a Jinja template. */
export interface Macro {
  begin(args: Args): Pending;
}

/** Calls a template's function; returns a Pending for a macro. Throws for other values. */
export function call(callee: Value, args: Args, work: Work): Value {
  work.spend(1);
  if (callee instanceof Func) return callee.call(args, work);
  if (callee instanceof Undefined) callee.fail();
  if (typeof callee === "object" && callee !== null && "begin" in callee) {
    return (callee as Macro).begin(args);
  }
  throw new Error(`'${typeName(callee)}' object is not callable: it is not a function`);
}
