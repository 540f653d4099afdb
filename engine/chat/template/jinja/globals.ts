import { Args, Func, iterate, key, Namespace, Tuple, type Value, type Work } from "./values.ts";
import { str } from "./texts.ts";
import { strftime } from "./strftime.ts";

/** Thrown if a template calls `raise_exception`. The message is for the author of the conversation. */
export class TemplateRefusal extends Error {
  override name = "TemplateRefusal";
}

function dict({ list, named }: Args, work: Work): Map<Value, Value> {
  const [from] = list;
  const pairs = from === undefined
    ? []
    : from instanceof Map
    ? from
    : iterate(from, work).map((pair) => iterate(pair, work) as [Value, Value]);
  const made = new Map<Value, Value>();
  for (const [name, value] of pairs) made.set(key(name), value);
  for (const [name, value] of named) made.set(name, value);
  return made;
}

/** Returns the list of Python's `range`. */
function range(args: Args, work: Work): Value {
  const bounds = args.list.map((_, at) => args.int(at, "range"));
  const [start, stop, step] = bounds.length === 1
    ? [0, bounds[0], 1]
    : [bounds[0], bounds[1], bounds[2] ?? 1];
  if (step === 0) throw new Error("range() arg 3 must not be zero");
  const count = Math.max(0, Math.ceil((stop - start) / step));
  work.items(count);
  return Tuple.make(Array.from({ length: count }, (_, at) => start + at * step));
}

function cycler({ list }: Args): Value {
  let at = 0;
  const next = new Func(() => list[at++ % list.length]);
  return {
    attribute: (name: string) =>
      name === "next" ? next : name === "current" ? list[at % list.length] : undefined,
  };
}

function joiner(args: Args): Value {
  let used = false;
  return new Func(() => used ? args.get(0, "sep", ", ") : (used = true, ""));
}

/** Global functions that every template can call. */
export const GLOBALS: ReadonlyMap<string, Value> = new Map([
  ["cycler", new Func(cycler)],
  ["dict", new Func(dict)],
  ["joiner", new Func(joiner)],
  ["namespace", new Func((args, work) => new Namespace(dict(args, work) as Map<string, Value>))],
  [
    "raise_exception",
    new Func((args, work) => {
      throw new TemplateRefusal(str(args.get(0, "message", ""), work).slice(0, 1000));
    }),
  ],
  ["range", new Func(range)],
  ["strftime_now", new Func((args) => strftime(new Date(), args.text(0, "format")))],
]);
