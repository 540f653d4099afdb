import { GgufError, quote } from "./errors.ts";
import type { Metadata, MetadataValue } from "./types.ts";

/** The metadata of a GGUF file, with each value's byte offset for error messages. */
export class MetadataMap implements Metadata {
  /** `positions`: byte offset of each key's value; absent for metadata made in memory. */
  constructor(
    readonly entries: ReadonlyMap<string, MetadataValue>,
    private readonly positions: ReadonlyMap<string, number> = new Map(),
  ) {}

  has(key: string): boolean {
    return this.entries.has(key);
  }

  getNumber(key: string, fallback?: number): number {
    const value = this.#get(key, fallback, "a number");
    if (typeof value !== "number" || !Number.isFinite(value)) this.#refuse(key, value, "a finite number");
    return value;
  }

  getCount(key: string, fallback?: number): number {
    const value = this.#get(key, fallback, "an integer >= 0");
    if (typeof value !== "number" || !Number.isSafeInteger(value) || value < 0) {
      this.#refuse(key, value, "an integer >= 0");
    }
    return value;
  }

  getString(key: string, fallback?: string): string {
    const value = this.#get(key, fallback, "a string");
    if (typeof value !== "string") this.#refuse(key, value, "a string");
    return value;
  }

  getBoolean(key: string, fallback?: boolean): boolean {
    const value = this.#get(key, fallback, "a boolean");
    if (typeof value !== "boolean") this.#refuse(key, value, "a boolean");
    return value;
  }

  getStrings(key: string): string[] | undefined {
    const value = this.entries.get(key);
    if (value === undefined) return undefined;
    // All elements of an array have the same type, so checking the first suffices.
    if (!Array.isArray(value) || (value.length > 0 && typeof value[0] !== "string")) {
      this.#refuse(key, value, "an array of strings");
    }
    return value as string[];
  }

  getNumbers(key: string): ArrayLike<number> | undefined {
    const value = this.entries.get(key);
    if (value === undefined) return undefined;
    if (ArrayBuffer.isView(value)) return value;
    if (!Array.isArray(value)) this.#refuse(key, value, "an array of numbers");
    return (value as unknown[]).map((element) => {
      const number = typeof element === "bigint" ? Number(element) : NaN;
      if (!Number.isSafeInteger(number)) this.#refuse(key, value, "an array of numbers up to 2^53");
      return number;
    });
  }

  /** Returns the byte offset of a metadata key's value in the file. */
  byteOf(key: string): number | undefined {
    return this.positions.get(key);
  }

  #get(key: string, fallback: MetadataValue | undefined, allowed: string): MetadataValue {
    const value = this.entries.get(key) ?? fallback;
    if (value === undefined) {
      throw new GgufError("GGUF_HPARAM", `missing; must be ${allowed}`, { field: `key ${quote(key)}` });
    }
    return value;
  }

  #refuse(key: string, value: MetadataValue, allowed: string): never {
    const place = { byte: this.byteOf(key), field: `key ${quote(key)}` };
    throw new GgufError("GGUF_HPARAM", `must be ${allowed} (got ${inWords(value)})`, place);
  }
}

/** Returns the byte offset of a key's value; undefined for metadata that is not from a file. */
export function byteOf(metadata: Metadata, key: string): number | undefined {
  return metadata instanceof MetadataMap ? metadata.byteOf(key) : undefined;
}

/** Returns a short description of a metadata value, for messages. */
export function inWords(value: MetadataValue): string {
  if (typeof value === "string") return `the string ${quote(value)}`;
  if (typeof value === "object") return `an array of ${value.length} elements`;
  return String(value);
}
