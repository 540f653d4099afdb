/** Granite 3 and 4: Llama's decoder with multipliers. Source: Hugging Face transformers, models/granite. */
import type { Hparams } from "../../gguf/hparams/hparams.ts";
import type { PlanBuilder } from "../../plan/builder.ts";
import { ropeTable } from "../../plan/ops/rope_table.ts";
import { type Config, type KeyValue, MAX } from "../checkpoint.ts";
import { decoderKeys, type Family } from "../family.ts";
import type { DecoderTraits } from "../parts/decoder.ts";
import { addGraniteMixture, readGraniteExperts } from "../parts/granite_experts.ts";
import { readSlidingLayers } from "../parts/layer_types.ts";
import type { Rope } from "../parts/rope.ts";
import { type LayerAttention, readWindows, windowed } from "../parts/windows.ts";

const ending: Family["ending"] = (keys) => ({ logits: { scale: 1 / keys.scale("logit_scale", 1) } });

/** Dense models: multipliers on the embedding, on residual additions and on attention scores, and a divisor of the logits. */
export const GRANITE: Family = {
  architecture: "granite",
  traits: { interleavedRope: true },
  ending,
  read(b, h) {
    // llama.cpp uses this key to mark models without positions.
    const hasPositions = b.file.metadata.getBoolean(decoderKeys(b).name("rope.scaling.finetuned"), true);
    return { ...multiplied(b, h), hasPositions: () => hasPositions };
  },
  checkpoints: { granite: { entries: graniteMultipliers } },
};

/** Granite 3's mixtures of experts: Granite's decoder with experts in every feed-forward block. */
export const GRANITEMOE: Family = {
  ...GRANITE,
  architecture: "granitemoe",
  allows: { experts: true },
  checkpoints: undefined,
};

/** Layers per period, where config.json does not list the layers. The first layer of a period has no window. */
const PERIOD = 4;

/**
 * Granite models with windows, dense or mixtures: heads have sinks, and the file says which layers have a
 * window and which have positions. Source: Hugging Face transformers, models/granite_swa and granitemoe_swa.
 */
export const GRANITE_SWA: Family = {
  architecture: "granite_swa",
  traits: { interleavedRope: true, sinks: true },
  allows: { experts: true },
  ending,
  read: (b, h, rope) => ({ ...multiplied(b, h), perLayer: readLayers(b, h, rope) }),
  checkpoints: {
    granite_swa: {
      scalings: ["linear"],
      entries(config, { layers, rope }) {
        const turned = readRotated(config, layers, rope.base);
        return [
          ...graniteMultipliers(config),
          ["attention.sliding_window", "UINT32", config.count("sliding_window", MAX.context)],
          [
            "attention.sliding_window_pattern",
            "BOOL",
            readSlidingLayers(config, layers, (layer) => layer % PERIOD !== 0),
          ],
          ...turned ? [["attention.rope_pattern", "BOOL", turned] as const] : [],
        ];
      },
    },
  },
};

/** Returns which layers have positions, if config.json says so: those whose rotary base is not 0. */
function readRotated(config: Config, layers: number, base: number): boolean[] | undefined {
  const name = "layer_rope_theta";
  const bases = config.get(name);
  if (bases === undefined) return undefined;
  if (Array.isArray(bases) && bases.length === layers && bases.every((one) => one === base || one === 0)) {
    return bases.map((one) => one === base);
  }
  config.refuseValue(name, `${base} or 0 for each of the ${layers} layers`);
}

function readLayers(b: PlanBuilder, h: Hparams, rope: Rope): LayerAttention[] {
  const keys = windowed(b);
  const windows = readWindows(keys, h, h.blockCount, { fullFirst: true });
  const turned = keys.flags("attention.rope_pattern", h.blockCount);
  const table = turned.includes(true) ? ropeTable(b, rope.angles()) : undefined;
  return windows.map((window, layer) => ({ window, table: turned[layer] ? table : undefined }));
}

function multiplied(b: PlanBuilder, h: Hparams): DecoderTraits {
  const keys = decoderKeys(b);
  const residual = keys.scale("residual_scale", 1);
  const experts = readGraniteExperts(b.file, h, keys);
  return {
    scales: {
      embedding: keys.scale("embedding_scale", 1),
      residual,
      attention: keys.scale("attention.scale", 1 / Math.sqrt(h.keyLength)),
    },
    feedForward: experts &&
      ((x, addTo, name) => addGraniteMixture(b, x, experts, name, { addTo, times: residual })),
  };
}

/** Returns the file's keys for a checkpoint's multipliers. */
export function graniteMultipliers(config: Config): KeyValue[] {
  const names = {
    embedding_scale: "embedding_multiplier",
    residual_scale: "residual_multiplier",
    "attention.scale": "attention_multiplier",
    logit_scale: "logits_scaling",
  };
  return Object.entries(names).map(([key, name]) => [key, "FLOAT32", config.positive(name, MAX.scale, 1)]);
}

export const GRANITES: readonly Family[] = [GRANITE, GRANITEMOE, GRANITE_SWA];
