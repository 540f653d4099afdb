import { type Plan, pooledColumns, tallyCount } from "../../plan/plan.ts";
import { WordWriter } from "../../plan/words.ts";
import {
  type CacheParts,
  type Candidates,
  drawMark,
  type LogitsRequest,
  type StepInput,
  type StepOutput,
} from "../backend.ts";

/** Code for a missing slot. In place of the number of pooled rows it marks a draft. */
const NONE = 0xffffffff;

/**
 * Returns a step in the words that rust-kernels/src/step.rs reads. Grammar masks follow while the step runs, numbered
 * from 1 in the order of the requests.
 */
export function encodeStep(w: WordWriter, input: StepInput): Uint8Array<ArrayBuffer> {
  const { pools = [], drafts, given = [] } = input;
  const counts = [input.tokens.length, input.sequences.length, input.logits.length];
  w.u32(...counts, drafts ? NONE : pools.length).i32s(input.tokens);
  if (drafts) w.i32s(drafts);
  for (const s of input.sequences) {
    const { read = NONE, write = NONE, saves = [] } = s.state ?? {};
    const spans = s.spans ?? [];
    w.u32(s.start, s.length, s.cached, read, write, saves.length, s.places ? 1 : 0, spans.length);
    for (const { after, slot } of saves) w.u32(after, slot);
    for (const { first, end } of spans) w.u32(first, end);
    if (s.places) w.i32s(s.places);
    w.u32(0, s.blockTable.length).i32s(s.blockTable);
    for (const { first, blocks } of s.windowTables ?? []) w.u32(first, blocks.length).i32s(blocks);
  }
  let masks = 0;
  for (const r of input.logits) {
    w.u32(r.row, r.candidates).f32(r.repetitionPenalty).f32(r.presencePenalty).f32(r.frequencyPenalty);
    w.f32(r.draw ? r.draw.temperature : 0).u32(r.draw ? drawMark(r.draw, positionOf(r.row, input)) : 0);
    w.u32(r.penaltyTokens.length, r.biasTokens.length, r.mask ? ++masks : 0, r.probe.length);
    w.i32s(r.penaltyTokens).i32s(r.penaltyCounts).i32s(r.biasTokens).f32s(r.biasValues);
    w.i32s(r.probe);
  }
  w.u32(...pools, given.length);
  if (given.length > 0) w.room(given.length * (4 + given[0].values.byteLength));
  for (const { row } of given) w.u32(row);
  for (const { values } of given) w.f32s(values);
  if (input.sequences.some(({ adapters = [] }) => adapters.length > 0)) {
    for (const { adapters = [] } of input.sequences) {
      w.u32(adapters.length);
      for (const { id, scale } of adapters) w.u32(id).f32(scale);
    }
  }
  return w.bytes();
}

function positionOf(row: number, { sequences }: StepInput): number {
  const { start, cached } = sequences.find(({ start, length }) => row < start + length)!;
  return cached + row - start;
}

/** Number of words at the start of an answer: count, log-sum-exp, standard deviation. */
const HEAD_WORDS = 3;
/** Number of words of a drawn token: its id, logit and raw logit. */
const DRAWN_WORDS = 3;

/** Returns the number of words of one answer: its start, ids, logits, raw logits, probed logits and the drawn token. */
function answerWords(r: LogitsRequest): number {
  return HEAD_WORDS + 3 * r.candidates + r.probe.length + (r.draw ? DRAWN_WORDS : 0);
}

/** Number of floats in a pooled row, and of the sums that each step except a draft returns. */
export interface AnswerShape {
  readonly pooled: number;
  readonly tallies: number;
}

/** Returns the shape of the answers to a plan's steps. */
export function answerShape(plan: Plan): AnswerShape {
  return { pooled: pooledColumns(plan), tallies: tallyCount(plan) };
}

/** Returns the bytes of a step's answers. */
export function answerBytes(input: StepInput, { pooled, tallies }: AnswerShape): number {
  const candidates = input.logits.reduce((sum, r) => sum + answerWords(r), 0);
  return 4 * (candidates + pooled * (input.pools?.length ?? 0) + (input.drafts ? 0 : tallies));
}

/** Returns the answers as views of `bytes`, which the caller must not change afterwards. */
export function decodeAnswers(
  bytes: Uint8Array<ArrayBuffer>,
  input: StepInput,
  { pooled, tallies }: AnswerShape,
): StepOutput {
  const ints = new Int32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4);
  const floats = new Float32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4);
  let at = 0;
  const rows = input.logits.map((r): Candidates => {
    const [n, k] = [ints[at], r.candidates];
    const from = (part: number) => at + HEAD_WORDS + part * k;
    const probed = from(3);
    const row = {
      ids: ints.subarray(from(0), from(0) + n),
      logits: floats.subarray(from(1), from(1) + n),
      rawLogits: floats.subarray(from(2), from(2) + n),
      logSumExp: floats[at + 1],
      deviation: floats[at + 2],
      probed: floats.subarray(probed, probed + r.probe.length),
    };
    at += answerWords(r);
    if (!r.draw || n === 0) return row;
    const drawn = probed + r.probe.length;
    return withDrawn(row, ints[drawn], floats[drawn + 1], floats[drawn + 2]);
  });
  const pools = input.pools?.map(() => floats.subarray(at, at += pooled));
  if (tallies === 0) return { rows, pooled: pools };
  return { rows, pooled: pools, tallies: floats.subarray(at, at + tallies) };
}

/** Returns the candidates with the drawn token, and adds the token if it is not among them. */
function withDrawn(row: Candidates, token: number, logit: number, rawLogit: number): Candidates {
  const drawn = row.ids.indexOf(token);
  if (drawn >= 0) return { ...row, drawn };
  return {
    ...row,
    ids: Int32Array.of(...row.ids, token),
    logits: Float32Array.of(...row.logits, logit),
    rawLogits: Float32Array.of(...row.rawLogits, rawLogit),
    drawn: row.ids.length,
  };
}

/** Returns the words that name cache parts to copy, as rust-kernels/src/cache.rs reads them. */
export function partWords({ blocks, slots }: CacheParts): WordWriter {
  const words = new WordWriter().u32(blocks.length, slots.length);
  for (const { group, block } of blocks) words.u32(group, block);
  return words.u32(...slots);
}
