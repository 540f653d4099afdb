import { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import type { Hparams } from "../../gguf/hparams/hparams.ts";
import type { GgufFile } from "../../gguf/types.ts";
import type { PlanBuilder, Value } from "../../plan/builder.ts";
import { choose } from "../../plan/ops/choose.ts";
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

/** Limits of the kernel. */
const MAX = { heads: 64, headDim: 1024, choices: 65_536 };
const HEAD_DIM_STEP = 16;
/** Epsilon of the keys' LayerNorm. The files have no key for it. */
const EPSILON = 1e-6;

/** Reads the indexer's hyper-parameters. Throws GgufError(GGUF_HPARAM) naming the key. */
export function readIndexer(file: GgufFile, h: Hparams, interleaved: boolean): Indexer {
  const keys = new ArchitectureKeys(file.metadata, h.architecture);
  const [heads, length, topK] = ["head_count", "key_length", "top_k"].map((n) => `attention.indexer.${n}`);
  const headDim = keys.count(length, MAX.headDim);
  const rotated = h.ropeDimensionCount;
  if (headDim % HEAD_DIM_STEP !== 0 || headDim < rotated) {
    keys.refuse(length, String(headDim), `a multiple of ${HEAD_DIM_STEP}, at least ${rotated}`);
  }
  const rank = "attention.q_lora_rank";
  if (keys.metadata.getCount(keys.name(rank), 0) === 0) {
    keys.refuse(rank, "0", "at least 1, because the indexer reads the queries' latent rows");
  }
  return {
    heads: keys.count(heads, MAX.heads),
    headDim,
    choices: keys.count(topK, MAX.choices),
    rotated,
    interleaved,
  };
}

/** Returns the tokens that each row attends to. The indexer's keys have a KV cache of their own. */
export function chooseTokens(
  b: PlanBuilder,
  x: Value,
  latent: Value,
  table: Value,
  { heads, headDim, choices, rotated, interleaved }: Indexer,
  name: TensorName,
): Value {
  // Small differences of scores decide the choice, so matrices with quantized weights read rows in two planes.
  const matrix = (part: string, rows: number) => ({ name: name(`indexer.${part}`), rows, fine: rows });
  const [made, weights] = linear(b, x, [matrix("attn_k", headDim), matrix("proj", heads)]);
  const [queries] = linear(b, latent, [matrix("attn_q_b", heads * headDim)]);
  const key = layerNorm(b, made, name("indexer.k_norm"), EPSILON);
  const layer = b.kvLayer({ heads: 1, headDim });
  const shape = { layer, heads, kvHeads: 1, headDim, gated: false };
  ropeAppend(b, [queries, key, key], shape, { table, rotated, interleaved, eps: EPSILON });
  return choose(b, queries, weights, shape, choices);
}
