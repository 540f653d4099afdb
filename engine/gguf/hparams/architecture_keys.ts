import { GgufError, quote } from "../errors.ts";
import { byteOf, inWords } from "../metadata.ts";
import type { Metadata } from "../types.ts";

const MAX_WINDOW = 16_777_216;
const MAX_SCALE = 1e9;
const MAX_ROPE_BASE = 1e15;

/** Looks up keys named `{architecture}.{name}`. */
export class ArchitectureKeys {
  constructor(readonly metadata: Metadata, private readonly architecture: string) {}

  /** Returns the keys of the architecture that the file names. */
  static of(metadata: Metadata): ArchitectureKeys {
    return new ArchitectureKeys(metadata, metadata.getString("general.architecture"));
  }

  name(name: string): string {
    return `${this.architecture}.${name}`;
  }

  has(name: string): boolean {
    return this.metadata.has(this.name(name));
  }

  /** Returns an integer from 1 to `max`. */
  count(name: string, max: number, fallback?: number): number {
    const value = this.metadata.getCount(this.name(name), fallback);
    if (value < 1 || value > max) this.refuse(name, String(value), `1 to ${max}`);
    return value;
  }

  /** Like `count`, but the key may hold an array with one value per layer. All its values must be equal. */
  uniformCount(name: string, max: number, layers: number, fallback?: number): number {
    const counts = this.#arrayOf(name, layers);
    if (!counts) return this.count(name, max, fallback);
    const first = counts[0];
    const other = counts.find((count) => count !== first);
    if (other !== undefined) this.refuse(name, `${first} and ${other}`, "the same value for all layers");
    if (!Number.isSafeInteger(first) || first < 1 || first > max) {
      this.refuse(name, String(first), `1 to ${max}`);
    }
    return first;
  }

  /**
   * Returns an integer from `least` to `max` for each layer. The key holds one value for all layers, or an
   * array with one per layer.
   */
  perLayer(
    name: string,
    { layers, max, least = 1, fallback }: { layers: number; max: number; least?: number; fallback?: number },
  ): number[] {
    const counts = this.#arrayOf(name, layers);
    if (!counts) {
      const count = this.metadata.getCount(this.name(name), fallback);
      if (count < least || count > max) this.refuse(name, String(count), `${least} to ${max}`);
      return Array<number>(layers).fill(count);
    }
    const wrong = counts.find((count) => !Number.isSafeInteger(count) || count < least || count > max);
    if (wrong !== undefined) this.refuse(name, String(wrong), `${least} to ${max} in each layer`);
    return counts;
  }

  /**
   * Returns a key's array of one number per layer; undefined where the key is missing or holds a single
   * value.
   */
  #arrayOf(name: string, layers: number): number[] | undefined {
    const value = this.metadata.entries.get(this.name(name));
    if (typeof value !== "object") return undefined;
    const counts = Array.from(this.metadata.getNumbers(this.name(name))!);
    if (counts.length === layers) return counts;
    this.refuse(name, inWords(value), `a number, or an array of ${layers}, one for each layer`);
  }

  /**
   * Returns which layers have a window. The key holds a boolean per layer, or the number of layers in a
   * period; `period` is the default. The last layer of a period has no window, or its first with `fullFirst`.
   */
  windowLayers(
    layers: number,
    { period, fullFirst = false }: { period?: number; fullFirst?: boolean } = {},
  ): boolean[] {
    const name = "attention.sliding_window_pattern";
    const value = this.metadata.entries.get(this.name(name));
    if (typeof value !== "object") {
      const length = this.count(name, layers < 1024 ? 1024 : layers, period);
      return Array.from({ length: layers }, (_, i) => i % length !== (fullFirst ? 0 : length - 1));
    }
    return this.#flagsOf(name, layers, "a number, or an array");
  }

  /** Returns a boolean per layer, all true where the key is missing. */
  flags(name: string, layers: number): boolean[] {
    return this.has(name) ? this.#flagsOf(name, layers, "an array") : Array<boolean>(layers).fill(true);
  }

  #flagsOf(name: string, layers: number, forms: string): boolean[] {
    const value = this.metadata.entries.get(this.name(name));
    const flags = typeof value === "object" ? Array.from(value as ArrayLike<unknown>, Number) : [];
    if (flags.length === layers && flags.every((flag) => flag === 0 || flag === 1)) return flags.map(Boolean);
    this.refuse(name, inWords(value!), `${forms} of ${layers} booleans, one for each layer`);
  }

  /** Returns the window in tokens, the row itself included; 0 without the key. */
  window(): number {
    const name = "attention.sliding_window";
    return this.has(name) && this.metadata.getCount(this.name(name)) > 0 ? this.count(name, MAX_WINDOW) : 0;
  }

  /** Returns a factor above 0; `fallback` where the key is missing or 0. */
  scale(name: string, fallback: number): number {
    return this.metadata.getNumber(this.name(name), 0) === 0 ? fallback : this.positive(name, MAX_SCALE);
  }

  /** Returns the magnitude to which tanh bounds values; undefined where the key is missing or 0. */
  softcap(name: string): number | undefined {
    return this.metadata.getNumber(this.name(name), 0) === 0 ? undefined : this.positive(name, MAX_SCALE);
  }

  /** Returns the rotary base: `rope.freq_base`, or with "_swa" the base of layers with a window. */
  ropeBase(fallback: number, suffix: "" | "_swa" = ""): number {
    return this.positive(`rope.freq_base${suffix}`, MAX_ROPE_BASE, fallback);
  }

  /** Returns a number above 0 and at most `max`. */
  positive(name: string, max: number, fallback?: number): number {
    const value = this.metadata.getNumber(this.name(name), fallback);
    if (!(value > 0 && value <= max)) this.refuse(name, String(value), `above 0 and at most ${max}`);
    return value;
  }

  /** Returns how many of the last layers only draft tokens. */
  draftingLayers(layers: number): number {
    const name = "nextn_predict_layers";
    const drafting = this.metadata.getCount(this.name(name), 0);
    if (drafting >= layers) this.refuse(name, String(drafting), `fewer than the ${layers} layers`);
    return drafting;
  }

  /** Returns how many of the first layers have no experts. */
  leadingDenseLayers(layers: number, fallback?: number): number {
    const name = "leading_dense_block_count";
    const dense = this.metadata.getCount(this.name(name), fallback);
    if (dense > layers) this.refuse(name, String(dense), `0 to ${layers}, the number of layers`);
    return dense;
  }

  /**
   * Throws GgufError for a mixture of experts, in an architecture that compy supports without experts only.
   */
  refuseExperts(): void {
    const experts = this.metadata.getCount(this.name("expert_count"), 0);
    if (experts === 0) return;
    const detail = "0, because mixtures of experts of this architecture are not supported";
    this.refuse("expert_count", String(experts), detail);
  }

  /** Throws GgufError for attention in both directions, in an architecture that compy computes causally. */
  refuseBothDirections(): void {
    if (!this.metadata.getBoolean(this.name("attention.causal"), true)) {
      this.refuse("attention.causal", "false", "true, because only causal attention is supported");
    }
  }

  /** Throws GgufError for causal attention, in an architecture that compy computes in both directions. */
  refuseOneDirection(): void {
    if (this.metadata.getBoolean(this.name("attention.causal"), false)) {
      this.refuse("attention.causal", "true", "false, because this architecture attends in both directions");
    }
  }

  refuse(name: string, found: string, allowed: string): never {
    const key = this.name(name);
    const place = { byte: byteOf(this.metadata, key), field: `key ${quote(key)}` };
    throw new GgufError("GGUF_HPARAM", `must be ${allowed} (got ${found})`, place);
  }
}
