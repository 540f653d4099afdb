/** Seeded models in the published form that their family's description gives. */
import { modulesOf } from "../../../convert/decoder.ts";
import { CONFIG_KEYS } from "../../../engine/architectures/checkpoint.ts";
import { FAMILIES } from "../../../engine/architectures/families.ts";
import { tokenizerOf } from "../../../testing/checkpoints.ts";
import type { DecoderShape } from "../../../testing/synth/decoder.ts";
import { SYNTH_MODELS } from "../../../testing/synth/registry.ts";
import type { Architecture } from "../../../testing/synth/synth.ts";
import type { Published } from "./model.ts";

/** Tensors outside the layers. */
const TOP = ["token_embd", "output_norm"];

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
      ...Object.entries(modules).map(([ours, theirs]) =>
        TOP.includes(ours)
          ? [new RegExp(`^${ours}$`), prefix + theirs] as const
          : [new RegExp(`^blk\\.(\\d+)\\.${ours}$`), `${prefix}${layers}.$1.${theirs}`] as const
      ),
    ],
    tokenizer: tokenizerOf("qwen3"),
    ids: ["the", [257]],
    shiftedNorms: checkpoint.shiftedNorms,
    halves: traits.interleavedRope && !checkpoint.pairsKept ? { headDim: shape.headDim } : undefined,
  };
}
