/**
 * The type of the KV cache's keys and values: 16 bits each, or blocks of 32 numbers with one f16 scale per block. In
 * `q8_0` each number takes 8 bits. In `q4_0` numbers of values take 4 bits and numbers of keys 6, because keys need
 * more precision. The 16 bits are f16 on the GPU. On the CPU they are integers with one scale per head and token: more
 * accurate than f16, and twice as fast to multiply. In `q4_0` the CPU rotates each head by a Hadamard matrix before it
 * stores the head. The GPU does not support `q4_0`.
 *
 * ```ts
 * import { type KvType, loadModel } from "compy";
 *
 * const kvType: KvType = "q8_0"; // the KV cache in 53 % of the memory
 * await using model = await loadModel(undefined, { kvType });
 * console.log(model.info.memory.kv);
 * ```
 */
export type KvType = "f16" | "q8_0" | "q4_0";
/** All types of the KV cache, for checks and messages. */
export const KV_TYPES: readonly KvType[] = ["f16", "q8_0", "q4_0"];
export const DEFAULT_KV_TYPE: KvType = "f16";
/** Names of the KV cache's types in messages about memory. */
export const KV_WORDS: Readonly<Record<KvType, string>> = {
  f16: "16 bits",
  q8_0: "q8_0",
  q4_0: "q4_0",
};

/**
 * The precision of activations that the CPU multiplies with quantized weights: 8 bits, or two planes of 8 bits, which
 * keep about 15 bits.
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
/** All precisions of activations; the first is the default. */
export const ACTIVATION_PRECISIONS: readonly ActivationPrecision[] = ["fast", "fine"];

/** Tokens that one KV block holds: the unit of allocation and of prefix sharing. */
export const KV_BLOCK_TOKENS = 32;

/** The KV blocks of a sequence in one group of layers. */
export interface WindowTable {
  /** Number of leading blocks that the table omits, because no row attends to them. */
  readonly first: number;
  /** Ids of the following KV blocks, enough for cached + length tokens. */
  readonly blocks: Int32Array;
}

export interface CompileOptions {
  /** Number of KV blocks to allocate. */
  readonly kvBlocks: number;
  /** Number of slots of recurrent state to allocate; none if the model has no recurrent layers. */
  readonly stateSlots?: number;
  /** Maximum rows in one step. */
  readonly maxRows: number;
  /** Maximum rows with logits in one step. */
  readonly maxLogitRows: number;
  /** Maximum sequences in one step; by default maxRows. Any of them may share leading blocks. */
  readonly parallel?: number;
}
