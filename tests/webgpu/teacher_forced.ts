/** Runs one text through several backends and measures how far their predictions differ. */
import { buildPlan, readRopeFactors } from "../../engine/architectures/registry.ts";
import {
  type Arithmetic,
  type Backend,
  type BackendName,
  greedyRequest,
  KV_BLOCK_TOKENS,
  MAX_CANDIDATES,
  type StepInput,
} from "../../engine/backend/backend.ts";
import { prepareBackend } from "../../engine/backend/choose.ts";
import { openGguf } from "../../engine/gguf/reader.ts";
import type { GgufFile } from "../../engine/gguf/types.ts";
import { type Plan, wholeTables } from "../../engine/plan/plan.ts";
import { Random } from "../../engine/sampling/random.ts";
import { sample } from "../../engine/sampling/sampler.ts";
import { DEFAULT_SAMPLING } from "../../engine/mod.ts";
import { floatCopy } from "./float_copy.ts";

/** Rows per step: few enough for the kernels of decoding. */
const ROWS = 16;

export interface Setting {
  readonly name: string;
  readonly backend: BackendName;
  readonly arithmetic?: Arithmetic;
  /** Whether to compute with the file's values in F32, so that no activation is rounded to 8 bits. */
  readonly floats?: boolean;
}

/** The distance of one setting from another, over all tokens of a text but the first. */
export interface Distance {
  readonly of: string;
  readonly from: string;
  readonly tokens: number;
  /** Kullback-Leibler divergence: mean, and that of the worst token. */
  readonly meanKl: number;
  readonly worstKl: number;
  /** Share of tokens with the same likeliest successor. */
  readonly same: number;
  /** Largest lead, in nats, of the reference's likeliest token over a differing choice; 0 if none differs. */
  readonly worstFlip: number;
  /** Relative difference of the perplexities. */
  readonly perplexity: number;
}

/** A model file on one or more backends. */
export class Readers implements Disposable {
  private constructor(
    private readonly plan: Plan,
    private readonly tokens: number,
    private readonly backends: ReadonlyMap<string, Backend>,
  ) {}

  /**
   * Opens the model with room for a text of `count` tokens. `scratch` is an empty file for the values in F32;
   * only settings with `floats` need it, and only in this call. Throws where the text exceeds the model's
   * context.
   */
  static async open(
    path: string,
    settings: readonly Setting[],
    tokens: number,
    scratch?: string,
  ): Promise<Readers> {
    const file: GgufFile = await openGguf(path);
    const factors = await readRopeFactors(file);
    const plan = buildPlan(file, factors);
    if (tokens > plan.contextLength) {
      throw new Error(`Cannot read ${tokens} tokens: the model's context holds ${plan.contextLength}`);
    }
    const kvBlocks = Math.ceil(tokens / KV_BLOCK_TOKENS);
    const size = {
      kvBlocks: kvBlocks * plan.kv.windows.length,
      stateSlots: 1,
      maxRows: ROWS,
      maxLogitRows: ROWS,
    };
    const backends = new Map<string, Backend>();
    const readers = new Readers(plan, tokens, backends);
    try {
      for (const { name, floats, ...options } of settings) {
        const read = floats ? await floatCopy(file, scratch!) : file;
        // Arithmetics that leave the gates are measured too.
        const asked = { ...options, accuracy: "any" } as const;
        const { backend } = await prepareBackend(read, buildPlan(read, factors), size, asked);
        backends.set(name, backend);
      }
      return readers;
    } catch (error) {
      readers[Symbol.dispose]();
      throw error;
    }
  }

  /** Returns a text that the first backend writes at temperature 1. The text is always the same. */
  async write(): Promise<Int32Array> {
    const [backend] = this.backends.values();
    const random = new Random(7);
    const text = Int32Array.of(random.next() * this.plan.vocabSize, ...new Int32Array(this.tokens - 1));
    const candidates = Math.min(MAX_CANDIDATES, this.plan.vocabSize);
    for (let i = 0; i + 1 < text.length; i++) {
      const step = this.#step(text, i, i + 1);
      const logits = [{ ...greedyRequest(0), candidates }];
      const { rows: [row] } = await backend.step({ ...step, logits });
      text[i + 1] = row.ids[sample(row, DEFAULT_SAMPLING, random)];
    }
    return text;
  }

  /**
   * Reads a text on all backends and returns the distances of the given pairs. `tell` receives the tokens
   * done.
   */
  async compare(
    text: Int32Array,
    pairs: readonly { readonly of: string; readonly from: string }[],
    tell: (done: number) => void,
  ): Promise<Distance[]> {
    const sums = pairs.map(() => ({ kl: 0, worst: 0, same: 0, flip: 0, surprise: 0 }));
    const last = text.length - 1; // nothing follows the last token
    for (let from = 0; from < last; from += ROWS) {
      const to = Math.min(last, from + ROWS);
      const said = new Map<string, Float64Array[]>();
      for (const [name, backend] of this.backends) said.set(name, await this.#read(backend, text, from, to));
      for (const [i, pair] of pairs.entries()) {
        const sum = sums[i];
        for (const [row, right] of said.get(pair.from)!.entries()) {
          const found = said.get(pair.of)![row];
          const kl = divergence(right, found);
          sum.kl += kl;
          sum.worst = Math.max(sum.worst, kl);
          const [best, other] = [likeliest(right), likeliest(found)];
          sum.same += best === other ? 1 : 0;
          sum.flip = Math.max(sum.flip, right[best] - right[other]);
          sum.surprise += right[text[from + row + 1]] - found[text[from + row + 1]];
        }
      }
      tell(to);
    }
    return pairs.map(({ of, from }, i) => ({
      of,
      from,
      tokens: last,
      meanKl: sums[i].kl / last,
      worstKl: sums[i].worst,
      same: sums[i].same,
      worstFlip: sums[i].flip,
      perplexity: Math.exp(sums[i].surprise / last) - 1,
    }));
  }

  /** Returns the log-probabilities of the whole vocabulary after tokens `from` to `to`. */
  async #read(backend: Backend, text: Int32Array, from: number, to: number): Promise<Float64Array[]> {
    const probe = Int32Array.from({ length: this.plan.vocabSize }, (_, token) => token);
    const logits = Array.from({ length: to - from }, (_, row) => ({ ...greedyRequest(row), probe }));
    const { rows } = await backend.step({ ...this.#step(text, from, to), logits });
    return rows.map(({ probed }) => {
      // The backend's own sum of exponentials is in f32, too coarse for divergences of 1e-7.
      const logits = Float64Array.from(probed);
      const top = logits.reduce((a, b) => Math.max(a, b));
      const sum = top + Math.log(logits.reduce((total, x) => total + Math.exp(x - top), 0));
      return logits.map((x) => x - sum);
    });
  }

  #step(text: Int32Array, from: number, to: number): Omit<StepInput, "logits"> {
    const blocks = Int32Array.from({ length: Math.ceil(to / KV_BLOCK_TOKENS) }, (_, block) => block);
    const read = from === 0 ? undefined : 0;
    const state = this.plan.states.length > 0 ? { read, write: 0, saves: [] } : undefined;
    return {
      tokens: text.subarray(from, to),
      sequences: [{ start: 0, length: to - from, cached: from, ...wholeTables(this.plan, blocks), state }],
    };
  }

  [Symbol.dispose](): void {
    for (const backend of this.backends.values()) backend.close();
  }
}

/** Returns the Kullback-Leibler divergence of b from a, both log-probabilities of the same tokens. */
export function divergence(a: Float64Array, b: Float64Array): number {
  return a.reduce((sum, p, token) => sum + Math.exp(p) * (p - b[token]), 0);
}

function likeliest(row: Float64Array): number {
  return row.reduce((best, p, token) => p > row[best] ? token : best, 0);
}
