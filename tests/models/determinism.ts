/** The bits of a sequence's answers, for different ways to compute it. */
import type { TensorType } from "../../engine/gguf/types.ts";
import { type KernelModel, type Run, shuffledBlocks, type Wanted } from "../../testing/kernel_model.ts";
import { prompt } from "./parity_cases.ts";
import { type Architecture, synthesize } from "../../testing/synth/synth.ts";

export const PROMPT = 200;
export const ANSWER = 4;
export const VOCABULARY = 500;
export const BLOCKS = 7;
export const LIMITS = { kvBlocks: 8 * BLOCKS, maxRows: 256, maxLogitRows: 32 };
export const EVERYTHING: Wanted = { candidates: 8, probe: Array.from({ length: VOCABULARY }, (_, i) => i) };

/** A model that alternates these formats over its matrices. */
export function mixedModel(
  architecture: Architecture,
  types: readonly TensorType[],
): Uint8Array<ArrayBuffer> {
  return synthesize({ architecture, seed: 5, types, vocabulary: VOCABULARY });
}

/** One way to compute the sequence. */
export interface Way {
  /** Tokens of the prompt (default and maximum: PROMPT). */
  readonly prompt?: number;
  /** Maximum tokens of the prompt per step. */
  readonly chunk: number;
  /** Number of concurrent sequences. */
  readonly others?: number;
  /** Which of eight ranges of KV blocks the sequence uses; `shuffled` says whether the blocks are out of order. */
  readonly range?: number;
  readonly ordered?: boolean;
}

/** The bits of every logit, log-sum-exp and candidate, after the prompt and after each later token. */
export async function bits(model: KernelModel, way: Way): Promise<Uint32Array[]> {
  const { prompt: promptTokens = PROMPT, chunk, others = 0, range = 0, ordered } = way;
  const blockTable = ordered
    ? Int32Array.from({ length: BLOCKS }, (_, i) => range * BLOCKS + i)
    : shuffledBlocks(range * BLOCKS, BLOCKS);
  const tokens = [...prompt(promptTokens), 7, 7, 300, 499];
  const out: Uint32Array[] = [];
  for (let cached = 0, step = 0; cached < promptTokens + ANSWER; step++) {
    const length = cached < promptTokens ? Math.min(chunk, promptTokens - cached) : 1;
    const wanted = cached + length >= promptTokens ? [EVERYTHING] : [];
    const run: Run = {
      tokens: tokens.slice(cached, cached + length),
      cached,
      blockTable,
      wanted,
      slot: range,
    };
    const beside = Array.from({ length: others }, (_, i) => neighbour(i, step, (range + 1 + i) % 8 * BLOCKS));
    const middle = others >> 1;
    const answers = await model.step([...beside.slice(0, middle), run, ...beside.slice(middle)]);
    for (const { ids, logits, logSumExp, probed } of answers[middle]) {
      const floats = new Float32Array([...ids, ...logits, logSumExp, ...probed]);
      out.push(new Uint32Array(floats.buffer));
    }
    cached += length;
  }
  return out;
}

/**
 * Returns the rows of neighbour `i` in a step. The neighbour restarts when its blocks are full, and requests logits in
 * half of its steps.
 */
function neighbour(i: number, step: number, firstBlock: number): Run {
  const length = 1 + (i * 3 + step) % 8;
  const cached = step * 8 % (BLOCKS * 32 - 8);
  const tokens = Array.from({ length }, (_, k) => (i * 91 + step * 17 + k * 53) % VOCABULARY);
  return {
    tokens,
    cached,
    blockTable: shuffledBlocks(firstBlock, BLOCKS),
    slot: firstBlock / BLOCKS,
    wanted: (i + step) % 2 ? [{}] : [],
  };
}
