import {
  type GivenRow,
  greedyRequest,
  type LogitsRequest,
  type StepInput,
  type StepSequence,
  type WindowTable,
} from "../backend/backend.ts";
import { blocksFor } from "../cache/kv_blocks.ts";
import type { Scheduled } from "./step_part.ts";
import type { StepMasks } from "../sampling/step_masks.ts";
import { type Sequence, unscored } from "./sequence.ts";
import { givenRows, placesOf, spansWithin } from "./images.ts";

const EMPTY = new Int32Array(0);

/**
 * Builds the backend's input for a step. Logits of a part are ordered: scores, the new token, the token after each
 * draft.
 */
export class StepWriter {
  readonly #tokens: Int32Array; // [maxRows]

  constructor(maxRows: number) {
    this.#tokens = new Int32Array(maxRows);
  }

  /**
   * Returns the step's input, with block tables for `further` more rows per sequence. `masks` belong to the sequences
   * that sample. Valid until the next call or until the sequences change.
   */
  write(step: readonly Scheduled[], masks?: StepMasks, further = 0): StepInput {
    const sequences: StepSequence[] = [];
    const logits: LogitsRequest[] = [];
    const pools: number[] = [];
    const given: GivenRow[] = [];
    let start = 0;
    for (const { sequence, rows: own, scores, samples, drafts, pools: pooled, state } of step) {
      if (pooled) pools.push(sequences.length);
      const rows = own + drafts.length;
      const end = sequence.kv.cached + rows;
      this.#tokens.set(sequence.tokens.subarray(sequence.kv.cached, end), start);
      const blocks = blocksFor(end + further);
      const blockTable = sequence.kv.blocks.subarray(0, blocks);
      const windowTables = sequence.kv.windows.map((window): WindowTable => (
        { first: window.first, blocks: window.blocks.subarray(window.first, blocks) }
      ));
      const { adapters, images, kv: { cached } } = sequence;
      const places = images && placesOf(images.placed, cached, end);
      if (images) given.push(...givenRows(images, cached, end, start));
      const spans = images && spansWithin(images, cached, end);
      sequences.push({
        start,
        length: rows,
        cached,
        blockTable,
        windowTables,
        state,
        places,
        spans,
        adapters,
      });
      const first = unscored(sequence)?.first ?? 0;
      for (let scored = first; scored < first + scores; scored++) {
        logits.push(scoreRequest(sequence, scored, start + scored - 1 - sequence.kv.cached));
      }
      start += rows;
      if (!samples) continue;
      const last = start - 1 - drafts.length;
      logits.push(tokenRequest(sequence, last, masks?.get(sequence)));
      for (let i = 1; i <= drafts.length; i++) {
        logits.push(tokenRequest(sequence, last + i, masks?.get(sequence, i), drafts.subarray(0, i)));
      }
    }
    return { tokens: this.#tokens.subarray(0, start), sequences, logits, pools, given };
  }
}

/** Returns the logits request of the token that follows the sequence's tokens and `drafts`. */
function tokenRequest(
  sequence: Sequence,
  row: number,
  mask?: Promise<Uint32Array>,
  drafts: Int32Array = EMPTY,
): LogitsRequest {
  const { logits, counts } = sequence.sampler;
  const counted = drafts.length > 0 ? counts?.with(drafts) : counts;
  return {
    ...logits,
    row,
    mask,
    penaltyTokens: counted ? counted.tokens : EMPTY,
    penaltyCounts: counted ? counted.counts : EMPTY,
    ...biasesAfter(sequence, drafts),
  };
}

/** Returns the request's biases minus the DRY penalties, as if `drafts` followed the sequence's tokens. */
function biasesAfter(
  { sampler: { dry, params }, tokens, length }: Sequence,
  drafts: Int32Array,
): Partial<LogitsRequest> {
  const drafted = drafts.length > 0 ? dry?.with(drafts) : dry;
  const penalties = drafted?.penalties(tokens.subarray(0, length + drafts.length));
  if (!penalties || penalties.size === 0) return {};
  const biases = new Map(params.logitBias);
  for (const [token, penalty] of penalties) biases.set(token, (biases.get(token) ?? 0) - penalty);
  return { biasTokens: Int32Array.from(biases.keys()), biasValues: Float32Array.from(biases.values()) };
}

/** Returns the request that scores one token: a prompt token with alternatives, a forced answer token without. */
function scoreRequest(sequence: Sequence, scored: number, row: number): LogitsRequest {
  return {
    ...greedyRequest(row),
    candidates: scored < sequence.promptLength ? Math.max(1, sequence.logprobs ?? 0) : 1,
    probe: sequence.tokens.subarray(scored, scored + 1),
  };
}
