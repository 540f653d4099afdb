import {
  AXES,
  type Backend,
  type Candidates,
  greedyRequest,
  KV_BLOCK_TOKENS,
  type StepInput,
  type StepSequence,
  StepStopped,
} from "../backend/backend.ts";
import { blocksFor } from "../cache/kv_blocks.ts";
import { placesOf } from "../schedule/images.ts";
import type { Sequence } from "../schedule/sequence.ts";
import {
  type ComputedRows,
  type Draft,
  type Drafter,
  type DraftWanted,
  GRADES,
  NO_DRAFT,
} from "./drafter.ts";

/** A draft ends after a token that the layer considers less likely than this. */
const LEAST = 0.3;

/** Differences of a drafter's layer from a model's own draft layer. */
export interface LayerOptions {
  /** Maps the layer's tokens to the model's tokens, if the vocabularies differ. */
  readonly tokens?: Int32Array;
  /**
   * Whether the layer reads the model's KV cache instead of its own. All tokens of a draft then have the position of
   * the first one, and attend to the tokens before this position.
   */
  readonly onePosition?: boolean;
}

/** An unfinished draft. */
interface Drafting {
  readonly sequence: Sequence;
  /** The row to continue from. */
  readonly row: number;
  /** Index in the wanted list. */
  readonly index: number;
  readonly most: number;
  readonly tokens: number[];
  readonly grades: number[];
}

/**
 * Drafts with the plan's draft layer: the model's own layer (MTP: multi-token prediction), or the layer of a drafter in
 * its own file. One step of this layer drafts one token for each sequence.
 *
 * A draft continues from rows that the last step left in the backend's memory. Every step writes the layer's keys and
 * values into the sequence's own KV blocks. The drafter therefore stores only the index of each sequence's row. A grade
 * is the probability that the layer gives the token.
 */
export class MtpDrafter implements Drafter {
  readonly kind = "mtp";
  readonly free = false;
  /** The last valid row of each sequence in the last step, and its token's position. */
  #last = new Map<Sequence, { readonly row: number; readonly position: number }>();

  /** The backend's plan must have a draft layer. */
  constructor(private readonly backend: Backend, private readonly layer: LayerOptions = {}) {}

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
      // After forced tokens, or where the sequence was not in the last step, there is no row to continue
      // from.
      if (last?.position !== sequence.length - 2) return [];
      const room = sequence.kv.blockCount * KV_BLOCK_TOKENS - sequence.length + 1;
      return [{ sequence, row: last.row, index, most: Math.min(most, room), tokens: [], grades: [] }];
    });
    this.#last.clear(); // drafts overwrite the rows
    let open = drafts;
    while (open.length > 0 && await this.#next(open)) {
      open = open.filter(({ sequence, most, tokens, grades }) =>
        !sequence.progress.done && tokens.length < most && grades.at(-1)! >= LEAST * GRADES
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

  /** Adds a token to each draft. Returns false where the step was stopped. */
  async #next(drafts: readonly Drafting[]): Promise<boolean> {
    try {
      const { rows } = await this.backend.step(inputOf(drafts, this.layer));
      for (const [i, { tokens, grades }] of drafts.entries()) {
        const { token, grade } = choiceOf(rows[i], this.layer.tokens);
        tokens.push(token);
        grades.push(grade);
      }
      return true;
    } catch (error) {
      if (error instanceof StepStopped) return false;
      throw error;
    }
  }
}

/** Returns the most likely token of a row, as the model's token id, and its grade. */
export function choiceOf(
  { ids, logits, logSumExp }: Candidates,
  tokens?: Int32Array,
): { readonly token: number; readonly grade: number } {
  // Damaged weights give no usable logits. Then any token is allowed, because the model verifies it.
  const chance = Math.exp(logits[0] - logSumExp);
  const [id = 0] = ids;
  const grade = chance > 0 ? Math.min(GRADES - 1, Math.floor(GRADES * chance)) : 0;
  return { token: tokens ? tokens[id] : id, grade };
}

/**
 * Returns a sequence's part of a draft step: `length` rows from row `start` on, after `cached` tokens. Block tables of
 * windows begin `earlier` blocks before the first block that the sequence holds.
 */
export function draftedPart(
  { kv, images }: Sequence,
  start: number,
  cached: number,
  length: number,
  earlier = 0,
): StepSequence {
  const blocks = blocksFor(cached + length);
  return {
    start,
    length,
    cached,
    places: images && placesOf(images.placed, cached, cached + length),
    blockTable: kv.blocks.subarray(0, blocks),
    windowTables: kv.windows.map(({ first: kept, blocks: held }) => {
      const first = Math.max(0, kept - earlier);
      return { first, blocks: held.subarray(first, blocks) };
    }),
  };
}

/** Returns a step with one row per draft: the draft's last token, or for an empty draft the sequence's last token. */
function inputOf(drafts: readonly Drafting[], { onePosition }: LayerOptions): StepInput {
  const sequences = drafts.map(({ sequence, tokens }, start): StepSequence => {
    const position = sequence.length - 1 + (onePosition ? 0 : tokens.length);
    // The model's KV cache has no entry for this position yet, so the row attends to the entries before it.
    const cached = onePosition ? position - 1 : position;
    // The kernels need a table for the whole window of the previous row. The cache may have released the window's first
    // block, but the layer does not read it: the layer's window is one position shorter.
    const part = draftedPart(sequence, start, cached, 1, onePosition ? 1 : 0);
    return onePosition ? { ...part, places: new Uint32Array(AXES).fill(position) } : part;
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
