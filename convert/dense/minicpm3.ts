import { type Checkpoint, MAX } from "../../engine/architectures/checkpoint.ts";
import { MINICPM3, MINICPM3_SCALES } from "../../engine/architectures/decoders/deepseek2.ts";
import { longRopeEntries } from "../../engine/architectures/parts/longrope.ts";
import type { Fields } from "../checkpoint/json.ts";
import { convertDecoder } from "../decoder.ts";
import { addLatentRows, readLatent } from "../mixtures/deepseek2.ts";
import type { ModelParts } from "../model_parts.ts";
import type { TensorList } from "../tensor_list.ts";
import { type Entry, entry } from "../write/metadata.ts";

const CHECKPOINT: Checkpoint = {
  keys: { headDim: "qk_rope_head_dim" },
  scalings: ["longrope"],
  entries: longRopeEntries,
};

/** Converts MiniCPM3. Sources: mlx-lm, models/minicpm3.py; llama.cpp, conversion/minicpm.py. */
export function convertMinicpm3(given: Fields, list: TensorList, prefix: string): ModelParts {
  const { embedding, depth, baseWidth } = MINICPM3_SCALES;
  for (
    const [name, scale] of Object.entries({
      scale_emb: embedding,
      scale_depth: depth,
      dim_model_base: baseWidth,
    })
  ) {
    if (given.get(name) !== scale) given.refuseValue(name, `${scale}, because GGUF files have no key for it`);
  }
  const valueLength = given.count("hidden_size", MAX.hidden) / given.count("num_attention_heads", MAX.heads);
  given.mustBe("v_head_dim", valueLength, "all value heads together have the embedding's width");
  const latent = readLatent(given.withDefaults({ v_head_dim: valueLength }));
  const { rank, queryRank, plain, rotated } = latent;
  const parts = convertDecoder(given, list, prefix, MINICPM3, CHECKPOINT, {
    attention({ block, from }, decoder) {
      const attention = `${from}self_attn.`;
      addLatentRows(list, decoder, latent, block, attention);
      const rows = decoder.heads * (plain + valueLength);
      list.matrix(`${block}attn_kv_b`, `${attention}kv_b_proj`, rows, rank);
      list.matrix(`${block}attn_output`, `${attention}o_proj`, decoder.hidden, decoder.heads * valueLength);
    },
  });
  const lengths = {
    "attention.key_length": plain + rotated,
    "attention.value_length": valueLength,
    "attention.kv_lora_rank": rank,
    "attention.q_lora_rank": queryRank,
  };
  const own: Entry[] = Object.entries(lengths).map(([name, value]) =>
    entry(`minicpm3.${name}`, "UINT32", value)
  );
  const known = new Set(own.map(({ key }) => key));
  return { ...parts, entries: [...parts.entries.filter(({ key }) => !known.has(key)), ...own] };
}
