import { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import type { Hparams } from "../../gguf/hparams/hparams.ts";
import type { PlanBuilder, Value } from "../../plan/builder.ts";
import { join } from "../../plan/ops/join.ts";
import { kda } from "../../plan/ops/kda.ts";
import { linear } from "../../plan/ops/matmul.ts";
import { ropeTable } from "../../plan/ops/rope_table.ts";
import { convolveApart } from "../../plan/ops/short_conv.ts";
import { deltaState } from "../../plan/plan.ts";
import type { TensorName } from "../architecture.ts";
import { readExperts } from "../decoders/deepseek2.ts";
import { decoderKeys, type Family } from "../family.ts";
import { leaveOutDrafting } from "../left_out.ts";
import type { DecoderTraits } from "../parts/decoder.ts";
import { latentAttention, type LatentHeads, readLatentHeads } from "../parts/latent_attention.ts";
import { refuseSections } from "../parts/rope_sections.ts";
import { biasOfChoice, feedForward, sharedMixture } from "../parts/shared_experts.ts";

const ALLOWS = { experts: true, layersDiffer: true, valuesDiffer: true };

/**
 * Kimi Linear: layers without KV heads have Kimi Delta Attention, the others latent attention without positions.
 * Experts are DeepSeek V3's. Sources: "Kimi Linear" (arXiv 2510.26692); Hugging Face transformers, models/kimi_linear.
 */
export const KIMI_LINEAR: Family = {
  architecture: "kimi-linear",
  traits: {},
  allows: ALLOWS,
  read: (b, h) => kimiLayers(b, h, { ...readLatentHeads(b.file, h, true), scaledWeights: true }),
};

/**
 * Ling 3.0: Kimi Linear's layers with positions, a gate per head of latent attention, and a bounded decay. Sources:
 * Hugging Face transformers, models/bailing_hybrid; llama.cpp, src/models/bailingmoe3.cpp.
 */
export const BAILINGMOE3: Family = {
  architecture: "bailingmoe3",
  traits: {},
  allows: ALLOWS,
  read(b, h, rope) {
    const keys = decoderKeys(b);
    refuseSections(keys);
    for (const name of ["swiglu_clamp_exp", "swiglu_clamp_shexp"]) {
      if (keys.has(name)) keys.refuse(name, "a value", "missing, because clamped experts are not supported");
    }
    if (!keys.metadata.getBoolean(keys.name("kda.safe_gate"), true)) {
      keys.refuse("kda.safe_gate", "false", "true in this architecture");
    }
    const bound = keys.metadata.getNumber(keys.name("kda.gate_lower_bound"));
    if (!(bound < 0 && bound >= -MAX_BOUND)) {
      keys.refuse("kda.gate_lower_bound", String(bound), `below 0 and at least ${-MAX_BOUND}`);
    }
    const heads = { ...readLatentHeads(b.file, h, true), headGates: true };
    return kimiLayers(b, h, { ...heads, bound, table: ropeTable(b, rope.angles()) });
  },
};

/** Largest magnitude of the decay's bound. */
const MAX_BOUND = 100;
/** Limits of the kernels. */
const MAX = { headDim: 256 };
const HEAD_DIM_STEP = 32;
const CONV_KERNEL = 4;

interface KimiHeads extends LatentHeads {
  /** Lower bound of the logarithm of decays; by default none. */
  readonly bound?: number;
  /** Rotary angles of latent attention; by default it has no positions. */
  readonly table?: Value;
  /** Whether experts' weights are always divided by their sum; by default the file says so. */
  readonly scaledWeights?: boolean;
}

/** Returns layers of Kimi Delta Attention and of latent attention, with experts after the leading dense layers. */
function kimiLayers(b: PlanBuilder, h: Hparams, of: KimiHeads): DecoderTraits {
  const keys = decoderKeys(b);
  const layerCount = leaveOutDrafting(b, h);
  const headDim = readKda(keys, h);
  const denseLayers = keys.leadingDenseLayers(h.blockCount, 0);
  const experts = denseLayers < layerCount ? readExperts(b.file, h) : undefined;
  return {
    layerCount,
    attention: {
      attend: (x, layer, name) =>
        h.layers[layer].kvHeads > 0
          ? latentAttention(b, x, of.table, of, name)
          : deltaAttention(b, x, { heads: h.headCount, headDim, eps: h.epsilon, bound: of.bound }, name),
    },
    feedForward(x, addTo, name, layer) {
      if (!experts || layer < denseLayers) {
        return void feedForward(b, x, h.feedForwardLength, name, { addTo });
      }
      const { weighed } = experts;
      const divided = of.scaledWeights || weighed.divided;
      sharedMixture(b, x, experts, name, { addTo }, { ...weighed, divided, bias: biasOfChoice(b, name) });
    },
  };
}

/** Returns the head size of Kimi Delta Attention. Throws GgufError for shapes that it cannot compute. */
function readKda(keys: ArchitectureKeys, h: Hparams): number {
  for (const { heads } of h.layers) {
    if (heads !== h.headCount) keys.refuse("attention.head_count", String(heads), "the same in all layers");
  }
  const kernel = keys.count("ssm.conv_kernel", Infinity);
  if (kernel !== CONV_KERNEL) keys.refuse("ssm.conv_kernel", String(kernel), String(CONV_KERNEL));
  const headDim = keys.count("kda.head_dim", MAX.headDim);
  if (headDim % HEAD_DIM_STEP !== 0) {
    keys.refuse("kda.head_dim", String(headDim), `a multiple of ${HEAD_DIM_STEP}`);
  }
  return headDim;
}

interface KdaLayer {
  readonly heads: number;
  readonly headDim: number;
  readonly eps: number;
  readonly bound?: number;
}

/** Returns the output of Kimi Delta Attention: [rows, heads x headDim]. */
function deltaAttention(
  b: PlanBuilder,
  x: Value,
  { heads, headDim, eps, bound }: KdaLayer,
  name: TensorName,
): Value {
  const inner = heads * headDim;
  const shape = { keyHeads: heads, valueHeads: heads, headDim };
  const delta = { layer: b.stateLayer(deltaState(shape)), ...shape };
  // Decays and gates are made in two steps, or in one where the file has no second matrix.
  const low = b.file.tensors.has(`${name("ssm_f_b")}.weight`);
  const width = low ? headDim : inner;
  // Rounded queries, keys and decays change the state for all later tokens, so their matrices read rows in two planes.
  const matrix = (part: string, rows: number, fine = 0) => ({ name: name(part), rows, fine });
  const [q, k, v, alpha, gate, beta] = linear(b, x, [
    matrix("attn_q", inner, inner),
    matrix("attn_k", inner, inner),
    matrix("attn_v", inner),
    matrix("ssm_f_a", width, width),
    matrix("ssm_g_a", width),
    matrix("ssm_beta", heads),
  ]);
  const qkv = join(b, join(b, q, k), v);
  const taps = {
    queries: name("ssm_conv1d_q"),
    keys: name("ssm_conv1d_k"),
    values: name("ssm_conv1d_v"),
  };
  convolveApart(b, qkv, taps, delta, eps);
  const widened = (x: Value, part: string) => low ? linear(b, x, [{ name: name(part), rows: inner }])[0] : x;
  const tensors = { decay: name("ssm_a"), bias: name("ssm_dt.bias"), norm: name("ssm_norm.weight") };
  const inputs = { qkv, gate: widened(gate, "ssm_g_b"), alpha: widened(alpha, "ssm_f_b"), beta };
  return kda(b, inputs, tensors, delta, { eps, bound });
}
