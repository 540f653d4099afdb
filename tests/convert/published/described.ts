/** Seeded models in the published form that their family's description gives. */
import { modulesOf } from "../../../convert/decoder.ts";
import { CONFIG_KEYS } from "../../../engine/architectures/checkpoint.ts";
import { FAMILIES } from "../../../engine/architectures/families.ts";
import { type StoredTensor, storeFloats, tokenizerOf } from "../../../testing/checkpoints.ts";
import type { DecoderShape } from "../../../testing/synth/decoder.ts";
import { SYNTH_MODELS } from "../../../testing/synth/registry.ts";
import type { Architecture } from "../../../testing/synth/synth.ts";
import type { Floats, Published } from "./model.ts";

/** Tensors outside the layers. */
const TOP = ["token_embd", "output_norm", "position_embd"];

/** Norms that the conversion computes for checkpoints without them. */
const HEAD_NORMS = ["attn_q_norm", "attn_k_norm"];

/** Models with a `checkpoint`, by the name of their family. */
export const DESCRIBED: Readonly<Record<string, Published>> = Object.fromEntries(
  Object.keys(SYNTH_MODELS).flatMap((name) => {
    const published = describe(name as Architecture);
    return published ? [[name, published]] : [];
  }),
);

function describe(name: Architecture): Published | undefined {
  const { architecture = name, traits, checkpoint: more, tiny } = SYNTH_MODELS[name];
  if (!more || !traits) return undefined;
  const shape = tiny as DecoderShape;
  const [[modelType, checkpoint]] = Object.entries(FAMILIES.get(architecture)!.checkpoints!);
  const keys = { ...CONFIG_KEYS, ...checkpoint.keys };
  const { layers, ...modules } = modulesOf(traits, checkpoint);
  const prefix = checkpoint.prefix ?? "model.";
  return {
    architecture: name,
    config: {
      model_type: modelType,
      hidden_size: shape.embedding,
      num_attention_heads: shape.heads,
      num_key_value_heads: shape.kvHeads,
      vocab_size: shape.vocabulary,
      max_position_embeddings: shape.context,
      rope_theta: shape.ropeBase,
      partial_rotary_factor: (shape.rotated ?? shape.headDim) / shape.headDim,
      tie_word_embeddings: !shape.untied,
      [keys.layers]: shape.layers,
      [keys.feedForward]: shape.feedForward,
      [keys.headDim]: shape.headDim,
      [keys.epsilon]: traits.layerNorms ? 1e-5 : 1e-6,
      ...more,
    },
    names: [
      [/^output$/, "lm_head"],
      ...Object.entries(modules).filter(([ours]) => !(checkpoint.constants && HEAD_NORMS.includes(ours))).map(
        (
          [ours, theirs],
        ) =>
          TOP.includes(ours)
            ? [new RegExp(`^${ours}$`), prefix + theirs] as const
            : [new RegExp(`^blk\\.(\\d+)\\.${ours}$`), `${prefix}${layers}.$1.${theirs}`] as const,
      ),
    ],
    tokenizer: tokenizerOf("qwen3"),
    ids: ["the", [257]],
    shiftedNorms: checkpoint.shiftedNorms,
    change: checkpoint.grouped && traits.fusedHeads
      ? groupHeads(shape, checkpoint.grouped)
      : checkpoint.transposed
      ? transposeAll
      : checkpoint.apart
      ? splitHeads(shape)
      : undefined,
    computed: checkpoint.constants && /\.attn_[qk]_norm\./,
    halves: traits.interleavedRope && !checkpoint.pairsKept ? { headDim: shape.headDim } : undefined,
  };
}

/** Stores the matrices of layers transposed, as [columns, rows]. */
function transposeAll(tensors: Map<string, StoredTensor>, floats: (name: string) => Floats): void {
  for (let layer = 0; tensors.has(`model.h.${layer}.ln_1.weight`); layer++) {
    for (
      const [ours, theirs] of [
        ["attn_qkv", "attn.c_attn"],
        ["attn_output", "attn.c_proj"],
        ["ffn_up", "mlp.c_fc"],
        ["ffn_down", "mlp.c_proj"],
      ]
    ) {
      const { shape: [rows, columns], values } = floats(`blk.${layer}.${ours}.weight`);
      const turned = values.map((_, i) => values[(i % rows) * columns + Math.floor(i / rows)]);
      tensors.set(`model.h.${layer}.${theirs}.weight`, storeFloats("F32", [columns, rows], turned));
    }
  }
}

/** Splits the fused matrix and bias into one module each for queries, keys and values. */
function splitHeads({ heads, kvHeads, headDim, layers }: DecoderShape): Published["change"] {
  return (tensors, floats) => {
    for (let layer = 0; layer < layers; layer++) {
      for (const part of ["weight", "bias"]) {
        const { shape: [rows, columns = 1], values } = floats(`blk.${layer}.attn_qkv.${part}`);
        const module = `model.layers.${layer}.self_attn.`;
        tensors.delete(`${module}qkv_proj.${part}`);
        let from = 0;
        for (const [name, count] of Object.entries({ q: heads, k: kvHeads, v: kvHeads })) {
          const own = values.slice(from * columns, (from += count * headDim) * columns);
          const shape = part === "bias" ? [count * headDim] : [count * headDim, columns];
          tensors.set(`${module}${name}_proj.${part}`, storeFloats("F32", shape, own));
        }
        if (from !== rows) throw new Error(`attn_qkv has ${rows} rows, expected ${from}`);
      }
    }
  };
}

/** Groups the fused rows by head: each head's query rows, then its key rows, then its value rows. */
function groupHeads({ heads, headDim, layers }: DecoderShape, module: string): Published["change"] {
  return (tensors, floats) => {
    for (let layer = 0; layer < layers; layer++) {
      for (const part of ["weight", "bias"]) {
        const { shape, values } = floats(`blk.${layer}.attn_qkv.${part}`);
        const size = values.length / (3 * heads);
        const grouped = values.map((_, i) => {
          const [head, kind] = [Math.floor(i / size / 3), Math.floor(i / size) % 3];
          return values[(kind * heads + head) * size + i % size];
        });
        if (size % headDim !== 0) throw new Error(`a head has ${size} values`);
        tensors.delete(`model.layers.${layer}.self_attn.qkv_proj.${part}`);
        tensors.set(`model.layers.${layer}.${module}.${part}`, storeFloats("F32", [...shape], grouped));
      }
    }
  };
}
