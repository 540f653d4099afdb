import {
  type Config,
  CONFIG_KEYS,
  type ConfigKeys,
  type DecoderConfig,
  inWords,
  type Llama3Scaling,
  MAX,
  type RopeConfig,
  type Scaling,
  type YarnScaling,
} from "../engine/architectures/checkpoint.ts";
import { quote } from "../engine/gguf/errors.ts";
import { oneOf } from "./checkpoint/json.ts";
import { type Entry, entry } from "./write/metadata.ts";

const USUAL_SCALINGS: readonly Scaling[] = ["linear", "llama3"];

/** Features of a family that most families lack. */
interface DecoderOptions {
  readonly keys?: ConfigKeys;
  /** Whether attention may have biases. */
  readonly biases?: boolean;
  /** Supported ways to extend the context; by default linear and Llama 3's. */
  readonly scalings?: readonly Scaling[];
  /** Whether YaRN's two multipliers may be any equal numbers; by default they must be 1. */
  readonly anyMultiplier?: boolean;
  /** Whether to accept `truncate: false`, which keeps the ends of YaRN's blend unrounded; GGUF's readers round them. */
  readonly anyTruncation?: boolean;
  /** The feed-forward block's activation in config.json; by default SiLU. */
  readonly activation?: string;
  /** Number of layers, for a config.json that lists its layers instead. */
  readonly layers?: number;
  /** Rotary base where config.json has none; by default 10,000. */
  readonly ropeBase?: number;
  /** The rotated part of a head where config.json has none; by default all. */
  readonly partialRotary?: number;
}

/** Reads the keys that all decoders share. Throws ConvertError for a missing or unsupported one. */
export function readDecoderConfig(config: Config, options: DecoderOptions = {}): DecoderConfig {
  const keys = { ...CONFIG_KEYS, ...options.keys };
  config.mustBe(keys.activation, options.activation ?? "silu", "no other activation is supported");
  config.mustBe("use_sliding_window", false, "sliding windows are not computed");
  if (!options.biases) config.mustBe("attention_bias", false, "biases of attention are not converted");
  config.mustBe("mlp_bias", false, "biases of the feed-forward block are not converted");
  const hidden = config.count("hidden_size", MAX.hidden);
  const heads = config.count("num_attention_heads", MAX.heads);
  const kvHeads = config.count("num_key_value_heads", heads, heads);
  if (heads % kvHeads !== 0) {
    config.refuse("num_key_value_heads", String(kvHeads), `a divisor of the ${heads} heads`);
  }
  const headDim = config.count(keys.headDim, MAX.headDim, hidden % heads === 0 ? hidden / heads : undefined);
  const rope = readRope(config, headDim, options);
  return {
    layers: config.count(keys.layers, MAX.layers, options.layers),
    hidden,
    feedForward: config.count(keys.feedForward, MAX.feedForward),
    heads,
    kvHeads,
    headDim,
    valueDim: options.keys?.valueDim ? config.count(options.keys.valueDim, headDim) : undefined,
    vocabulary: config.count("vocab_size", MAX.vocabulary),
    context: extended(config.count("max_position_embeddings", MAX.context), rope),
    epsilon: config.positive(keys.epsilon, 1),
    rope,
  };
}

/** Returns the context length, extended by YaRN's factor if config.json states only the trained length. */
function extended(context: number, { scaling }: RopeConfig): number {
  if (scaling.type !== "yarn") return context;
  return Math.min(MAX.context, Math.max(context, Math.floor(scaling.originalContext * scaling.factor)));
}

/** Reads the rotary keys, from `rope_parameters` or from the older `rope_scaling` and its neighbours. */
function readRope(
  config: Config,
  headDim: number,
  options: DecoderOptions,
): RopeConfig {
  const { partialRotary = 1, ropeBase = 10_000 } = options;
  const fields = config.fields("rope_parameters") ?? config.fields("rope_scaling") ?? config;
  const basesIn = fields.has("rope_theta") ? fields : config;
  const partIn = fields.has("partial_rotary_factor") ? fields : config;
  const rotated = headDim * partIn.positive("partial_rotary_factor", 1, partialRotary);
  if (!Number.isInteger(rotated) || rotated % 2 !== 0) {
    partIn.refuse(
      "partial_rotary_factor",
      `${rotated} dimensions`,
      "one that rotates an even number of dimensions",
    );
  }
  const base = basesIn.positive("rope_theta", MAX.base, ropeBase);
  return {
    base,
    rotated,
    scaling: readScaling(fields === config ? undefined : fields, rotated / 2, options),
    fields,
  };
}

function readScaling(
  fields: Config | undefined,
  pairs: number,
  options: DecoderOptions,
): RopeConfig["scaling"] {
  const { scalings = USUAL_SCALINGS } = options;
  if (!fields) return { type: "none" };
  const key = fields.has("rope_type") ? "rope_type" : "type";
  const name = fields.string(key, "default");
  const type = name === "su" ? "longrope" : name;
  if (type !== "yarn" && type !== "longrope" && fields.has("attention_factor")) {
    refuseMagnitude(fields, "absent");
  }
  if (type === "default" || type === "mrope") return { type: "none" };
  switch (scalings.find((scaling) => scaling === type)) {
    case "yarn":
      return readYarn(fields, options);
    case "longrope": {
      const [short, long] = ["short_factor", "long_factor"].map((name) => readFactors(fields, name, pairs));
      return { type: "longrope", short, long };
    }
    case "linear":
      return { type: "linear", factor: fields.positive("factor", MAX.factor) };
    case "llama3":
      return {
        type: "llama3",
        factor: fields.positive("factor", MAX.factor),
        lowFrequency: fields.positive("low_freq_factor", MAX.factor),
        highFrequency: fields.positive("high_freq_factor", MAX.factor),
        originalContext: fields.count("original_max_position_embeddings", MAX.context),
      };
    case undefined:
      return fields.refuse(key, quote(name), oneOf(["default", ...scalings]));
  }
}

function refuseMagnitude(fields: Config, allowed: string): never {
  const [key, why] = ["attention_factor", "because the scaling type determines the magnitude"];
  fields.refuse(key, inWords(fields.get(key)), `${allowed}, ${why}`);
}

/** Allowed difference between the magnitude in config.json and YaRN's own. */
const MAGNITUDE_ERROR = 1e-6;

function readYarn(fields: Config, { anyMultiplier, anyTruncation }: DecoderOptions): YarnScaling {
  if (!anyTruncation) fields.mustBe("truncate", true, "GGUF's readers round the ends of the blend");
  const factor = fields.positive("factor", MAX.factor);
  const multiplier = readMultiplier(fields, anyMultiplier);
  // Source: "YaRN" (arXiv 2309.00071), section 3.3.
  const magnitude = multiplier !== undefined || factor <= 1 ? 1 : 0.1 * Math.log(factor) + 1;
  const given = fields.positive("attention_factor", MAX.factor, magnitude);
  if (Math.abs(given - magnitude) > MAGNITUDE_ERROR) refuseMagnitude(fields, String(magnitude));
  return {
    type: "yarn",
    factor,
    originalContext: fields.count("original_max_position_embeddings", MAX.context),
    betaFast: fields.positive("beta_fast", MAX.factor, 32),
    betaSlow: fields.positive("beta_slow", MAX.factor, 1),
    multiplier,
  };
}

/**
 * Returns YaRN's multiplier. Two equal ones cancel the magnitude; most GGUF readers expect 1. `mscale` alone has no
 * effect.
 */
function readMultiplier(fields: Config, any?: boolean): number | undefined {
  const [own, all] = ["mscale", "mscale_all_dim"];
  if (!any) { for (const name of [own, all]) fields.mustBe(name, 1, "GGUF's readers support no other"); }
  if (!fields.has(all)) return undefined;
  if (fields.get(own) !== fields.get(all)) {
    const allowed = `${inWords(fields.get(all))}, as the other is`;
    fields.refuse(own, fields.has(own) ? inWords(fields.get(own)) : "nothing", allowed);
  }
  return fields.positive(all, MAX.factor);
}

function readFactors(fields: Config, name: string, pairs: number): number[] {
  const factors = fields.get(name);
  const valid = Array.isArray(factors) && factors.length === pairs &&
    factors.every((factor) => typeof factor === "number" && factor > 0 && factor <= MAX.factor);
  if (!valid) fields.refuse(name, inWords(factors), `${pairs} numbers above 0, one for each rotated pair`);
  return factors as number[];
}

/** Returns the GGUF keys that all decoders share. */
export function decoderEntries(
  architecture: string,
  config: DecoderConfig,
  epsilon: "layer_norm_rms_epsilon" | "layer_norm_epsilon" = "layer_norm_rms_epsilon",
): Entry[] {
  const { rope } = config;
  const key = (name: string) => `${architecture}.${name}`;
  const entries = [
    entry(key("block_count"), "UINT32", config.layers),
    entry(key("context_length"), "UINT32", config.context),
    entry(key("embedding_length"), "UINT32", config.hidden),
    entry(key("feed_forward_length"), "UINT32", config.feedForward),
    entry(key("attention.head_count"), "UINT32", config.heads),
    entry(key("attention.head_count_kv"), "UINT32", config.kvHeads),
    entry(key("attention.key_length"), "UINT32", config.headDim),
    entry(key("attention.value_length"), "UINT32", config.valueDim ?? config.headDim),
    entry(key(`attention.${epsilon}`), "FLOAT32", config.epsilon),
    entry(key("rope.dimension_count"), "UINT32", rope.rotated),
    entry(key("rope.freq_base"), "FLOAT32", rope.base),
    entry(key("vocab_size"), "UINT32", config.vocabulary),
  ];
  if (rope.scaling.type === "linear") {
    entries.push(entry(key("rope.scaling.type"), "STRING", "linear"));
    entries.push(entry(key("rope.scaling.factor"), "FLOAT32", rope.scaling.factor));
  }
  if (rope.scaling.type === "yarn") {
    const { factor, originalContext, betaFast, betaSlow, multiplier } = rope.scaling;
    entries.push(
      entry(key("rope.scaling.type"), "STRING", "yarn"),
      entry(key("rope.scaling.factor"), "FLOAT32", factor),
      entry(key("rope.scaling.original_context_length"), "UINT32", originalContext),
      entry(key("rope.scaling.yarn_beta_fast"), "FLOAT32", betaFast),
      entry(key("rope.scaling.yarn_beta_slow"), "FLOAT32", betaSlow),
      ...multiplier === undefined
        ? []
        : [entry(key("rope.scaling.yarn_log_multiplier"), "FLOAT32", multiplier)],
    );
  }
  return entries;
}

/**
 * Returns the divisor of each rotary frequency: 1 for wavelengths much shorter than the original context, the factor
 * for longer ones, and a blend between them. Source: Llama 3.1's published reference code.
 */
export function llama3Factors({ base, rotated }: RopeConfig, scaling: Llama3Scaling): Float32Array {
  const { factor, lowFrequency, highFrequency, originalContext } = scaling;
  return Float32Array.from({ length: rotated / 2 }, (_, i) => {
    const wavelength = 2 * Math.PI * base ** (2 * i / rotated);
    const turns = originalContext / wavelength;
    if (turns > highFrequency) return 1;
    if (turns < lowFrequency) return factor;
    const blend = (turns - lowFrequency) / (highFrequency - lowFrequency);
    return 1 / ((1 - blend) / factor + blend);
  });
}
