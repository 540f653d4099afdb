/** How makers would publish a seeded model: what config.json says, and what tensors are called. */
import type { PublishedTokenizer } from "../../../testing/checkpoint_tokenizers.ts";
import { type StoredTensor, storeFloats } from "../../../testing/checkpoints.ts";
import { SYNTH_MODELS } from "../../../testing/synth/registry.ts";
import type { Architecture } from "../../../testing/synth/synth.ts";

export type Config = Record<string, unknown>;
export type Names = readonly (readonly [ours: RegExp, theirs: string])[];

/** A seeded model, and how its makers would publish it. */
export interface Published {
  readonly architecture: Architecture;
  /** Of the seeded file, where its tiny shape has more than are of use here. */
  readonly layers?: number;
  /** `general.architecture` of what it becomes, where that is not the seeded file's. */
  readonly becomes?: string;
  readonly config: Config;
  /** Of the seeded file's tensors without `.weight`; those that none is of are left out. */
  readonly names: Names;
  readonly tokenizer: PublishedTokenizer;
  /** A text, and its ids between what stands around it. */
  readonly ids: readonly [text: string, ids: readonly number[]];
  /** Norms are published as the distance from 1. */
  readonly shiftedNorms?: boolean;
  /** Dimensions of a head, where checkpoints keep the two rows of a rotary pair half a head apart, and not side by side. */
  readonly halves?: { readonly headDim: number };
  readonly change?: (tensors: Map<string, StoredTensor>, floats: (name: string) => Floats) => void;
  readonly dense?: boolean;
  /** The conversion makes rotary factors out of config.json, and they are not the seeded file's. */
  readonly ownFactors?: boolean;
}

export interface Floats {
  readonly shape: readonly number[]; // rows first
  readonly values: Float32Array;
}

export const { embedding, vocabulary, context } = SYNTH_MODELS.qwen3.tiny;
export const layered = (config: Config) => ({
  hidden_size: embedding,
  num_hidden_layers: 4,
  vocab_size: vocabulary,
  max_position_embeddings: context,
  ...config,
});

/** Of decoders whose tensors are called as Llama's. */
export const attentionNames = (prefix: string): Names => [
  [/^token_embd$/, `${prefix}embed_tokens`],
  [/^output_norm$/, `${prefix}norm`],
  [/^blk\.(\d+)\.attn_(q|k|v)$/, `${prefix}layers.$1.self_attn.$2_proj`],
  [/^blk\.(\d+)\.attn_output$/, `${prefix}layers.$1.self_attn.o_proj`],
  [/^blk\.(\d+)\.attn_(q|k)_norm$/, `${prefix}layers.$1.self_attn.$2_norm`],
  [/^blk\.(\d+)\.ffn_(gate|up|down)$/, `${prefix}layers.$1.mlp.$2_proj`],
  [/^blk\.(\d+)\.attn_norm$/, `${prefix}layers.$1.input_layernorm`],
];

/** Experts a module each, from the layer `first` on and before `end`. */
export function moduleEach(
  tensors: Map<string, StoredTensor>,
  floats: (name: string) => Floats,
  first = 0,
  end = 4,
): void {
  for (let i = first; i < end; i++) {
    for (const part of ["gate", "up", "down"]) {
      const { shape: [experts, ...shape], values } = floats(`blk.${i}.ffn_${part}_exps.weight`);
      const each = values.length / experts;
      for (let e = 0; e < experts; e++) {
        const own = values.slice(e * each, (e + 1) * each);
        const name = `model.layers.${i}.mlp.experts.${e}.${part}_proj.weight`;
        tensors.set(name, storeFloats("F32", shape, own));
      }
    }
  }
}
