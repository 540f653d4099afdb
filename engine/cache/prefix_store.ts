import type { Sequence } from "../schedule/sequence.ts";
import type { PartKind } from "./disk/types.ts";

/** The KV cache's interface to a store of prompts on a disk. */
export interface PrefixStore {
  /** Whether the store has this part of the sequence's prefix, at a block position. */
  has(sequence: Sequence, position: number, kind: PartKind): boolean;
  /** Reports how many leading tokens of an admitted sequence come from memory. */
  reused(sequence: Sequence, tokens: number): void;
  /** Reports that the block at this position holds computed tokens. */
  computed(sequence: Sequence, position: number): void;
  /** Reports that the sequence no longer holds blocks, and no longer waits for reads or writes. */
  released(sequence: Sequence): void;
}
