import { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import type { Hparams } from "../../gguf/hparams/hparams.ts";
import type { GgufFile } from "../../gguf/types.ts";
import type { PlanBuilder, Value } from "../../plan/builder.ts";
import { type Choices, choose } from "../../plan/ops/choose.ts";
import { layerNorm } from "../../plan/ops/layer_norm.ts";
import { linear } from "../../plan/ops/matmul.ts";
import { ropeAppend } from "../../plan/ops/rope_append.ts";
import type { TensorName } from "../architecture.ts";

/**
 * The lightning indexer of DeepSeek's sparse attention: heads of its own score all tokens, and a row attends only to the
 * best. Checkpoints multiply queries and keys by a Hadamard matrix. That leaves their products as they are, so it is
 * left out, as in transformers. Source: "DeepSeek-V3.2" (arXiv 2512.02556), section 2.1.
 */
export interface Indexer {
  readonly heads: number;
  readonly headDim: number;
  /** Number of tokens that a row attends to. */
  readonly choices: number;
  /** Leading dimensions of a head that are rotated, and whether pairs are (2i, 2i + 1). */
  readonly rotated: number;
  readonly interleaved: boolean;
}

/** Limits of the kernel. `blocks` bounds the memory of the lists. */
const MAX = { heads: 64, headDim: 1024, choices: 65_536, blocks: 4096, length: 65_536 };
const HEAD_DIM_STEP = 16;
/** Epsilon of the keys' LayerNorm. The files have no key for it. */
const EPSILON = 1e-6;

const KEYS = {
  heads: "attention.indexer.head_count",
  headDim: "attention.indexer.key_length",
  choices: "attention.indexer.top_k",
  length: "attention.indexer.block_size",
  local: "attention.indexer.local_blocks",
};

/** Reads the indexer's hyper-parameters. Throws GgufError(GGUF_HPARAM) naming the key. */
export function readIndexer(file: GgufFile, h: Hparams, interleaved: boolean): Indexer {
  const keys = new ArchitectureKeys(file.metadata, h.architecture);
  const rank = "attention.q_lora_rank";
  if (keys.metadata.getCount(keys.name(rank), 0) === 0) {
    keys.refuse(rank, "0", "at least 1, because the indexer reads the queries' latent rows");
  }
  return {
    heads: keys.count(KEYS.heads, MAX.heads),
    headDim: readHeadDim(keys, h),
    choices: keys.count(KEYS.choices, MAX.choices),
    rotated: h.ropeDimensionCount,
    interleaved,
  };
}

function readHeadDim(keys: ArchitectureKeys, { ropeDimensionCount: rotated }: Hparams): number {
  const headDim = keys.count(KEYS.headDim, MAX.headDim);
  if (headDim % HEAD_DIM_STEP !== 0 || headDim < rotated) {
    keys.refuse(KEYS.headDim, String(headDim), `a multiple of ${HEAD_DIM_STEP}, at least ${rotated}`);
  }
  return headDim;
}

/** Returns the tokens that each row attends to. The indexer's keys have their own KV cache. */
export function chooseTokens(
  b: PlanBuilder,
  x: Value,
  latent: Value,
  table: Value,
  { heads, headDim, choices, rotated, interleaved }: Indexer,
  name: TensorName,
): Choices {
  // Small differences of scores decide the choice, so matrices with quantized weights read rows in two planes.
  const matrix = (part: string, rows: number) => ({ name: name(`indexer.${part}`), rows, fine: rows });
  const [made, weights] = linear(b, x, [matrix("attn_k", headDim), matrix("proj", heads)]);
  const [queries] = linear(b, latent, [matrix("attn_q_b", heads * headDim)]);
  const key = layerNorm(b, made, name("indexer.k_norm"), EPSILON);
  const layer = b.kvLayer({ heads: 1, headDim });
  const shape = { layer, heads, kvHeads: 1, headDim, gated: false };
  ropeAppend(b, [queries, key, key], shape, { table, rotated, interleaved, eps: EPSILON });
  return choose(b, queries, shape, { count: choices, weights });
}

/**
 * MiniMax M3's indexer. Each of its heads scores all tokens for one KV head. The query heads of this KV head attend
 * only to the blocks of tokens with the largest scores.
 */
interface BlockIndexer {
  /** Number of heads. It equals the number of KV heads. */
  readonly heads: number;
  readonly headDim: number;
  /** Number of blocks that a row attends to. */
  readonly choices: number;
  /** Number of tokens per block. */
  readonly length: number;
  /** Number of most recent blocks that are always chosen. */
  readonly local: number;
  readonly rotated: number;
  readonly eps: number;
}

/** Reads the block indexer's hyper-parameters. Throws GgufError(GGUF_HPARAM) naming the key. */
export function readBlockIndexer(file: GgufFile, h: Hparams): BlockIndexer {
  const keys = new ArchitectureKeys(file.metadata, h.architecture);
  const heads = keys.count(KEYS.heads, MAX.heads);
  if (heads !== h.headCountKv) keys.refuse(KEYS.heads, String(heads), `${h.headCountKv}, one per KV head`);
  const choices = keys.count(KEYS.choices, MAX.blocks);
  return {
    heads,
    headDim: readHeadDim(keys, h),
    choices,
    length: keys.count(KEYS.length, MAX.length),
    local: keys.count(KEYS.local, choices),
    rotated: h.ropeDimensionCount,
    eps: h.epsilon,
  };
}

/** Returns the blocks that each row attends to, per KV head. The indexer's keys have their own KV cache. */
export function chooseBlocks(
  b: PlanBuilder,
  x: Value,
  table: Value,
  { heads, headDim, choices: count, length, local, rotated, eps }: BlockIndexer,
  name: TensorName,
): Choices {
  const matrix = (part: string, rows: number) => ({ name: name(`indexer.${part}`), rows, fine: rows });
  const [queries, key] = linear(b, x, [matrix("q_proj", heads * headDim), matrix("k_proj", headDim)]);
  const shape = { layer: b.kvLayer({ heads: 1, headDim }), heads, kvHeads: 1, headDim, gated: false };
  const [qNorm, kNorm] = [name("indexer.q_norm"), name("indexer.k_norm")];
  ropeAppend(b, [queries, key, key], shape, { table, rotated, interleaved: false, eps, qNorm, kNorm });
  return choose(b, queries, shape, { count, length, local });
}
