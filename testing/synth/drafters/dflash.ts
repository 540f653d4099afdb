/** Seeded DFlash drafters for seeded models. */
import { parseGguf } from "../../../engine/gguf/reader.ts";
import { writeFeedForward, writeReals } from "../decoder.ts";
import type { SynthFile } from "../file.ts";
import { drafterFile } from "./file.ts";
import type { Eagle3Options } from "./eagle3.ts";

interface DflashShape {
  readonly blocks: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly feedForward: number;
}

/** Options for the keys and tensors of a drafter, except its token table. */
interface DflashParts extends Pick<Eagle3Options, "layers" | "columns" | "tokens" | "sharesOutput"> {
  /** Differences from the usual shape. */
  readonly shape?: Partial<DflashShape>;
  readonly mask: number;
  /** Maximum number of rows in a pass. If undefined, the file lacks the key. */
  readonly rows?: number;
  /** The window in tokens of the layers whose entry in `slides` is true; by default of all layers. */
  readonly window?: number;
  readonly slides?: readonly boolean[];
  /** Value of the key `attention.causal`. */
  readonly causal?: boolean;
}

export type DflashOptions = DflashParts & Pick<Eagle3Options, "type" | "seed">;

const SHAPE: DflashShape = { blocks: 2, heads: 4, kvHeads: 2, headDim: 32, feedForward: 384 };

/** Returns the bytes of a drafter's GGUF file for the GGUF file `model`. */
export function synthesizeDflash(model: Uint8Array, options: DflashOptions): Uint8Array<ArrayBuffer> {
  const { type, seed, tokens } = options;
  const [width, vocabulary] = parseGguf(model).tensors.get("token_embd.weight")!.shape;
  return drafterFile("dflash", { type, seed, vocabulary }, (file, builder) => {
    writeDflash(file, [width, vocabulary], options);
    if (tokens) builder.integers("d2t", tokens);
  });
}

/** Writes a drafter for a model with this number of columns and tokens. */
export function writeDflash(
  file: SynthFile,
  [width, vocabulary]: readonly [columns: number, tokens: number],
  options: DflashParts,
): void {
  const { layers, tokens, sharesOutput, columns = width, mask, rows, window, slides, causal } = options;
  const { blocks, heads, kvHeads, headDim, feedForward } = { ...SHAPE, ...options.shape };
  file.counts({
    block_count: blocks,
    context_length: 2048,
    embedding_length: columns,
    feed_forward_length: feedForward,
    "attention.head_count": heads,
    "attention.head_count_kv": kvHeads,
    "attention.key_length": headDim,
    "attention.value_length": headDim,
    "rope.dimension_count": headDim,
    ...columns !== width && { target_hidden_size: width },
    ...rows && { block_size: rows },
    ...window && { "attention.sliding_window": window },
  });
  file.keys("target_layers", "INT32", layers);
  file.sink.set("tokenizer.ggml.mask_token_id", "UINT32", mask);
  if (slides) file.keys("attention.sliding_window_pattern", "BOOL", slides);
  if (causal !== undefined) file.key("attention.causal", "BOOL", causal);
  writeReals(file, { ropeBase: 1e4 });
  if (options.columns) file.matrix("token_embd", columns, vocabulary);
  file.matrix("fc", layers.length * width, columns);
  file.vector("enc.output_norm.weight", columns);
  for (let i = 0; i < blocks; i++) {
    const block = `blk.${i}`;
    for (const norm of ["attn_norm", "ffn_norm"]) file.vector(`${block}.${norm}.weight`, columns);
    for (const norm of ["attn_q_norm", "attn_k_norm"]) file.vector(`${block}.${norm}.weight`, headDim);
    for (const [part, count] of Object.entries({ attn_q: heads, attn_k: kvHeads, attn_v: kvHeads })) {
      file.matrix(`${block}.${part}`, columns, count * headDim);
    }
    file.matrix(`${block}.attn_output`, heads * headDim, columns);
    writeFeedForward(file, block, { embedding: columns, feedForward });
  }
  file.vector("output_norm.weight", columns, 6);
  if (!sharesOutput) file.matrix("output", columns, tokens?.length ?? vocabulary);
}
