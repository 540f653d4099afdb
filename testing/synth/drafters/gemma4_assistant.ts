/** Seeded drafters for seeded models of Gemma 4. They read the models' KV caches. */
import { parseGguf } from "../../../engine/gguf/reader.ts";
import type { TensorType } from "../../../engine/gguf/types.ts";
import { writeFeedForward } from "../decoder.ts";
import { GEMMA4 } from "../gemma4.ts";
import { drafterFile } from "./file.ts";

export interface Gemma4AssistantOptions {
  readonly type: TensorType;
  readonly seed: number;
  /** Wrong values of keys, to test errors. */
  readonly counts?: Readonly<Record<string, number>>;
}

const [COLUMNS, HEADS, FEED_FORWARD] = [128, 4, 256];
/** Whether each layer has a window. */
const SLIDES = [true, true, true, false];

/** Returns the bytes of a drafter's GGUF file for the GGUF file `model`. */
export function synthesizeGemma4Assistant(
  model: Uint8Array,
  { type, seed, counts }: Gemma4AssistantOptions,
): Uint8Array<ArrayBuffer> {
  const [width, vocabulary] = parseGguf(model).tensors.get("token_embd.weight")!.shape;
  const { full, sliding, window } = GEMMA4.tiny;
  return drafterFile("gemma4-assistant", { type, seed, vocabulary }, (file) => {
    file.counts({
      block_count: SLIDES.length,
      nextn_predict_layers: SLIDES.length,
      context_length: 2048,
      embedding_length: COLUMNS,
      embedding_length_out: width,
      embedding_length_per_layer_input: 0,
      feed_forward_length: FEED_FORWARD,
      "attention.head_count": HEADS,
      "attention.key_length": full.headDim,
      "attention.value_length": full.headDim,
      "attention.key_length_swa": sliding.headDim,
      "attention.value_length_swa": sliding.headDim,
      "attention.sliding_window": window,
      "attention.shared_kv_layers": SLIDES.length,
      "rope.dimension_count": full.headDim,
      "rope.dimension_count_swa": sliding.headDim,
      ...counts,
    });
    file.keys(
      "attention.head_count_kv",
      "INT32",
      SLIDES.map((slides) => slides ? sliding.kvHeads : full.kvHeads),
    );
    file.keys("attention.sliding_window_pattern", "BOOL", SLIDES);
    file.key("rope.freq_base", "FLOAT32", full.ropeBase);
    file.key("rope.freq_base_swa", "FLOAT32", sliding.ropeBase);
    file.key("attention.layer_norm_rms_epsilon", "FLOAT32", 1e-6);
    file.matrix("token_embd", COLUMNS, vocabulary);
    file.vector("output_norm.weight", COLUMNS, 6);
    file.matrix("nextn.pre_projection", 2 * width, COLUMNS);
    file.matrix("nextn.post_projection", COLUMNS, width);
    const pairs = full.headDim / 2;
    file.floats("rope_freqs.weight", [pairs], (_, i) => i < pairs / 4 ? 1 : 1e30);
    for (const [layer, slides] of SLIDES.entries()) {
      const block = `blk.${layer}`;
      const { headDim } = slides ? sliding : full;
      for (const norm of ["attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"]) {
        file.vector(`${block}.${norm}.weight`, COLUMNS);
      }
      file.matrix(`${block}.attn_q`, COLUMNS, HEADS * headDim);
      file.vector(`${block}.attn_q_norm.weight`, headDim, 0.3, 0.03);
      file.matrix(`${block}.attn_output`, HEADS * headDim, COLUMNS);
      writeFeedForward(file, block, { embedding: COLUMNS, feedForward: FEED_FORWARD });
      file.vector(`${block}.layer_output_scale.weight`, 1, 0.9);
    }
  });
}
