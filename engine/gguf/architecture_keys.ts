import { GgufError, quote } from "./errors.ts";
import { byteOf, inWords } from "./metadata.ts";
import type { Metadata } from "./types.ts";

/** Look-ups of `{architecture}.{name}`. */
export class ArchitectureKeys {
  constructor(readonly metadata: Metadata, private readonly architecture: string) {}

  name(name: string): string {
    return `${this.architecture}.${name}`;
  }

  has(name: string): boolean {
    return this.metadata.has(this.name(name));
  }

  /** An integer from 1 to `max`. */
  count(name: string, max: number, fallback?: number): number {
    const value = this.metadata.getCount(this.name(name), fallback);
    if (value < 1 || value > max) this.refuse(name, String(value), `1 to ${max}`);
    return value;
  }

  /** Like `count`, of a key that may have an array of one value a layer, which must then be all the same. */
  uniformCount(name: string, max: number, layers: number, fallback?: number): number {
    const value = this.metadata.entries.get(this.name(name));
    if (typeof value !== "object") return this.count(name, max, fallback);
    const counts = this.metadata.getNumbers(this.name(name))!;
    if (counts.length !== layers) {
      this.refuse(name, inWords(value), `a number, or an array of ${layers}, one for each layer`);
    }
    const first = counts[0];
    for (let i = 0; i < counts.length; i++) {
      if (counts[i] !== first) {
        this.refuse(name, `${first} and ${counts[i]}`, "the same value for all layers");
      }
    }
    if (!Number.isSafeInteger(first) || first < 1 || first > max) {
      this.refuse(name, String(first), `1 to ${max}`);
    }
    return first;
  }

  /** A number above 0 and at most `max`. */
  positive(name: string, max: number, fallback?: number): number {
    const value = this.metadata.getNumber(this.name(name), fallback);
    if (!(value > 0 && value <= max)) this.refuse(name, String(value), `above 0 and at most ${max}`);
    return value;
  }

  /** Refuses a mixture of experts, of an architecture that compy has without them only. */
  refuseExperts(): void {
    const experts = this.metadata.getCount(this.name("expert_count"), 0);
    if (experts === 0) return;
    const detail = "0, because mixtures of experts of this architecture are not supported";
    this.refuse("expert_count", String(experts), detail);
  }

  /** Keys that change what a decoder computes, and that compy does not compute. */
  refuseUnsupported(): void {
    if (!this.metadata.getBoolean(this.name("attention.causal"), true)) {
      this.refuse("attention.causal", "false", "true, because only causal attention is supported");
    }
  }

  refuse(name: string, found: string, allowed: string): never {
    const key = this.name(name);
    const place = { byte: byteOf(this.metadata, key), field: `key ${quote(key)}` };
    throw new GgufError("GGUF_HPARAM", `must be ${allowed} (got ${found})`, place);
  }
}
