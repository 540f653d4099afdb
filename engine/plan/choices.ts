/**
 * What keys and values are kept as: 16 bits each, or 8-bit blocks of 32 with one f16 scale each. With 16 bits the GPU has f16, and
 * the CPU integers with a scale for each head of a token, which are nearer than f16 and multiply twice as fast.
 *
 * ```ts
 * import { type KvType, loadModel } from "compy";
 *
 * const kvType: KvType = "q8_0"; // the KV cache in 53 % of the memory
 * await using model = await loadModel(undefined, { kvType });
 * console.log(model.info.memory.kv);
 * ```
 */
export type KvType = "f16" | "q8_0";
/** All of them. */
export const KV_TYPES: readonly KvType[] = ["f16", "q8_0"];
/** What they are called where memory is told of. */
export const KV_WORDS: Readonly<Record<KvType, string>> = { f16: "16 bits", q8_0: "q8_0" };

/**
 * What activations are rounded to where blocks of weights are multiplied by them, on the CPU: 8 bits, or two planes of 8 bits, which
 * keep some 15.
 *
 * ```ts
 * import { type ActivationPrecision, loadModel } from "compy";
 *
 * const activations: ActivationPrecision = "fine"; // nearer to the exact answer, prompts at about half the speed
 * await using model = await loadModel(undefined, { activations });
 * console.log(model.info.id);
 * ```
 */
export type ActivationPrecision = "fast" | "fine";
/** All of them; the first is the default. */
export const ACTIVATION_PRECISIONS: readonly ActivationPrecision[] = ["fast", "fine"];

/** Tokens that one KV block holds: the unit of allocation and of prefix sharing. */
export const KV_BLOCK_TOKENS = 32;

/** Where the tokens are that layers of a group see. */
export interface WindowTable {
  /** Leading blocks of the sequence that are not in the table: no row sees into them. */
  readonly first: number;
  /** KV block ids from there on; covers at least cached + length tokens. */
  readonly blocks: Int32Array;
}

export interface CompileOptions {
  /** KV blocks to hold. */
  readonly kvBlocks: number;
  /** Slots of recurrent state to hold; none where the model has no such layers. */
  readonly stateSlots?: number;
  /** Most rows in one step. */
  readonly maxRows: number;
  /** Most rows that want logits in one step. */
  readonly maxLogitRows: number;
  /** Most sequences in one step; by default maxRows. However many, any of them may begin with the same blocks. */
  readonly parallel?: number;
}
