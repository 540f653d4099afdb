import type { Candidates, Draw, LogitsRequest, StepInput } from "../../backend.ts";
import type { StepSize } from "./dispatch.ts";
import { NO_SLOT, ROW_WORDS, type TableLayout } from "./layout.ts";
import { type Spans, spansOf } from "../ops/attention/attention_shape.ts";
import {
  ADJUST_WORDS,
  DRAW_WORDS,
  drawFlags,
  DRAWN_WORDS,
  HEAD_WORDS,
  WANT_WORDS,
} from "../ops/logits/wants.ts";

/** The data of a step in the form that kernels read. */
export interface StepData {
  readonly rows: Uint32Array<ArrayBuffer>; // [rows][4]: token, position, first entry of its block table, 0 (not ended)
  /** Spans and block tables in the order of `TableLayout`. */
  readonly tables: Uint32Array<ArrayBuffer>;
  /** How attention groups the rows. */
  readonly spans: Spans;
  /** Slots of recurrent state to read and write; empty if the model has none. */
  readonly carries: Uint32Array<ArrayBuffer>;
  readonly chosen: Uint32Array<ArrayBuffer>; // [logit rows]
  readonly wants: Uint32Array<ArrayBuffer>;
  /** Offsets of grammar masks in `wants`; the masks arrive while the step runs. */
  readonly masks: readonly { readonly at: number; readonly mask: Promise<Uint32Array> }[];
  readonly answerWords: number;
  /** Whether any row has penalties, bias or a mask. */
  readonly adjusts: boolean;
  /** Whether any row draws its token, and whether any draws from the whole vocabulary. */
  readonly draws: boolean;
  readonly wholeDraws: boolean;
}

/** Encodes a step for the GPU. `vocabSize`: number of tokens that a mask covers. */
export function encodeStep(input: StepInput, vocabSize: number, layout: TableLayout): StepData {
  const rows = new Uint32Array(ROW_WORDS * input.tokens.length);
  const spans = spansOf(input.sequences, layout.tileRows);
  const tables = encodeTables(input, layout, spans, rows);
  const adjustments = input.logits.map(adjustmentsOf);
  const { wants, masks, answerWords } = encodeWants(input.logits, adjustments, Math.ceil(vocabSize / 32));
  return {
    rows,
    tables,
    spans,
    carries: encodeCarries(input.sequences),
    chosen: Uint32Array.from(input.logits, ({ row }) => row),
    wants,
    masks,
    answerWords,
    adjusts: input.logits.some((r, i) => adjustments[i].length > 0 || r.mask),
    draws: input.logits.some(({ draw }) => draw),
    wholeDraws: input.logits.some(({ draw }) => draw?.whole),
  };
}

/** Returns the size of the last of `steps` consecutive decode steps, of which `input` is the first. */
export function sizeOf(
  { tokens, sequences, logits }: StepInput,
  { spans }: StepData,
  steps: number,
): StepSize {
  const context = sequences.reduce((most, { cached, length }) => Math.max(most, cached + length), 0);
  return {
    step: tokens.length,
    sequences: sequences.length,
    logits: logits.length,
    singles: spans.singles.length,
    tiles: spans.tiles.length,
    context: context + steps - 1,
  };
}

/**
 * Encodes the block tables, and their starts in `rows`. A windowed group's table lacks its first blocks, so its start
 * is shifted back by their number.
 */
function encodeTables(
  { tokens, sequences }: StepInput,
  layout: TableLayout,
  { singles, tiles }: Spans,
  rows: Uint32Array,
): Uint32Array<ArrayBuffer> {
  const entries = sequences.reduce((sum, { blockTable, windowTables = [] }) => {
    return sum + windowTables.reduce((all, { blocks }) => all + blocks.length, blockTable.length);
  }, layout.tables);
  const tables = new Uint32Array(entries);
  tables.set(singles, layout.singles);
  tables.set(tiles.flat(), layout.tiles);
  let at = layout.tables;
  for (const { start, length, cached, blockTable, windowTables = [] } of sequences) {
    for (let i = 0; i < length; i++) {
      rows.set([tokens[start + i], cached + i, at], ROW_WORDS * (start + i));
    }
    tables.set(blockTable, at);
    at += blockTable.length;
    for (const [i, { first, blocks }] of windowTables.entries()) {
      tables.fill(at - first, layout.basesOf(i + 1) + start, layout.basesOf(i + 1) + start + length);
      tables.set(blocks, at);
      at += blocks.length;
    }
  }
  return tables;
}

/**
 * Returns the slots of recurrent state. First, per sequence: its first row, the slot to read, and the range
 * of its entries. Then the entries: after how many rows to store the state, and into which slot. A sequence's
 * last entry is after its last row.
 */
export function encodeCarries(sequences: StepInput["sequences"]): Uint32Array<ArrayBuffer> {
  const carried = sequences.filter(({ state }) => state);
  const entries: (readonly number[])[] = [];
  const heads = carried.map(({ start, length, state }) => {
    const { read = NO_SLOT, write, saves } = state!;
    const first = carried.length + entries.length;
    entries.push(...saves.map(({ after, slot }) => [after, slot, 0, 0]), [length, write, 0, 0]);
    return [start, read, first, carried.length + entries.length];
  });
  return Uint32Array.from([...heads, ...entries].flat());
}

/** Combined penalties and bias of one token, so that one lane changes each token once. */
interface Adjustment {
  readonly token: number;
  penalty: number;
  minus: number;
  plus: number;
}

function adjustmentsOf(r: LogitsRequest): Adjustment[] {
  const byToken = new Map<number, Adjustment>();
  const penalized = r.repetitionPenalty !== 1 || r.presencePenalty !== 0 || r.frequencyPenalty !== 0;
  for (const [i, token] of penalized ? r.penaltyTokens.entries() : []) {
    const count = r.penaltyCounts[i];
    const minus = count > 0 ? r.presencePenalty + r.frequencyPenalty * count : 0;
    byToken.set(token, { token, penalty: r.repetitionPenalty, minus, plus: 0 });
  }
  for (const [i, token] of r.biasTokens.entries()) {
    const known = byToken.get(token);
    if (known) known.plus += r.biasValues[i];
    else byToken.set(token, { token, penalty: 1, minus: 0, plus: r.biasValues[i] });
  }
  return [...byToken.values()];
}

/**
 * Returns the words of a row's answer: head, ids, logits, probed logits, raw logits of adjusted tokens, and
 * the drawn token.
 */
function answerWordsOf(r: LogitsRequest, adjusts: number): number {
  return HEAD_WORDS + 2 * r.candidates + r.probe.length + adjusts + (r.draw ? DRAWN_WORDS : 0);
}

function drawWords(draw: Draw | undefined): number {
  return draw ? DRAW_WORDS + draw.ends.length : 0;
}

function encodeWants(
  requests: readonly LogitsRequest[],
  adjustments: readonly Adjustment[][],
  maskWords: number,
) {
  const extra = requests.reduce(
    (sum, r, i) =>
      sum + r.probe.length + ADJUST_WORDS * adjustments[i].length + (r.mask ? maskWords : 0) +
      drawWords(r.draw),
    0,
  );
  const wants = new Uint32Array(WANT_WORDS * requests.length + extra);
  const floats = new Float32Array(wants.buffer);
  let at = WANT_WORDS * requests.length;
  let answer = 0;
  const masks: { at: number; mask: Promise<Uint32Array> }[] = [];
  for (const [i, r] of requests.entries()) {
    const list = adjustments[i];
    const [probes, adjusts] = [at, at + r.probe.length];
    const mask = adjusts + ADJUST_WORDS * list.length;
    const draw = mask + (r.mask ? maskWords : 0);
    wants.set(
      [
        r.candidates,
        probes,
        r.probe.length,
        adjusts,
        list.length,
        r.mask ? mask : 0,
        answer,
        r.draw ? draw : 0,
      ],
      WANT_WORDS * i,
    );
    wants.set(r.probe, probes);
    for (const [j, { token, penalty, minus, plus }] of list.entries()) {
      wants[adjusts + ADJUST_WORDS * j] = token;
      floats.set([penalty, minus, plus], adjusts + ADJUST_WORDS * j + 1);
    }
    if (r.mask) masks.push({ at: mask, mask: r.mask });
    if (r.draw) {
      const { temperature, topK, topP, minP, key, ends } = r.draw;
      wants.set([drawFlags(r.draw), 0, 0, 0, ...key, topK, ends.length, ...ends], draw);
      floats.set([temperature, topP, minP], draw + 1);
    }
    at = draw + drawWords(r.draw);
    answer += answerWordsOf(r, list.length);
  }
  return { wants, masks, answerWords: answer };
}

/** Returns a step's answers. `words` may be overwritten afterwards. */
export function decodeAnswers(words: Uint32Array<ArrayBuffer>, input: StepInput): Candidates[] {
  const floats = new Float32Array(words.buffer, words.byteOffset, words.length);
  let at = 0;
  return input.logits.map((r): Candidates => {
    const [count, k] = [words[at], r.candidates];
    const adjusted = adjustmentsOf(r);
    const first = at + HEAD_WORDS;
    const [probed, next] = [first + 2 * k, at + answerWordsOf(r, adjusted.length)];
    const drawn = r.draw && count > 0 ? whereDrawn(words, next - DRAWN_WORDS, first, count) : undefined;
    const [beyond, beyondLogit] = drawn === count ? [[words[next - 2]], [floats[next - 1]]] : [[], []];
    const ids = Int32Array.of(...words.subarray(first, first + count), ...beyond);
    const logits = Float32Array.of(...floats.subarray(first + k, first + k + count), ...beyondLogit);
    const rawOf = new Map(adjusted.map(({ token }, i) => [token, floats[probed + r.probe.length + i]]));
    const row = {
      ids,
      logits,
      rawLogits: rawOf.size === 0 ? logits : logits.map((logit, i) => rawOf.get(ids[i]) ?? logit),
      logSumExp: floats[at + 1],
      deviation: floats[at + 2],
      probed: floats.slice(probed, probed + r.probe.length),
      drawn,
    };
    at = next;
    return row;
  });
}

/** Returns the index of the token at `words[token]` among the candidates from `first` on, or `count` if absent. */
function whereDrawn(words: Uint32Array, token: number, first: number, count: number): number {
  const index = words.subarray(first, first + count).indexOf(words[token]);
  return index < 0 ? count : index;
}
