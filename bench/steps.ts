import {
  type Backend,
  greedyRequest,
  KV_BLOCK_TOKENS,
  type LogitsRequest,
  type StepInput,
  type StepSequence,
} from "../engine/backend/backend.ts";
import { MAX_ROWS } from "../engine/load/size.ts";
import { type Plan, wholeTables } from "../engine/plan/plan.ts";

/** Returns the number of KV blocks for `tokens` tokens. */
export function blocksOf(tokens: number): number {
  return Math.ceil(tokens / KV_BLOCK_TOKENS);
}

/**
 * Runs steps like those of the engine. Each sequence has `blocks` KV blocks in each group of layers. All sequences
 * share the first `shared` blocks of sequence 0; the other blocks are their own.
 */
export class Steps {
  readonly #tables: Int32Array[] = [];

  constructor(
    private readonly backend: Backend,
    private readonly plan: Plan,
    private readonly blocks: number,
    private readonly shared = 0,
  ) {}

  /** Returns the seconds to prefill tokens `from` to `to` of one sequence's prompt, with logits for the last row. */
  async prefill(sequence: number, from: number, to: number): Promise<number> {
    const start = performance.now();
    for (let cached = from; cached < to; cached += MAX_ROWS) {
      const length = Math.min(MAX_ROWS, to - cached);
      await this.backend.step(this.prefillStep(sequence, cached, length, cached + length === to));
    }
    return (performance.now() - start) / 1000;
  }

  /**
   * Returns the step for `length` tokens of one sequence's prompt after `cached`. With `last`, the last row has logits.
   */
  prefillStep(sequence: number, cached: number, length: number, last: boolean): StepInput {
    return {
      tokens: this.#tokens(length, sequence + cached),
      sequences: [this.#part(sequence, 0, length, cached)],
      logits: last ? [greedyRequest(length - 1)] : [],
    };
  }

  /** Returns the step for tokens `from` to `to` of a text, which is the first sequence, with these logits. */
  textStep(text: Int32Array, from: number, to: number, logits: readonly LogitsRequest[]): StepInput {
    return { tokens: text.subarray(from, to), sequences: [this.#part(0, 0, to - from, from)], logits };
  }

  /**
   * Returns the seconds to prefill `count` prompts, as many per step as fit, with logits for each prompt's last row.
   */
  async prefillTogether(count: number, length: number): Promise<number> {
    const start = performance.now();
    const fit = Math.max(1, Math.floor(MAX_ROWS / length));
    for (let first = 0; first < count; first += fit) {
      const parts = Array.from(
        { length: Math.min(fit, count - first) },
        (_, i) => this.#part(first + i, i * length, length, 0),
      );
      await this.backend.step({
        tokens: this.#tokens(parts.length * length, first),
        sequences: parts,
        logits: parts.map((part) => greedyRequest(part.start + length - 1)),
      });
    }
    return (performance.now() - start) / 1000;
  }

  /** Returns the seconds to encode `count` whole texts, as many per step as fit. */
  async texts(count: number, length: number): Promise<number> {
    const start = performance.now();
    const fit = Math.max(1, Math.floor(MAX_ROWS / length));
    for (let first = 0; first < count; first += fit) {
      const parts = Array.from(
        { length: Math.min(fit, count - first) },
        (_, i) => this.#part(0, i * length, length, 0),
      );
      await this.backend.step({
        tokens: this.#tokens(parts.length * length, first),
        sequences: parts,
        logits: [],
        pools: [...parts.keys()],
      });
    }
    return (performance.now() - start) / 1000;
  }

  /** Returns the seconds to decode `tokens` tokens after `context` tokens in each of `count` sequences. */
  async decode(count: number, context: number, tokens: number): Promise<number> {
    const start = performance.now();
    for (let cached = context; cached < context + tokens; cached++) {
      await this.backend.step(this.decodeStep(count, cached));
    }
    return (performance.now() - start) / 1000;
  }

  /**
   * Returns the step for `rows` tokens after `cached` tokens in each of `count` sequences, with logits for every row.
   */
  decodeStep(count: number, cached: number, rows = 1): StepInput {
    const logits = Array.from({ length: count * rows }, (_, row) => greedyRequest(row));
    const sequences = Array.from({ length: count }, (_, i) => this.#part(i, i * rows, rows, cached));
    return { tokens: this.#tokens(count * rows, cached), sequences, logits };
  }

  #part(sequence: number, start: number, length: number, cached: number): StepSequence {
    const read = cached === 0 ? undefined : sequence;
    const state = this.plan.states.length > 0 ? { read, write: sequence, saves: [] } : undefined;
    return { start, length, cached, ...wholeTables(this.plan, this.#table(sequence)), state };
  }

  #table(sequence: number): Int32Array {
    const from = sequence * this.blocks;
    return this.#tables[sequence] ??= Int32Array.from(
      { length: this.blocks },
      (_, i) => i < this.shared ? i : from + i,
    );
  }

  /** Returns arbitrary tokens that are not all equal. */
  #tokens(count: number, seed: number): Int32Array {
    return Int32Array.from({ length: count }, (_, i) => (i * 37 + seed * 11) % this.plan.vocabSize);
  }
}
