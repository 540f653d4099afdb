import { type Filter, listFilters } from "./list_filters.ts";
import { attributeOf } from "./access.ts";
import { capitalized, replace, strip } from "./methods.ts";
import { percentFormat } from "./formats.ts";
import { arithmetic, integer, negative, parseFloating, parseInteger, rounded } from "./numbers.ts";
import { json, str } from "./texts.ts";
import {
  Args,
  float,
  Func,
  isFloat,
  isInt,
  isNumber,
  iterate,
  Lazy,
  lengthOf,
  toNumber,
  truthy,
  Tuple,
  typeName,
  Undefined,
  type Value,
  type Work,
} from "./values.ts";

/** Jinja's filters. Text filters convert other values to text, as in Python. */

type OfText = (text: string, args: Args, work: Work) => Value;

function ofText(change: OfText): Filter {
  return (value, args, work) => change(work.text(str(value, work)), args, work);
}

function slowly(change: OfText): Filter {
  return (value, args, work) => change(work.slow(str(value, work)), args, work);
}

const fallback: Filter = (value, args) =>
  value instanceof Undefined || args.get(1, "boolean", false) === true && !truthy(value)
    ? args.get(0, "default_value", "")
    : value;

const escape: Filter = slowly((text, _, work) =>
  work.text(text.replaceAll(/[&<>"']/g, (sign) => `&${ENTITIES[sign]};`))
);
const ENTITIES: Readonly<Record<string, string>> = {
  "&": "amp",
  "<": "lt",
  ">": "gt",
  '"': "#34",
  "'": "#39",
};

const length: Filter = (value, _, work) => lengthOf(value, work);

const TEXT_FILTERS: Readonly<Record<string, Filter>> = {
  capitalize: ofText(capitalized),
  center: ofText((text, args, work) => method(text, "center", new Args([args.get(0, "width", 80)]), work)),
  e: escape,
  escape,
  forceescape: escape,
  format: (value, args, work) =>
    percentFormat(
      str(value, work),
      args.named.size > 0 ? new Map<Value, Value>(args.named) : Tuple.make(args.list),
      work,
    ),
  indent: ofText((text, args, work) => {
    const width = args.get(0, "width", 4);
    const lead = typeof width === "string" ? width : " ".repeat(Math.min(1000, Number(width)));
    const blank = args.get(2, "blank", false) === true;
    const lines = work.list(text.split("\n"));
    const indented = lines.map((line, at) => at > 0 && (blank || line.trim() !== "") ? lead + line : line);
    return work.text((args.get(1, "first", false) === true ? lead : "") + indented.join("\n"));
  }),
  lower: ofText((text) => text.toLowerCase()),
  replace: (value, args, work) =>
    replace(
      str(value, work),
      str(args.get(0, "old"), work),
      str(args.get(1, "new"), work),
      args.get(2, "count", null) === null ? -1 : args.int(2, "count"),
      work,
    ),
  safe: (value, _, work) => str(value, work),
  string: (value, _, work) => str(value, work),
  title: slowly((text) =>
    text.toLowerCase().replaceAll(
      /(^|[-\s({[<])([^-\s({[<])/g,
      (_, before, first) => before + first.toUpperCase(),
    )
  ),
  trim: ofText((text, args, work) => strip(text, args.get(0, "chars", null), work)),
  truncate: slowly((text, args) => {
    const [most, end] = [args.int(0, "length", 255), args.text(2, "end", "...")];
    if (text.length <= most + args.int(3, "leeway", 5)) return text;
    const short = text.slice(0, most - end.length);
    return (args.get(1, "killwords", false) === true ? short : short.replace(/ [^ ]*$/, "")) + end;
  }),
  upper: ofText((text) => text.toUpperCase()),
  urlencode: slowly((text) =>
    encodeURIComponent(text).replaceAll("%2F", "/").replaceAll(
      /[!'()*]/g,
      (sign) => `%${sign.charCodeAt(0).toString(16).toUpperCase()}`,
    )
  ),
  wordcount: slowly((text) => text.match(/[\p{L}\p{N}_]+/gu)?.length ?? 0),
};

function method(text: string, name: string, args: Args, work: Work): Value {
  return (attributeOf(text, name, work) as Func).call(args, work);
}

const NUMBER_FILTERS: Readonly<Record<string, Filter>> = {
  abs: (value) => toNumber(number(value)) < 0 ? negative(value) : value,
  float: (value, args) => {
    if (value instanceof Undefined) value.fail();
    if (isNumber(value)) return float(toNumber(value));
    const parsed = typeof value === "string" ? parseFloating(value) : undefined;
    return parsed ?? args.get(0, "default", float(0));
  },
  int: (value, args) => {
    if (value instanceof Undefined) value.fail();
    const otherwise = args.get(0, "default", 0);
    if (typeof value === "string") {
      const parsed = parseInteger(value, args.int(1, "base", 10)) ?? parseFloating(value);
      return parsed === undefined ? otherwise : truncated(parsed, otherwise);
    }
    return isNumber(value) ? truncated(value, otherwise) : otherwise;
  },
  round: (value, args) => {
    const digits = args.int(0, "precision", 0);
    const way = args.text(1, "method", "common");
    const near = toNumber(number(value));
    if (way === "common") return isInt(value) && digits >= 0 ? value : float(rounded(near, digits));
    return float(Math[way === "ceil" ? "ceil" : "floor"](near * 10 ** digits) / 10 ** digits);
  },
};

function number(value: Value): Value {
  if (value instanceof Undefined) value.fail();
  if (!isNumber(value)) throw new Error(`a number is needed (got ${typeName(value)})`);
  return value;
}

function truncated(value: Value, otherwise: Value): Value {
  if (!isFloat(value)) return typeof value === "boolean" ? Number(value) : value;
  const near = toNumber(value);
  return Number.isFinite(near) ? integer(BigInt(Math.trunc(near))) : otherwise;
}

/** The `tojson` filter of transformers, which does not escape HTML. */
const tojson: Filter = (value, args, work) => {
  const ascii = args.get(0, "ensure_ascii", false) === true;
  const width = args.get(1, "indent", null);
  if (width !== null && !isInt(width) && typeof width !== "string") {
    throw new Error("indent must be a number");
  }
  const indent = width === null
    ? undefined
    : typeof width === "string"
    ? width
    : " ".repeat(Math.min(100, Math.max(0, Number(width))));
  const given = args.get(2, "separators", null);
  const usual = [indent === undefined ? ", " : ",", ": "];
  const [comma, colon] = given === null ? usual : iterate(given, work).map((text) => str(text, work));
  const sortKeys = args.get(3, "sort_keys", false) === true;
  return work.text(json(value, { indent, separators: [comma, colon], sortKeys, ascii }, work));
};

const OTHER_FILTERS: Readonly<Record<string, Filter>> = {
  attr: (value, args, work) => {
    const found = attributeOf(value, args.text(0, "name"), work);
    return value instanceof Map && !(found instanceof Func)
      ? new Undefined("a dict has no such attribute")
      : found;
  },
  count: length,
  d: fallback,
  default: fallback,
  items: (value, _, work) => {
    if (value instanceof Undefined) return new Lazy(() => []);
    if (!(value instanceof Map)) throw new Error("Can only get item pairs from a mapping.");
    work.items(value.size);
    return new Lazy(() => [...value].map(Tuple.make));
  },
  length,
  sum: (value, args, work) => {
    const by = args.get(0, "attribute", null);
    const items = iterate(value, work);
    return items.reduce(
      (sum: Value, item) => arithmetic("+", sum, by === null ? item : attributeOf(item, String(by), work)),
      args.get(1, "start", 0),
    );
  },
  tojson,
};

export const FILTERS: ReadonlyMap<string, Filter> = new Map([
  ...Object.entries(TEXT_FILTERS),
  ...Object.entries(NUMBER_FILTERS),
  ...Object.entries(OTHER_FILTERS),
  ...Object.entries(listFilters((name) => FILTERS.get(name))),
]);
