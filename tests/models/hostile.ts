/** Hostile values for metadata keys, and a recorder of the keys that a reader asks for. */
import type { Metadata, MetadataValue } from "../../engine/gguf/types.ts";

export const VALUES: readonly MetadataValue[] = [
  ...[0, 1, 2, 3, 7, 16, 31, 64, 1000, 4096, 2 ** 31, 2 ** 32 - 1, 2 ** 53 - 1],
  ...[-1, 0.5, 1e-30, 1e30, NaN, Infinity, -Infinity],
  ...[2n ** 63n, -(2n ** 63n), "", "none", "yarn", true, false, [] as string[], ["x"], [true, false]],
  ...[Int32Array.of(), Int32Array.of(0), Int32Array.of(-1, 3, 5, 2), new Int32Array(70_000).fill(1)],
  ...[Float32Array.of(NaN, 0, -1, 2), new Uint32Array(3).fill(2 ** 31)],
];

/** Records the keys that a reader asks for. */
export class Watched implements Metadata {
  readonly asked = new Set<string>();
  constructor(private readonly metadata: Metadata) {}
  get entries() {
    return this.metadata.entries;
  }
  #note<T>(key: string, value: T): T {
    this.asked.add(key);
    return value;
  }
  has = (key: string) => this.#note(key, this.metadata.has(key));
  getNumber = (key: string, fallback?: number) => this.#note(key, this.metadata.getNumber(key, fallback));
  getCount = (key: string, fallback?: number) => this.#note(key, this.metadata.getCount(key, fallback));
  getString = (key: string, fallback?: string) => this.#note(key, this.metadata.getString(key, fallback));
  getBoolean = (key: string, fallback?: boolean) => this.#note(key, this.metadata.getBoolean(key, fallback));
  getStrings = (key: string) => this.#note(key, this.metadata.getStrings(key));
  getNumbers = (key: string) => this.#note(key, this.metadata.getNumbers(key));
}
