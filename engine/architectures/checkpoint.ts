/** Descriptions of the checkpoints that conversion reads, one for each model family. convert/ does the conversion. */
import { quote } from "../gguf/errors.ts";
import type { ValueType } from "../gguf/key_values.ts";
import type { Traits } from "./traits.ts";

/** Maximum values for numbers in config.json, like those of the GGUF reader. */
export const MAX = {
  layers: 1024,
  context: 16_777_216,
  hidden: 131_072,
  feedForward: 1_048_576,
  heads: 1024,
  headDim: 4096,
  vocabulary: 1_048_576,
  base: 1e15,
  factor: 65_536,
  scale: 1e9,
} as const;

/** An object of config.json. Its methods throw ConvertError for a missing, wrong or disallowed value. */
export interface Config {
  readonly object: Readonly<Record<string, unknown>>;
  get(name: string): unknown;
  /** Returns whether the key of config.json has a value other than null. */
  has(name: string): boolean;
  /** Returns the object under a key of config.json; undefined if absent. */
  fields(name: string): Config | undefined;
  string(name: string, fallback?: string): string;
  boolean(name: string, fallback: boolean): boolean;
  /** Returns the key's whole number from 1 to `max`. */
  count(name: string, max: number, fallback?: number): number;
  /** Returns the key's number, above 0 and at most `max`. */
  positive(name: string, max: number, fallback?: number): number;
  /** Throws ConvertError if the key's value is not the allowed one. */
  mustBe(name: string, allowed: unknown, why: string): void;
  /** Throws ConvertError for the key's value. `found` describes the value in words. */
  refuse(name: string, found: string, allowed: string): never;
  /** Throws ConvertError that quotes the key's value. */
  refuseValue(name: string, allowed: string): never;
  /** Returns the object with some values replaced. */
  with(values: Config["object"]): this;
  /** Returns the object with defaults for missing keys. */
  withDefaults(values: Config["object"]): this;
}

/** Throws ConvertError unless `layer_types` gives windows to all layers except the last of each `period`. */
export function refuseOtherWindows(config: Config, period: number): void {
  const types = config.get("layer_types");
  if (types === undefined) return;
  const layers = config.count("num_hidden_layers", MAX.layers);
  const usual = (type: unknown, i: number) =>
    type === (i % period === period - 1 ? "full_attention" : "sliding_attention");
  if (Array.isArray(types) && types.length === layers && types.every(usual)) return;
  const windows = `full_attention in every ${ORDINALS[period]} layer, sliding_attention in the others`;
  config.refuseValue("layer_types", period === 1 ? `full_attention in all ${layers} layers` : windows);
}

const ORDINALS: Readonly<Record<number, string>> = { 2: "second", 4: "fourth", 6: "sixth" };

export function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Returns a short description of an untrusted value, for a message. */
export function inWords(value: unknown): string {
  if (value === undefined) return "nothing";
  if (typeof value === "string") return quote(value);
  if (Array.isArray(value)) return `an array of ${value.length}`;
  return isObject(value) ? "an object" : String(value);
}

/** Keys of config.json that some families name differently. */
export const CONFIG_KEYS = {
  layers: "num_hidden_layers",
  activation: "hidden_act",
  epsilon: "rms_norm_eps",
  feedForward: "intermediate_size",
  headDim: "head_dim",
};
export type ConfigKeys = Partial<Readonly<typeof CONFIG_KEYS>> & {
  /** Key of the number of dimensions of a value head; by default a value head is as wide as a key head. */
  readonly valueDim?: string;
};

/** What config.json says about a dense decoder. */
export interface DecoderConfig {
  readonly layers: number;
  readonly hidden: number;
  readonly feedForward: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly valueDim?: number;
  readonly vocabulary: number;
  readonly context: number;
  readonly epsilon: number;
  readonly rope: RopeConfig;
}

export interface RopeConfig {
  readonly base: number;
  /** Rotated dimensions of a head. */
  readonly rotated: number;
  readonly scaling:
    | { readonly type: "none" }
    | { readonly type: "linear"; readonly factor: number }
    | YarnScaling
    | Llama3Scaling
    | LongRopeScaling;
  /** The object that holds the rotary keys. */
  readonly fields: Config;
}

export interface Llama3Scaling {
  readonly type: "llama3";
  readonly factor: number;
  readonly lowFrequency: number;
  readonly highFrequency: number;
  readonly originalContext: number;
}

/** Divisors of each rotary frequency, for contexts up to the original length and for longer ones (LongRoPE). */
export interface LongRopeScaling {
  readonly type: "longrope";
  readonly short: readonly number[];
  readonly long: readonly number[];
}

export interface YarnScaling {
  readonly type: "yarn";
  readonly factor: number;
  readonly originalContext: number;
  readonly betaFast: number;
  readonly betaSlow: number;
  /** Multiplier that cancels part of YaRN's magnitude; undefined: nothing is cancelled. */
  readonly multiplier?: number;
}

export type Scaling = Exclude<RopeConfig["scaling"]["type"], "none">;

/** A metadata entry of the GGUF file; the key lacks the architecture's prefix. */
export type KeyValue = readonly [
  name: string,
  type: Exclude<ValueType, "ARRAY">,
  value: number | boolean | string | readonly (number | boolean | string)[],
];

/** Heads and feed-forward width of one layer, where layers differ. */
export interface LayerWidths {
  readonly heads: number;
  readonly kvHeads: number;
  readonly feedForward: number;
}

/**
 * How checkpoints of one `model_type` differ from Llama's: module names, keys of config.json and the order of
 * rows.
 */
export interface Checkpoint {
  /** Module names by GGUF tensor name, where they differ from Llama's. They lack the layer's prefix. */
  readonly modules?: Readonly<Record<string, string>>;
  /** Prefix of the module names; by default found in the checkpoint. */
  readonly prefix?: string;
  /** One matrix for q, k and v, in which a KV head's rows follow those of its query heads. */
  readonly grouped?: string;
  /** Whether the checkpoint has separate modules for q, k and v, which become one tensor. */
  readonly apart?: boolean;
  /** Whether the checkpoint stores the matrices of layers transposed: columns first. */
  readonly transposed?: boolean;
  /** Whether the rows of queries and keys are already in the order of pairs that GGUF rotates. */
  readonly pairsKept?: boolean;
  /** Whether the checkpoint stores norm weights minus 1: in all norms, or only in the layers' norms. */
  readonly shiftedNorms?: boolean | "of layers";
  /** Returns vectors that only the GGUF file has: by tensor name, the value of all their elements. */
  readonly constants?: (config: Config) => Readonly<Record<string, number>>;
  readonly keys?: ConfigKeys;
  /** The activation's name in config.json, where it differs from the usual one. */
  readonly activation?: string;
  /** Supported ways to extend the context; by default linear scaling and YaRN. */
  readonly scalings?: readonly Scaling[];
  /** YaRN's two multipliers may be any equal numbers; by default they must be 1. */
  readonly anyMultiplier?: boolean;
  /** Rotary base if config.json has none; by default 10,000. */
  readonly ropeBase?: number;
  /** The share of each head that is rotated, if config.json does not say; by default 1. */
  readonly partialRotary?: number;
  /** The model has no output matrix for tokens. */
  readonly encoder?: boolean;
  /** Whether the embedding is also the output matrix, if config.json does not say. */
  readonly tied?: boolean;
  /** Keys of config.json with only one supported value, and why. */
  readonly mustBe?: readonly (readonly [key: string, allowed: unknown, why: string])[];
  /** Returns the value of `general.architecture`, if config.json decides it. */
  readonly architecture?: (config: Config) => string;
  /** Checks config.json, and returns it in the form that `readDecoderConfig` reads. Runs before `mustBe`. */
  readonly prepare?: (config: Config) => Config;
  /** Returns the traits that config.json decides. */
  readonly traits?: (config: Config) => Traits;
  /** Returns each layer's shape, if layers differ. */
  readonly widths?: (config: Config, decoder: DecoderConfig) => LayerWidths[];
  /** Returns further keys of the GGUF file. */
  readonly entries?: (config: Config, decoder: DecoderConfig) => readonly KeyValue[];
}
