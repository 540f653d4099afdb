import { type Backend, greedyRequest, KV_BLOCK_TOKENS, StepStopped } from "../backend/backend.ts";
import type { EngineLimits } from "../schedule/limits.ts";
import type { Sequence } from "../schedule/sequence.ts";
import { type Draft, type Drafter, type DraftWanted, NO_DRAFT } from "./drafter.ts";
import { choiceOf, draftedPart } from "./mtp.ts";

/** The shape of a pass, and the limits of its step. */
export interface BlockOptions extends Pick<EngineLimits, "maxRows" | "maxLogitRows"> {
  /** Maximum number of rows per sequence. */
  readonly rows: number;
  readonly mask: number;
  /** Maps the drafter's tokens to the model's tokens, if the vocabularies differ. */
  readonly tokens?: Int32Array;
}

/** A draft to compute, of `most` tokens. */
interface Drafting {
  readonly sequence: Sequence;
  /** Index in the wanted list. */
  readonly index: number;
  readonly most: number;
}

/**
 * Drafts with the plan's draft layers (DFlash): one pass drafts all tokens of all sequences. A sequence has one row
 * with its last token, and one row with the mask token per drafted token. Every step writes the layers' keys and values
 * into the sequence's own KV blocks, so the drafter stores nothing. A grade is the probability that the layers give the
 * token.
 */
export class BlockDrafter implements Drafter {
  readonly kind = "mtp";
  readonly free = false;

  /** The backend's plan must have layers that draft in one pass. */
  constructor(private readonly backend: Backend, private readonly options: BlockOptions) {}

  async draft(wanted: readonly DraftWanted[]): Promise<readonly Draft[]> {
    const { rows, maxRows, maxLogitRows } = this.options;
    const share = (rows: number) => Math.floor(rows / wanted.length);
    const longest = Math.min(rows - 1, share(maxLogitRows), share(maxRows) - 1);
    const drafts = wanted.flatMap(({ sequence, most }, index): Drafting[] => {
      // After forced tokens, the KV cache lacks some tokens before the last one.
      if (sequence.kv.cached !== sequence.length - 1) return [];
      const room = sequence.kv.blockCount * KV_BLOCK_TOKENS - sequence.length;
      const fits = Math.min(most, longest, room);
      return fits > 0 ? [{ sequence, index, most: fits }] : [];
    });
    const found = drafts.length === 0 ? [] : await this.#run(drafts);
    const all = wanted.map(() => NO_DRAFT);
    for (const [i, draft] of found.entries()) all[drafts[i].index] = draft;
    return all;
  }

  /** Returns the drafts; no drafts if the step was stopped. */
  async #run(drafts: readonly Drafting[]): Promise<Draft[]> {
    const tokens: number[] = [];
    const sequences = drafts.map(({ sequence, most }) => {
      const cached = sequence.length - 1;
      const part = draftedPart(sequence, tokens.length, cached, 1 + most);
      tokens.push(sequence.tokens[cached], ...Array<number>(most).fill(this.options.mask));
      return { ...part, spans: [{ first: cached, end: cached + part.length }] };
    });
    const masked = sequences.flatMap(({ start, length }) =>
      Array.from({ length: length - 1 }, (_, i) => start + 1 + i)
    );
    try {
      const { rows } = await this.backend.step({
        tokens: Int32Array.from(tokens),
        sequences,
        logits: masked.map(greedyRequest),
        drafts: Int32Array.from(tokens.keys()),
      });
      let next = 0;
      return drafts.map(({ most }) => {
        const choices = rows.slice(next, next += most).map((row) => choiceOf(row, this.options.tokens));
        return {
          tokens: Int32Array.from(choices, ({ token }) => token),
          grades: Uint8Array.from(choices, ({ grade }) => grade),
        };
      });
    } catch (error) {
      if (error instanceof StepStopped) return [];
      throw error;
    }
  }
}
