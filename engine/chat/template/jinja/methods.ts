import { braceFormat, padded } from "./formats.ts";
import {
  Args,
  checkLength,
  equal,
  isInt,
  iterate,
  key,
  lengthOf,
  Tuple,
  typeName,
  type Value,
  view,
  type Work,
} from "./values.ts";

/** Methods of Python's strings, lists and dicts. */

type Method<T> = (object: T, args: Args, work: Work) => Value;

/** Pattern of the characters that Python's `strip` removes. */
const SPACE = "[[\\s\\x1c-\\x1f\\x85]--[\\ufeff]]";
const LEFT = new RegExp(`^${SPACE}+`, "v");
const SPACES = new RegExp(`${SPACE}+`, "v");
const IS_SPACE = new RegExp(`^${SPACE}$`, "v");

/** Returns the result of Python's `strip`, on one side or both. */
export function strip(text: string, chars: Value, work: Work, left = true, right = true): string {
  if (chars !== null && typeof chars !== "string") {
    throw new Error(`strip arg must be None or str (got ${typeName(chars)})`);
  }
  const removed = (unit: string) =>
    chars === null ? unit === " " || unit === "\n" || IS_SPACE.test(unit) : chars.includes(unit);
  let [from, to] = [0, text.length];
  while (left && from < to && removed(text[from])) from++;
  while (right && to > from && removed(text[to - 1])) to--;
  work.slow(text.slice(0, from + text.length - to));
  return text.slice(from, to);
}

function split(text: string, args: Args, work: Work): string[] {
  const separator = args.get(0, "sep", null);
  const most = args.int(1, "maxsplit", -1);
  const limit = most < 0 ? Infinity : most;
  work.text(text);
  const parts: string[] = [];
  if (separator === null) {
    let rest = text.replace(LEFT, "");
    while (rest !== "") {
      const space = parts.length < limit ? SPACES.exec(rest) : null;
      work.item(parts.push(space ? rest.slice(0, space.index) : rest));
      rest = space ? rest.slice(space.index + space[0].length) : "";
    }
    return parts;
  }
  if (typeof separator !== "string" || separator === "") throw new Error("empty separator");
  let from = 0;
  for (
    let at = text.indexOf(separator);
    at >= 0 && parts.length < limit;
    at = text.indexOf(separator, from)
  ) {
    parts.push(text.slice(from, at));
    from = at + separator.length;
    work.item(parts.length);
  }
  return [...parts, text.slice(from)];
}

function splitFromRight(text: string, args: Args, work: Work): string[] {
  const separator = args.get(0, "sep", null);
  const most = args.int(1, "maxsplit", -1);
  const parts = split(text, new Args([separator]), work);
  if (most < 0 || parts.length <= most + 1) return parts;
  if (separator === null) throw new Error("rsplit without a separator and with maxsplit is not supported");
  const first = parts.slice(0, parts.length - most).join(String(separator));
  return [first, ...parts.slice(parts.length - most)];
}

/** Returns the result of Python's `replace`; with a negative `most`, of all occurrences. */
export function replace(text: string, from: string, to: string, most: number, work: Work): string {
  if (from === "") {
    return [...work.slow(text), ""].map((unit, at) => (most < 0 || at < most ? to : "") + unit).join("");
  }
  const parts = split(text, new Args([from, most]), work);
  checkLength(parts.length * to.length);
  return work.text(parts.join(to));
}

/** Returns the result of Python's `title`: capitals at the start of each run of letters. */
function title(text: string): string {
  return text.replaceAll(/\p{L}+/gu, (word) => capitalized(word));
}

export function capitalized(text: string): string {
  const [first = ""] = text;
  return first.toUpperCase() + text.slice(first.length).toLowerCase();
}

function cut(text: string, args: Args, from: number): string {
  const [start, end] = [args.get(from, "start", null), args.get(from + 1, "end", null)];
  return isInt(start) || isInt(end)
    ? text.slice(Number(start ?? 0), end === null ? undefined : Number(end))
    : text;
}

function begins(way: "startsWith" | "endsWith"): Method<string> {
  return (text, args) => {
    const wanted = args.get(0, "prefix");
    return (wanted instanceof Tuple ? wanted : [wanted]).some((one) => {
      if (typeof one !== "string") {
        throw new Error(`${way.toLowerCase()} takes a text (got ${typeName(one)})`);
      }
      return cut(text, args, 1)[way](one);
    });
  };
}

function parted(way: "indexOf" | "lastIndexOf"): Method<string> {
  return (text, args, work) => {
    const separator = args.text(0, "sep");
    const at = work.text(text)[way](separator);
    if (at < 0) return Tuple.make(way === "indexOf" ? [text, "", ""] : ["", "", text]);
    return Tuple.make([text.slice(0, at), separator, text.slice(at + separator.length)]);
  };
}

function found(way: "indexOf" | "lastIndexOf", throws: boolean): Method<string> {
  return (text, args, work) => {
    const at = work.text(text)[way](
      args.text(0, "sub"),
      args.list[1] === undefined ? undefined : args.int(1, "start"),
    );
    if (at < 0 && throws) throw new Error("substring not found");
    return at < 0 ? at : lengthOf(text.slice(0, at), work);
  };
}

function are(pattern: RegExp): Method<string> {
  return (text, _, work) => pattern.test(work.slow(text));
}

function aligned(align: string): Method<string> {
  return (text, args) => padded(text, args.int(0, "width"), align, args.text(1, "fillchar", " "));
}

const TEXT_METHODS: Readonly<Record<string, Method<string>>> = {
  capitalize: (text) => capitalized(text),
  casefold: (text, _, work) => work.text(text.toLowerCase()),
  center: aligned("^"),
  count: (text, args, work) => split(text, new Args([args.text(0, "sub")]), work).length - 1,
  endswith: begins("endsWith"),
  find: found("indexOf", false),
  format: braceFormat,
  index: found("indexOf", true),
  isalnum: are(/^[\p{L}\p{N}]+$/u),
  isalpha: are(/^\p{L}+$/u),
  isascii: are(/^[\0-\x7f]*$/),
  isdecimal: are(/^\p{Nd}+$/u),
  isdigit: are(/^\p{Nd}+$/u),
  islower: (text) => text === text.toLowerCase() && text !== text.toUpperCase(),
  isnumeric: are(/^\p{N}+$/u),
  isspace: are(new RegExp(`^${SPACE}+$`, "v")),
  isupper: (text) => text === text.toUpperCase() && text !== text.toLowerCase(),
  join: (text, args, work) => joinTexts(text, iterate(args.list[0], work), work),
  ljust: aligned("<"),
  lower: (text, _, work) => work.text(text.toLowerCase()),
  lstrip: (text, args, work) => strip(text, args.get(0, "chars", null), work, true, false),
  partition: parted("indexOf"),
  removeprefix: (text, args) => {
    const prefix = args.text(0, "prefix");
    return text.startsWith(prefix) ? text.slice(prefix.length) : text;
  },
  removesuffix: (text, args) => {
    const suffix = args.text(0, "suffix");
    return suffix !== "" && text.endsWith(suffix) ? text.slice(0, -suffix.length) : text;
  },
  replace: (text, args, work) =>
    replace(text, args.text(0, "old"), args.text(1, "new"), args.int(2, "count", -1), work),
  rfind: found("lastIndexOf", false),
  rindex: found("lastIndexOf", true),
  rjust: aligned(">"),
  rpartition: parted("lastIndexOf"),
  rsplit: splitFromRight,
  rstrip: (text, args, work) => strip(text, args.get(0, "chars", null), work, false, true),
  split,
  splitlines: (text, args, work) => lines(work.slow(text), args.get(0, "keepends", false) === true),
  startswith: begins("startsWith"),
  strip: (text, args, work) => strip(text, args.get(0, "chars", null), work),
  swapcase: (text, _, work) =>
    work.slow(text).replaceAll(
      /\p{L}/gu,
      (one) => one === one.toLowerCase() ? one.toUpperCase() : one.toLowerCase(),
    ),
  title: (text, _, work) => title(work.slow(text)),
  upper: (text, _, work) => work.text(text.toUpperCase()),
  zfill: (text, args) => {
    const sign = /^[+-]?/.exec(text)![0];
    return sign + padded(text.slice(sign.length), args.int(0, "width") - sign.length, ">", "0");
  },
};

function joinTexts(separator: string, items: readonly Value[], work: Work): string {
  let length = 0;
  for (const item of items) {
    if (typeof item !== "string") throw new Error(`expected str instance (got ${typeName(item)})`);
    length += item.length + separator.length;
    checkLength(length);
  }
  return work.text(items.join(separator));
}

/** Pattern of the line ends of Python's `splitlines`. */
const LINE_END = "(?:\\r\\n|[\\n\\r\\v\\f\\x1c-\\x1e\\x85\\u2028\\u2029])";

function lines(text: string, keep: boolean): string[] {
  const parts = text.split(new RegExp(keep ? `(?<=${LINE_END})(?<!\\r(?=\\n))` : LINE_END));
  if (parts.at(-1) === "") parts.pop();
  return parts;
}

const LIST_METHODS: Readonly<Record<string, Method<Value[]>>> = {
  // Python's sandbox refuses `append` and the next method, but templates for other interpreters use them.
  append: (list, args, work) => {
    if (args.list.length !== 1) throw new Error("append is a function of one argument");
    list.push(args.list[0]);
    work.item(list.length);
    return null;
  },
  pop: (list, args, work) => {
    const at = args.int(0, "index", -1);
    if (at >= list.length || at < -list.length) throw new Error("pop is a function of an index in the list");
    work.spend(list.length / 64);
    return list.splice(at, 1)[0];
  },
  copy: (list) => [...list],
  count: (list, args, work) => work.list(list).filter((item) => equal(item, args.list[0], work)).length,
  index: (list, args, work) => {
    const at = work.list(list).findIndex((item) => equal(item, args.list[0], work));
    if (at < 0) throw new Error("the value is not in the list");
    return at;
  },
};

const DICT_METHODS: Readonly<Record<string, Method<Map<Value, Value>>>> = {
  copy: (dict) => new Map(dict),
  get: (dict, args) => {
    const name = key(args.list[0]);
    return dict.has(name) ? dict.get(name) : args.get(1, "default", null);
  },
  items: (dict, _, work) => {
    work.items(dict.size);
    return view("items", [...dict].map(Tuple.make));
  },
  keys: (dict, _, work) => (work.items(dict.size), view("keys", dict.keys())),
  values: (dict, _, work) => (work.items(dict.size), view("values", dict.values())),
};

/**
 * Methods that Jinja's sandbox refuses. They hide a dict's items of the same names, because Jinja looks up methods
 * first.
 */
export const UNSAFE_NAMES: ReadonlySet<string> = new Set(["clear", "pop", "popitem", "setdefault", "update"]);

/** Names whose call is never a macro call. */
export const METHOD_NAMES: ReadonlySet<string> = new Set(
  [TEXT_METHODS, LIST_METHODS, DICT_METHODS].flatMap(Object.keys),
);

/** Returns the Python method of that name; undefined if the value has none. */
export function methodOf(object: Value, name: string): Method<Value> | undefined {
  const methods = typeof object === "string"
    ? TEXT_METHODS
    : Array.isArray(object)
    ? LIST_METHODS
    : object instanceof Map
    ? DICT_METHODS
    : {};
  return Object.hasOwn(methods, name) ? (methods as Record<string, Method<Value>>)[name] : undefined;
}
