/** Describes the published form of a seeded model: its config.json and tensor names. */
import type { PublishedTokenizer } from "../../../testing/checkpoint_tokenizers.ts";
import { type StoredTensor, storeFloats } from "../../../testing/checkpoints.ts";
import { SYNTH_MODELS } from "../../../testing/synth/registry.ts";
import type { Architecture } from "../../../testing/synth/synth.ts";

export type Config = Record<string, unknown>;
export type Names = readonly (readonly [ours: RegExp, theirs: string])[];

/** A seeded model and its published form. */
export interface Published {
  readonly architecture: Architecture;
  /** Number of layers in the seeded file, if fewer than in its tiny shape. */
  readonly layers?: number;
  /** `general.architecture` of the converted file, if it differs from the seeded file's. */
  readonly becomes?: string;
  readonly config: Config;
  /** Published names of the seeded file's tensors, without `.weight`. Tensors that match no entry are left out. */
  readonly names: Names;
  readonly tokenizer: PublishedTokenizer;
  /** A text and its token ids, without the tokens around the text. */
  readonly ids: readonly [text: string, ids: readonly number[]];
  /** Whether the checkpoint stores norm weights minus 1: all of them, or only those of layers. */
  readonly shiftedNorms?: boolean | "of layers";
  /**
   * Dimensions of a head, if checkpoints store the two rows of a rotary pair half a head apart instead of side by side.
   */
  readonly halves?: { readonly headDim: number };
  readonly change?: (tensors: Map<string, StoredTensor>, floats: (name: string) => Floats) => void;
  readonly dense?: boolean;
  /** Whether the conversion computes rotary factors from config.json, which differ from the seeded file's. */
  readonly ownFactors?: boolean;
  /** Matches tensors that the conversion computes from config.json. Their values differ from the seeded file's. */
  readonly computed?: RegExp;
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

/** Returns the tensor names of decoders with Llama's names. */
export const attentionNames = (prefix: string): Names => [
  [/^token_embd$/, `${prefix}embed_tokens`],
  [/^output_norm$/, `${prefix}norm`],
  [/^blk\.(\d+)\.attn_(q|k|v)$/, `${prefix}layers.$1.self_attn.$2_proj`],
  [/^blk\.(\d+)\.attn_output$/, `${prefix}layers.$1.self_attn.o_proj`],
  [/^blk\.(\d+)\.attn_(q|k)_norm$/, `${prefix}layers.$1.self_attn.$2_norm`],
  [/^blk\.(\d+)\.ffn_(gate|up|down)$/, `${prefix}layers.$1.mlp.$2_proj`],
  [/^blk\.(\d+)\.attn_norm$/, `${prefix}layers.$1.input_layernorm`],
];

/** Writes each expert as its own module, in layers `first` to `end` - 1. */
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
