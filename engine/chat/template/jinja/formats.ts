import { integer, numberText, rounded } from "./numbers.ts";
import { repr, str } from "./texts.ts";
import { type Args, Float, isInt, isNumber, toNumber, Tuple, type Value, type Work } from "./values.ts";

/** Python's two ways to insert values into a text. */

const FIELD = /\{\{|\}\}|\{([^{}:!]*)(?:!([rs]))?(?::([^{}]*))?\}|[{}]/g;

/** Returns the result of Python's `str.format`. */
export function braceFormat(pattern: string, args: Args, work: Work): string {
  let next = 0;
  return work.text(pattern.replaceAll(FIELD, (found, name?: string, conversion?: string, spec = "") => {
    if (name === undefined) {
      if (found.length === 2) return found[0];
      throw new Error("format has a single brace");
    }
    const at = name === "" ? next++ : Number(name);
    const value = Number.isInteger(at) ? args.list[at] : args.named.get(name);
    if (value === undefined) throw new Error("format has fewer values than places");
    return work.text(specified(conversion === "r" ? repr(value, work) : value, spec, work));
  }));
}

const SPEC = /^(?:(.)?([<>^]))?([+ ])?(0)?(\d{1,5})?(,)?(?:\.(\d{1,2}))?([sdfxXg%])?$/u;

/** Returns a value in the format that follows the colon. */
function specified(value: Value, spec: string, work: Work): string {
  if (spec === "") return str(value, work);
  const found = SPEC.exec(spec);
  if (!found) throw new Error(`format does not support ${JSON.stringify(spec)}`);
  const [
    ,
    fill = found[4] ?? " ",
    align = isNumber(value) ? ">" : "<",
    sign,
    ,
    width = "0",
    comma,
    digits,
    kind,
  ] = found;
  let text = isNumber(value) && kind !== "s" ? number(value, kind, digits) : str(value, work);
  if (!isNumber(value) && digits !== undefined) text = text.slice(0, Number(digits));
  if (comma) text = text.replace(/\d+/, (whole) => whole.replaceAll(/\B(?=(\d{3})+$)/g, ","));
  if (sign && isNumber(value) && !text.startsWith("-")) text = sign + text;
  return padded(text, Number(width), align, fill);
}

function number(value: number | bigint | boolean | Float, kind = "", digits?: string): string {
  const near = toNumber(value);
  const fixed = (value: number) => rounded(value, Number(digits ?? 6)).toFixed(Number(digits ?? 6));
  if (kind === "f") return fixed(near);
  if (kind === "%") return `${fixed(near * 100)}%`;
  if (kind.toLowerCase() === "x") {
    const text = BigInt(near).toString(16);
    return kind === "X" ? text.toUpperCase() : text;
  }
  if (digits !== undefined || kind === "g") return String(Number(near.toPrecision(Number(digits ?? 6))));
  return numberText(typeof value === "boolean" ? near : value);
}

/** Returns a text padded to a width. */
export function padded(text: string, width: number, align: string, fill = " "): string {
  const missing = width - text.length;
  if (missing <= 0) return text;
  if (missing > 1 << 20) throw new Error("it pads a text too far");
  const before = align === "<" ? 0 : align === ">" ? missing : (missing >> 1) + (missing & width & 1);
  return fill.repeat(before) + text + fill.repeat(missing - before);
}

const PLACE = /%(?:\((\w+)\))?([-0]?)(\d{1,5})?(?:\.(\d{1,2}))?([%sdifrxX])/g;

/** Returns the result of Python's `text % values`. */
export function percentFormat(pattern: string, values: Value, work: Work): string {
  const list = values instanceof Tuple ? values : [values];
  let next = 0;
  const text = pattern.replaceAll(PLACE, (_, name, flag, width = "0", digits, kind) => {
    if (kind === "%") return "%";
    const value = name !== undefined && values instanceof Map ? values.get(name) : list[next++];
    if (value === undefined) throw new Error("not enough arguments for format string");
    const text = percented(value, kind, digits, work);
    return padded(text, Number(width), flag === "-" ? "<" : ">", flag === "0" ? "0" : " ");
  });
  if (next < list.length && !(values instanceof Map)) {
    throw new Error("not all arguments converted during string formatting");
  }
  return work.text(text);
}

function percented(value: Value, kind: string, digits: string | undefined, work: Work): string {
  if (kind === "s") return work.text(str(value, work));
  if (kind === "r") return work.text(repr(value, work));
  if (!isNumber(value)) throw new Error(`%${kind} format: a number is required`);
  if (kind === "f") return number(value, "f", digits);
  return number(
    isInt(value) ? value : integer(BigInt(Math.trunc(toNumber(value)))),
    kind === "i" ? "d" : kind,
  );
}
