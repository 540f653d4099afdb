/** Seeded EAGLE-3 drafters for seeded models. */
import { parseGguf } from "../../../engine/gguf/reader.ts";
import type { TensorType } from "../../../engine/gguf/types.ts";
import { writeFeedForward, writeReals } from "../decoder.ts";
import { drafterFile } from "./file.ts";

export interface Eagle3Options {
  readonly type: TensorType;
  readonly seed: number;
  /** Layers of the model. The drafter reads their input rows. */
  readonly layers: readonly number[];
  /** Columns of the drafter's rows. If undefined, the drafter has the model's width and shares the model's embedding. */
  readonly columns?: number;
  /** A wrong number of columns of the model's rows, to test the error. By default the right number. */
  readonly width?: number;
  /** The drafter's own vocabulary, as token ids of the model. By default the model's vocabulary. */
  readonly tokens?: readonly number[];
  /** Whether the drafter uses the model's output matrix. */
  readonly sharesOutput?: boolean;
  readonly normBeforeResidual?: boolean;
  readonly normBeforeFc?: boolean;
}

const [HEADS, KV_HEADS, HEAD_DIM, FEED_FORWARD] = [4, 2, 32, 384];

/** Returns the bytes of a drafter's GGUF file for the GGUF file `model`. */
export function synthesizeEagle3(model: Uint8Array, options: Eagle3Options): Uint8Array<ArrayBuffer> {
  const { type, seed, layers, tokens, sharesOutput, normBeforeResidual, normBeforeFc } = options;
  const [own, vocabulary] = parseGguf(model).tensors.get("token_embd.weight")!.shape;
  const { width = own } = options;
  const columns = options.columns ?? width;
  return drafterFile("eagle3", { type, seed, vocabulary }, (file, builder) => {
    file.counts({
      block_count: 1,
      context_length: 2048,
      embedding_length: columns,
      feed_forward_length: FEED_FORWARD,
      "attention.head_count": HEADS,
      "attention.head_count_kv": KV_HEADS,
      "attention.key_length": HEAD_DIM,
      "attention.value_length": HEAD_DIM,
      "rope.dimension_count": HEAD_DIM,
      target_hidden_size: width,
    });
    file.keys("target_layers", "INT32", layers);
    if (normBeforeResidual) file.key("norm_before_residual", "BOOL", true);
    if (normBeforeFc) file.key("norm_before_fc", "BOOL", true);
    writeReals(file, { ropeBase: 1e4 });
    if (options.columns) file.matrix("token_embd", columns, vocabulary);
    file.matrix("fc", layers.length * width, columns);
    if (normBeforeFc) file.vector("enc.output_norm.weight", layers.length * width);
    const block = "blk.0";
    for (const norm of ["attn_norm", "attn_norm_2", "ffn_norm"]) {
      file.vector(`${block}.${norm}.weight`, columns);
    }
    for (const [part, heads] of Object.entries({ attn_q: HEADS, attn_k: KV_HEADS, attn_v: KV_HEADS })) {
      file.matrix(`${block}.${part}`, 2 * columns, heads * HEAD_DIM);
    }
    file.matrix(`${block}.attn_output`, HEADS * HEAD_DIM, columns);
    writeFeedForward(file, block, { embedding: columns, feedForward: FEED_FORWARD });
    file.vector("output_norm.weight", columns, 6);
    if (!sharesOutput) file.matrix("output", columns, tokens?.length ?? vocabulary);
    if (tokens) builder.integers("d2t", tokens);
  });
}
