import { type Config, inWords, isObject } from "../../engine/architectures/checkpoint.ts";
import { quote } from "../../engine/gguf/errors.ts";
import { notText } from "../../engine/gguf/real_kind.ts";
import { refuse } from "../errors.ts";

export { inWords, isObject };

type JsonObject = Config["object"];

/** Maximum bytes of a configuration file. */
export const MAX_CONFIG_BYTES = 4 * 1024 * 1024;
/** Maximum bytes of tokenizer.json; the largest published one has 35 MB. */
export const MAX_TOKENIZER_BYTES = 64 * 1024 * 1024;

/**
 * Reads a JSON file of at most `maxBytes`, which may contain Python's NaN and Infinity. Returns undefined for a missing
 * file. Throws ConvertError for an invalid one.
 */
export async function readJson(path: string, maxBytes: number): Promise<unknown> {
  const text = await readText(path, maxBytes);
  return text === undefined ? undefined : parseJson(path, text, asPythonWrites);
}

/** Pattern of strings, and of numbers that Python writes but JSON lacks. */
const PYTHON = /"(?:[^"\\]|\\.)*"|-?Infinity|NaN/g;
const NUMBERS: Readonly<Record<string, string>> = { Infinity: "1e999", "-Infinity": "-1e999", NaN: "null" };

/** Returns Python's JSON text as JSON: an infinite number becomes one that overflows, and NaN becomes null. */
function asPythonWrites(text: string): string {
  return text.replace(PYTHON, (part) => NUMBERS[part] ?? part);
}

/** Reads a UTF-8 file of at most `maxBytes`. Returns undefined for a missing file. */
export async function readText(path: string, maxBytes: number): Promise<string | undefined> {
  try {
    using file = await Deno.open(path);
    const { size, isFile } = await file.stat();
    if (!isFile) refuse(path, undefined, "not a regular file");
    if (size > maxBytes) refuse(path, undefined, `must have at most ${maxBytes} bytes (got ${size})`);
    const bytes = new Uint8Array(size);
    for (let at = 0; at < size;) {
      const n = await file.read(bytes.subarray(at));
      if (n === null) refuse(path, undefined, `the file ended at byte ${at}, it had ${size}`);
      at += n;
    }
    const kind = notText(bytes);
    if (kind !== undefined) refuse(path, undefined, kind);
    return decodeUtf8(path, bytes);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw error;
  }
}

/** Returns the bytes as text. Throws ConvertError when they are not UTF-8. */
export function decodeUtf8(path: string, bytes: Uint8Array): string {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    refuse(path, undefined, "must be valid UTF-8");
  }
}

/** Returns the parsed JSON, or else that of the text from `mend`. Throws ConvertError if neither is JSON. */
export function parseJson(path: string, text: string, mend?: (text: string) => string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    const mended = mend?.(text) ?? text;
    if (mended !== text) return parseJson(path, mended);
    refuse(path, undefined, `invalid JSON: ${quote(error.message)}`);
  }
}

/** Returns the names as a list: `"a", "b" or "c"`. */
export function oneOf(names: readonly string[]): string {
  const quoted = names.map(quote);
  return quoted.length === 1 ? quoted[0] : `${quoted.slice(0, -1).join(", ")} or ${quoted.at(-1)}`;
}

/** An object of a JSON file with checked access. A null counts as a missing key, as in Hugging Face's files. */
export class Fields implements Config {
  /** `path` is the object's place in the file, such as `text_config.`. */
  constructor(readonly file: string, readonly object: JsonObject, private readonly path = "") {}

  static of(file: string, value: unknown, path = ""): Fields {
    if (!isObject(value)) refuse(file, path || undefined, `must be an object (got ${inWords(value)})`);
    return new Fields(file, value, path);
  }

  get(name: string): unknown {
    return Object.hasOwn(this.object, name) ? this.object[name] ?? undefined : undefined;
  }

  has(name: string): boolean {
    return this.get(name) !== undefined;
  }

  /** Returns the object under a key; undefined if the key is missing. */
  fields(name: string): Fields | undefined {
    const value = this.get(name);
    if (value === undefined) return undefined;
    if (!isObject(value)) this.refuse(name, inWords(value), "an object");
    return new Fields(this.file, value, `${this.path}${name}.`);
  }

  string(name: string, fallback?: string): string {
    const value = this.get(name) ?? fallback;
    if (typeof value !== "string") this.refuse(name, inWords(value), "a text");
    return value;
  }

  boolean(name: string, fallback: boolean): boolean {
    const value = this.get(name) ?? fallback;
    if (typeof value !== "boolean") this.refuse(name, inWords(value), "true or false");
    return value;
  }

  /** Returns the key's whole number from 1 to `max`. */
  count(name: string, max: number, fallback?: number): number {
    return this.#count(name, 1, max, fallback);
  }

  /** Returns the key's whole number from 0 to `max`. */
  countFrom0(name: string, max: number, fallback?: number): number {
    return this.#count(name, 0, max, fallback);
  }

  #count(name: string, min: number, max: number, fallback: number | undefined): number {
    const value = this.get(name) ?? fallback;
    if (typeof value !== "number" || !Number.isInteger(value) || value < min || value > max) {
      this.refuse(name, inWords(value), `a whole number from ${min} to ${max}`);
    }
    return value;
  }

  /** Returns the key's number above 0 and at most `max`. */
  positive(name: string, max: number, fallback?: number): number {
    const value = this.get(name) ?? fallback;
    if (typeof value !== "number" || !(value > 0 && value <= max)) {
      this.refuse(name, inWords(value), `a number above 0 and at most ${max}`);
    }
    return value;
  }

  /** Throws ConvertError if the key's value is not the allowed one. */
  mustBe(name: string, allowed: unknown, why: string): void {
    const value = this.get(name);
    if (value !== undefined && value !== allowed) {
      this.refuse(name, inWords(value), `${inWords(allowed)}, because ${why}`);
    }
  }

  refuse(name: string, found: string, allowed: string): never {
    refuse(this.file, `key ${quote(this.path + name)}`, `must be ${allowed} (got ${found})`);
  }

  refuseValue(name: string, allowed: string): never {
    this.refuse(name, inWords(this.get(name)), allowed);
  }

  with(values: JsonObject): this {
    return new Fields(this.file, { ...this.object, ...values }, this.path) as this;
  }

  withDefaults(values: JsonObject): this {
    const known = Object.entries(this.object).filter(([, value]) => value !== null);
    return new Fields(this.file, { ...values, ...Object.fromEntries(known) }, this.path) as this;
  }
}
