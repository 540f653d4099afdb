import {
  type Backend,
  greedyRequest,
  KV_BLOCK_TOKENS,
  type StepInput,
  type StepSequence,
  StepStopped,
} from "../backend/backend.ts";
import { blocksFor } from "../kv_blocks.ts";
import type { Sequence } from "../sequence.ts";
import {
  type ComputedRows,
  type Draft,
  type Drafter,
  type DraftWanted,
  GRADES,
  NO_DRAFT,
} from "./drafter.ts";

/** A token that the layer takes to be less likely than this ends a draft. */
const LEAST = 0.3;

/** A draft under way. */
interface Drafting {
  readonly sequence: Sequence;
  /** The row that it continues from. */
  readonly row: number;
  /** Index among those that are wanted. */
  readonly index: number;
  readonly most: number;
  readonly tokens: number[];
  readonly grades: number[];
}

/**
 * Drafts from the model's own layer for them (MTP: multi-token prediction), a token a step of that layer alone, of all sequences
 * together. It continues from the rows that the last step has left in the backend's memory, and its keys and values lie in the
 * sequence's own KV blocks, where each step writes those of its tokens: nothing is kept here but which row is whose. A grade is how
 * likely the layer takes the token to be.
 */
export class MtpDrafter implements Drafter {
  readonly kind = "mtp";
  readonly free = false;
  /** Of each sequence of the last step its last row that counts, and the position of that row's token. */
  #last = new Map<Sequence, { readonly row: number; readonly position: number }>();

  /** The backend has a plan that can draft. */
  constructor(private readonly backend: Backend) {}

  computed(rows: readonly ComputedRows[]): void {
    this.#last = new Map(rows.map(({ sequence, start, position, valid }) => [
      sequence,
      { row: start + valid - 1, position: position + valid - 1 },
    ]));
  }

  forget(sequence: Sequence): void {
    this.#last.delete(sequence);
  }

  async draft(wanted: readonly DraftWanted[]): Promise<readonly Draft[]> {
    const drafts = wanted.flatMap(({ sequence, most }, index): Drafting[] => {
      const last = this.#last.get(sequence);
      // Behind forced tokens, and where it took no part in the last step, there is no row to go on from.
      if (last?.position !== sequence.length - 2) return [];
      const room = sequence.blockCount * KV_BLOCK_TOKENS - sequence.length + 1;
      return [{ sequence, row: last.row, index, most: Math.min(most, room), tokens: [], grades: [] }];
    });
    this.#last.clear(); // drafts leave their own rows there
    let open = drafts;
    while (open.length > 0 && await this.#next(open)) {
      open = open.filter(({ sequence, most, tokens, grades }) =>
        !sequence.done && tokens.length < most && grades.at(-1)! >= LEAST * GRADES
      );
    }
    const found = new Map(drafts.map((draft) => [draft.index, draft]));
    return wanted.map((_, index) => {
      const { tokens = [], grades = [] } = found.get(index) ?? {};
      return tokens.length === 0
        ? NO_DRAFT
        : { tokens: Int32Array.from(tokens), grades: Uint8Array.from(grades) };
    });
  }

  /** Adds a token to each of the drafts; false where the step was stopped. */
  async #next(drafts: readonly Drafting[]): Promise<boolean> {
    try {
      const { rows } = await this.backend.step(inputOf(drafts));
      for (const [i, { tokens, grades }] of drafts.entries()) {
        const { ids, logits, logSumExp } = rows[i];
        // Damaged weights have no usable logits: any token is as good as another.
        const chance = Math.exp(logits[0] - logSumExp);
        tokens.push(ids.length > 0 ? ids[0] : 0);
        grades.push(chance > 0 ? Math.min(GRADES - 1, Math.floor(GRADES * chance)) : 0);
      }
      return true;
    } catch (error) {
      if (error instanceof StepStopped) return false;
      throw error;
    }
  }
}

/** A row for each draft: of its last token, or else of the sequence's. */
function inputOf(drafts: readonly Drafting[]): StepInput {
  const sequences = drafts.map(({ sequence, tokens }, start): StepSequence => {
    const cached = sequence.length - 1 + tokens.length;
    const blocks = blocksFor(cached + 1);
    return {
      start,
      length: 1,
      cached,
      blockTable: sequence.blocks.subarray(0, blocks),
      windowTables: sequence.windows.map(({ first, blocks: held }) => (
        { first, blocks: held.subarray(first, blocks) }
      )),
    };
  });
  return {
    tokens: Int32Array.from(
      drafts,
      ({ sequence, tokens }) => tokens.at(-1) ?? sequence.tokens[sequence.length - 1],
    ),
    sequences,
    logits: drafts.map((_, row) => greedyRequest(row)),
    drafts: Int32Array.from(drafts, ({ row }) => row),
  };
}
