/** Decoders with a gate per head, heads that differ between layers, and sigmoid-weighted experts: Step 3.5 and Laguna. */
import type { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import type { Hparams } from "../../gguf/hparams/hparams.ts";
import type { PlanBuilder } from "../../plan/builder.ts";
import { ropeTable } from "../../plan/ops/rope_table.ts";
import { decoderKeys, type Family } from "../family.ts";
import type { LayerAttention } from "../parts/windows.ts";
import { readSigmoidExperts, withExperts } from "./sigmoid_experts.ts";

/** Upper limit of the bounds of SwiGLU. */
const MAX_LIMIT = 1e9;

/**
 * Step 3.5 and 3.7 Flash. Layers without a window rotate half of each head, and Llama 3's factors apply to them. The
 * last layers bound SwiGLU's factors. Sources: Hugging Face transformers, models/step3p7; llama.cpp,
 * src/models/step35.cpp.
 */
export const STEP35: Family = {
  architecture: "step35",
  traits: { headNorms: true, outputGate: { activation: "sigmoid", perHead: true } },
  allows: { experts: true, layersDiffer: true },
  read(b, h, rope) {
    const keys = decoderKeys(b);
    requireHeads(keys, h);
    const { type, factor } = h.ropeScaling;
    if (type !== "none") keys.refuse("rope.scaling.factor", String(factor), "1 in this architecture");
    const experts = readSigmoidExperts(b.file, h, { together: true });
    const [chosen, shared] = ["swiglu_clamp_exp", "swiglu_clamp_shexp"].map((name) =>
      limitsOf(keys, h, name)
    );
    const traits = withExperts(
      b,
      h,
      experts,
      (layer) => ({ chosen: { limit: chosen[layer] }, shared: { limit: shared[layer] } }),
    );
    const rotated = h.ropeDimensionCount / 2;
    if (rotated % 2 !== 0) keys.refuse("rope.dimension_count", String(2 * rotated), "a multiple of 4");
    const base = keys.ropeBase(h.ropeFreqBase, "_swa");
    const full = { table: ropeTable(b, rope.angles({ dimensions: rotated })), rotated };
    const near = { table: ropeTable(b, rope.angles({ base, factors: false })), window: windowOf(keys) };
    const slides = keys.windowLayers(h.blockCount);
    return {
      ...traits,
      perLayer: slides.map((slides) => slides ? near : full),
    };
  },
};

/** Layers per period of Laguna. The first layer of a period has no window. */
const PERIOD = 4;

/**
 * Laguna XS.2, S and M.1. Softplus gates scale the attention output, per head or per column. Only layers without a
 * window use YaRN and partial rotation. Sources: Hugging Face transformers, models/laguna; llama.cpp,
 * src/models/laguna.cpp.
 */
export const LAGUNA: Family = {
  architecture: "laguna",
  traits: { headNorms: true, outputGate: { activation: "softplus", perHead: true } },
  allows: { experts: true, layersDiffer: true },
  read(b, h, rope) {
    const keys = decoderKeys(b);
    requireHeads(keys, h);
    const experts = readSigmoidExperts(b.file, h, { together: true });
    return {
      ...withExperts(b, h, experts),
      outputGate: { activation: "softplus", perHead: gatesAreOfHeads(b, h) },
      perLayer: lagunaLayers(b, h, rope, keys),
    };
  },
};

function lagunaLayers(
  b: PlanBuilder,
  h: Hparams,
  rope: Parameters<NonNullable<Family["read"]>>[2],
  keys: ArchitectureKeys,
): LayerAttention[] {
  const full = { table: ropeTable(b, rope.angles()) };
  const window = keys.window();
  if (window === 0) return h.layers.map(() => full);
  const rotated = keys.count("rope.dimension_count_swa", h.keyLength, h.ropeDimensionCount);
  if (rotated % 2 !== 0) keys.refuse("rope.dimension_count_swa", String(rotated), "an even number");
  const base = keys.ropeBase(h.ropeFreqBase, "_swa");
  const table = ropeTable(b, rope.angles({ dimensions: rotated, base, scaled: false }));
  const slides = keys.windowLayers(h.blockCount, { period: PERIOD, fullFirst: true });
  return slides.map((slides) => slides ? { table, rotated, window } : full);
}

/** Returns whether gates have one number per head instead of one per column. The first layer's tensor decides. */
function gatesAreOfHeads(b: PlanBuilder, h: Hparams): boolean {
  return b.file.tensors.get("blk.0.attn_gate.weight")?.shape[1] === h.layers[0].heads;
}

/** Refuses layers without heads, which only other architectures have. */
function requireHeads(keys: ArchitectureKeys, h: Hparams): void {
  for (const { heads, kvHeads } of h.layers) {
    if (heads === 0) keys.refuse("attention.head_count", "0", "at least 1 in each layer");
    if (kvHeads === 0) keys.refuse("attention.head_count_kv", "0", "at least 1 in each layer");
  }
}

function windowOf(keys: ArchitectureKeys): number {
  const window = keys.window();
  if (window === 0) keys.refuse("attention.sliding_window", "0", "at least 1");
  return window;
}

/** Reads the bound of SwiGLU's factors in each layer; 0: none. The key holds one number, or one per layer. */
function limitsOf(keys: ArchitectureKeys, { blockCount }: Hparams, name: string): readonly number[] {
  if (!keys.has(name)) return Array<number>(blockCount).fill(0);
  const value = keys.metadata.entries.get(keys.name(name));
  const limits = typeof value === "object"
    ? Array.from(keys.metadata.getNumbers(keys.name(name))!)
    : Array<number>(blockCount).fill(keys.metadata.getNumber(keys.name(name)));
  const wrong = limits.find((limit) => !(limit >= 0 && limit <= MAX_LIMIT));
  if (wrong !== undefined) keys.refuse(name, String(wrong), `0 to ${MAX_LIMIT}`);
  if (limits.length !== blockCount) {
    keys.refuse(name, `${limits.length} numbers`, `one number, or one for each of the ${blockCount} layers`);
  }
  return limits;
}

export const GATED_HEADS: readonly Family[] = [STEP35, LAGUNA];
