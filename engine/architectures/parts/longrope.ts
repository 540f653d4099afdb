import { type Config, type DecoderConfig, type KeyValue, MAX } from "../checkpoint.ts";

/** Returns the keys of a converted file that accompany LongRoPE's factors. */
export function longRopeEntries(config: Config, { context, rope }: DecoderConfig): KeyValue[] {
  if (rope.scaling.type !== "longrope") return [];
  const name = "original_max_position_embeddings";
  const original = (rope.fields.has(name) ? rope.fields : config).count(name, MAX.context);
  return [
    ["rope.scaling.original_context_length", "UINT32", original],
    [
      "rope.scaling.attn_factor",
      "FLOAT32",
      rope.fields.positive("attention_factor", MAX.factor, magnitude(context / original, original)),
    ],
  ];
}

/**
 * Returns LongRoPE's magnitude. `times` is the extended context over the original. Source: "LongRoPE" (arXiv
 * 2402.13753), section 3.3.
 */
function magnitude(times: number, original: number): number {
  return times <= 1 ? 1 : Math.sqrt(1 + Math.log(times) / Math.log(original));
}
