import type { Settings } from "../api/errors.ts";
import { type CompileOptions, KV_BLOCK_TOKENS, KV_WORDS } from "../backend/backend.ts";
import { blocksFor, blocksOfSequence, type KvDemand, longestSequence } from "../cache/kv_blocks.ts";
import {
  either,
  largest,
  megabytes,
  type MemoryBounds,
  MemoryError,
  shortage,
  totalOf,
} from "./memory_error.ts";
import { carriesRows } from "../plan/ops/registry.ts";
import { isEncoder, kvBlockBytes, type Plan, stateBytes } from "../plan/plan.ts";
import { planScratch } from "../plan/scratch.ts";
import type { EngineLimits } from "../schedule/limits.ts";

export interface SizeOptions {
  /** Maximum tokens of one sequence; by default the model's own context, as far as the KV cache can hold it. */
  readonly contextLength?: number;
  /** Maximum number of running sequences. */
  readonly parallel?: number;
  /** Bytes of the KV cache; by default enough for all sequences at full length. */
  readonly kvBytes?: number;
  /** Without `kvBytes`: share of the remaining free memory that bounds the KV cache. */
  readonly kvShare?: number;
  /**
   * Without `contextLength` and `kvBytes`: bytes by which the KV cache may grow for one longer sequence. By default the
   * remaining free memory; 0 if unknown.
   */
  readonly spareBytes?: number;
  /** Maximum number of waiting requests, besides the running ones. */
  readonly queue?: number;
  /** Whether steps carry drafts. */
  readonly drafts?: boolean;
}

/** The size of an engine: its limits, and the memory for them. */
export interface EngineSize {
  /** Maximum tokens of one sequence. */
  readonly contextLength: number;
  /** The figures that made the default context shorter than the model's own; undefined if it is not. */
  readonly cut?: ContextCut;
  readonly limits: EngineLimits;
  /** Bytes of the KV cache and recurrent states when full, and of a step's activations. */
  readonly memory: { readonly activations: number; readonly states: number; readonly kv: number };
}

/** The figures that made the default context shorter than the model's own. */
export interface ContextCut {
  /** Tokens of the model's own context. */
  readonly own: number;
  /** Bytes of KV cache that one sequence of the model's own context takes. */
  readonly ownBytes: number;
  /** Bytes that the KV cache may have. */
  readonly available: number;
}

/** Tokens per sequence for which the default KV cache has memory. A longer sequence takes the memory of several. */
const USUAL_CONTEXT = 4096;
const DEFAULT_PARALLEL = 4;
const DEFAULT_QUEUE = 256;
/** Rows of a step: enough that prefill is compute-bound, few enough that a decode waits less than a second. */
export const MAX_ROWS = 512;
const MIN_LOGIT_ROWS = 16;
/**
 * Maximum logit rows with drafts: for a single sequence, and per sequence of many, up to `MOST_DRAFT_ROWS` in total.
 */
const DRAFT_ROWS = 32;
const DRAFT_ROWS_EACH = 4;
const MOST_DRAFT_ROWS = 64;
/** Slots of recurrent state for sequences with drafts, and the maximum bytes of all these slots. */
const DRAFT_SLOTS = 4;
const DRAFT_BYTES = 256 * 2 ** 20;
/** Snapshots of recurrent state per running sequence, for later requests, and the maximum bytes of all snapshots. */
const SNAPSHOTS_PER_SEQUENCE = 2;
const SNAPSHOT_BYTES = 512 * 2 ** 20;
/**
 * Share of free memory for cached prefixes and several long sequences, with the default context. One long sequence may
 * have all free memory.
 */
const SHARED = 0.25;

/** Returns the size of a model's engine. Throws MemoryError if it exceeds the bounds. */
export function engineSize(plan: Plan, options: SizeOptions, bounds?: MemoryBounds): EngineSize {
  if (isEncoder(plan)) return encoderSize(plan, options, bounds);
  const contextLength = usualContext(plan, options.contextLength);
  const parallel = options.parallel ?? DEFAULT_PARALLEL;
  const blockBytes = kvBlockBytes(plan);
  const crowd = { parallel, drafts: options.drafts };
  const demand = kvDemand(plan, parallel);
  const fixed = fixedMemory(plan, crowd);
  const room = bounds === undefined
    ? Infinity
    : bounds.free - bounds.weights - fixed.activations - fixed.states;
  const least = countBlocks({ contextLength, parallel }, demand, blockBytes, options, room);
  if (least * blockBytes > room) {
    throw describeShortage(plan, { contextLength, parallel, kvBlocks: least }, options, bounds!);
  }
  const { kvBlocks, kvCached, ...context } = options.contextLength === undefined
    ? defaultContext(plan, demand, { least, room, contextLength, parallel }, options)
    : { contextLength, kvBlocks: least };
  return {
    ...context,
    limits: {
      stateSlots: countStateSlots(plan, crowd),
      draftSlots: countDraftSlots(plan, crowd),
      carriesRows: carriesRows(plan),
      parallel,
      kvBlocks,
      kvCached,
      kvWindows: demand.windows,
      ...rowsOf(crowd),
      queue: options.queue ?? DEFAULT_QUEUE,
    },
    memory: { ...fixed, kv: kvBlocks * blockBytes },
  };
}

/** Returns the length of the longest sequence for which memory is always reserved. */
export function usualContext(plan: Plan, contextLength = USUAL_CONTEXT): number {
  return Math.min(plan.contextLength, contextLength);
}

/**
 * Returns the context length in a batch's identity. Undefined if it depends on free memory, so that a job can resume
 * with less. Only with LongRoPE does the length change answers.
 */
export function identityContext(plan: Plan, contextLength?: number): number {
  const isLong = plan.rope.some(({ long }) => long !== undefined && plan.contextLength > long.beyond);
  const isOwn = contextLength === undefined && (isEncoder(plan) || isLong);
  return isOwn ? plan.contextLength : usualContext(plan, contextLength);
}

/**
 * Returns the longest context, up to the model's own, for which the KV cache can hold one sequence. The cache has at
 * least `least` blocks, and more only from memory that is free, so a longer context never makes a model too large.
 */
function defaultContext(
  plan: Plan,
  demand: KvDemand,
  { least, room, contextLength, parallel }: Pick<Wanted, "contextLength" | "parallel"> & {
    readonly least: number;
    readonly room: number;
  },
  { kvBytes, spareBytes }: SizeOptions,
): Pick<EngineSize, "contextLength" | "cut"> & Pick<EngineLimits, "kvBlocks" | "kvCached"> {
  const own = plan.contextLength;
  const blockBytes = kvBlockBytes(plan);
  const rest = room - least * blockBytes;
  const spare = kvBytes === undefined ? Math.min(spareBytes ?? (room < Infinity ? rest : 0), rest) : 0;
  const blocksIn = (bytes: number) => Math.floor(bytes / blockBytes);
  const ownBlocks = blocksOfSequence(demand, own);
  const takesNone = blockBytes === 0; // no layer has a KV cache
  const most = takesNone ? Infinity : least + blocksIn(spare);
  const shared = takesNone ? least : Math.max(least, blocksIn(SHARED * room));
  const wanted = Math.max(ownBlocks, Math.min(parallel * ownBlocks, shared));
  const kvBlocks = Math.max(least, Math.min(most, wanted));
  const longest = Math.min(own, Math.max(contextLength, longestSequence(demand, kvBlocks)));
  return {
    contextLength: longest,
    ...(longest < own && {
      cut: { own, ownBytes: ownBlocks * blockBytes, available: least * blockBytes + spare },
    }),
    kvBlocks,
    ...(shared < kvBlocks && { kvCached: shared }),
  };
}

/**
 * Returns the size of an encoder's engine. An encoder keeps nothing between steps, and a step holds the longest text
 * whole. By default, a step holds the longest text that the model can read.
 */
function encoderSize(plan: Plan, options: SizeOptions, bounds?: MemoryBounds): EngineSize {
  const parallel = options.parallel ?? DEFAULT_PARALLEL;
  const contextLength = Math.min(plan.contextLength, options.contextLength ?? plan.contextLength);
  const rows = (context: number) => ({ maxRows: Math.max(MAX_ROWS, context), maxLogitRows: 1 });
  const activationsOf = (context: number) => planScratch(plan, rows(context).maxRows, 1).arenaBytes;
  const needs = {
    weights: bounds?.weights ?? 0,
    activations: activationsOf(contextLength),
    states: 0,
    kv: 0,
  };
  if (bounds && totalOf(needs) > bounds.free) {
    const fits = (context: number) => needs.weights + activationsOf(context) <= bounds.free;
    const longest = fits(1) ? largest(contextLength - 1, fits) : 0;
    throw shortage(needs, bounds, longest > 0 ? [{ ctx: longest }] : []);
  }
  const { maxRows, maxLogitRows } = rows(contextLength);
  return {
    contextLength,
    limits: {
      parallel,
      // An encoder's blocks have no bytes; their number suffices for texts of one token each.
      kvBlocks: 2 * maxRows,
      maxRows,
      stepRows: MAX_ROWS,
      maxLogitRows,
      queue: options.queue ?? DEFAULT_QUEUE,
    },
    memory: { activations: needs.activations, states: 0, kv: 0 },
  };
}

/** Returns the number of KV blocks; always enough for one sequence. Throws MemoryError if `kvBytes` is too small. */
function countBlocks(
  { contextLength, parallel }: Pick<Wanted, "contextLength" | "parallel">,
  demand: KvDemand,
  blockBytes: number,
  { kvBytes, kvShare }: SizeOptions,
  room: number,
): number {
  const blocks = blocksOfSequence(demand, contextLength);
  if (blockBytes === 0) return parallel * blocks; // no layer has a cache
  if (kvBytes === undefined) {
    // If the free memory is unknown, its share is unknown too and sets no limit.
    const bounded = kvShare !== undefined && room < Infinity;
    const affordable = bounded ? Math.floor(kvShare * room / blockBytes) : Infinity;
    return Math.max(blocks, Math.min(parallel * blocks, affordable));
  }
  const given = Math.floor(kvBytes / blockBytes);
  if (given >= blocks) return given;
  const longest = longestSequence(demand, given);
  const enough = { kvBytes: 1e6 * Math.ceil(blocks * blockBytes / 1e6) };
  const fits = either(longest > 0 ? [enough, { ctx: longest }] : [enough]);
  const held = `A KV cache of ${megabytes(kvBytes)} holds ${longest} tokens`;
  const wanted = `and one sequence may have ${contextLength}`;
  throw new MemoryError([`${held}, ${wanted} (`, { ctx: undefined }, "). What fits: ", ...fits]);
}

/** Returns the figures that determine how sequences take KV blocks, with `parallel` of them running. */
function kvDemand(plan: Plan, parallel: number): KvDemand {
  return { windows: plan.kv.windows.slice(1), maxRows: rowsOf({ parallel }).maxRows };
}

/** The number of running sequences, and whether they have drafts. */
interface Crowd {
  readonly parallel: number;
  readonly drafts?: boolean;
}

/** Returns the memory without the KV cache: `kv` is 0. */
function fixedMemory(plan: Plan, crowd: Crowd): EngineSize["memory"] {
  return memoryOf(plan, { ...rowsOf(crowd), kvBlocks: 0, stateSlots: countStateSlots(plan, crowd) });
}

/** Returns the memory that a plan compiled for this size takes besides its weights. */
export function memoryOf(
  plan: Plan,
  { kvBlocks, stateSlots = 0, maxRows, maxLogitRows }: CompileOptions,
): EngineSize["memory"] {
  return {
    activations: planScratch(plan, maxRows, maxLogitRows).arenaBytes,
    states: stateSlots * stateBytes(plan),
    kv: kvBlocks * kvBlockBytes(plan),
  };
}

/**
 * Returns the number of tokens that the KV cache holds; 0 for an encoder. With window layers, this assumes sequences of
 * full context length.
 */
export function kvTokens(
  plan: Plan,
  { contextLength, limits: { kvBlocks, kvWindows: windows = [], maxRows } }: EngineSize,
): number {
  if (isEncoder(plan)) return 0;
  const share = blocksFor(contextLength) / blocksOfSequence({ windows, maxRows }, contextLength);
  return Math.floor(kvBlocks * share) * KV_BLOCK_TOKENS;
}

function rowsOf({ parallel, drafts }: Crowd) {
  const drafted = drafts ? Math.max(DRAFT_ROWS, Math.min(MOST_DRAFT_ROWS, DRAFT_ROWS_EACH * parallel)) : 0;
  return {
    maxRows: Math.max(MAX_ROWS, parallel),
    maxLogitRows: Math.max(MIN_LOGIT_ROWS, parallel, drafted),
  };
}

/**
 * Returns the number of state slots: one per running sequence, those for drafts, and at least one for snapshots.
 * Undefined for a model without recurrent layers.
 */
function countStateSlots(plan: Plan, crowd: Crowd): number | undefined {
  if (plan.states.length === 0) return undefined;
  const affordable = Math.floor(SNAPSHOT_BYTES / stateBytes(plan));
  const snapshots = Math.max(1, Math.min(affordable, SNAPSHOTS_PER_SEQUENCE * crowd.parallel));
  return crowd.parallel + countDraftSlots(plan, crowd) + snapshots;
}

function countDraftSlots(plan: Plan, { parallel, drafts }: Crowd): number {
  if (!drafts || plan.states.length === 0) return 0;
  if (carriesRows(plan)) return parallel + rowsOf({ parallel, drafts }).maxLogitRows;
  return Math.max(1, Math.min(DRAFT_SLOTS, Math.floor(DRAFT_BYTES / stateBytes(plan))));
}

interface Wanted {
  readonly contextLength: number;
  readonly parallel: number;
  readonly kvBlocks: number;
}

/** Returns the memory error with its sums, followed by settings that fit. */
function describeShortage(
  plan: Plan,
  wanted: Wanted,
  options: SizeOptions,
  bounds: MemoryBounds,
): MemoryError {
  const { contextLength, parallel, kvBlocks } = wanted;
  const holder = options.kvBytes !== undefined
    ? { kvBytes: undefined }
    : options.kvShare !== undefined
    ? `1 sequence of ${contextLength} tokens, the least`
    : `${parallel} sequence${parallel > 1 ? "s" : ""} of ${contextLength} tokens`;
  const kv = { kv: kvBlocks * kvBlockBytes(plan), kvNote: [holder, `, in ${KV_WORDS[plan.kv.type]}`] };
  const needs = {
    weights: bounds.weights,
    ...fixedMemory(plan, { parallel, drafts: options.drafts }),
    ...kv,
  };
  return shortage(needs, bounds, settingsThatFit(plan, wanted, options, bounds));
}

/**
 * Returns settings that fit: the largest value of each single option, or of all options together if no single one
 * suffices.
 */
function settingsThatFit(
  plan: Plan,
  { contextLength, parallel }: Wanted,
  { kvBytes, kvShare, drafts }: SizeOptions,
  { free, weights }: MemoryBounds,
): Settings[] {
  const blockBytes = kvBlockBytes(plan);
  // Returns the bytes for one sequence if `sequences` of them run.
  const bytesOf = (sequences: number) =>
    blockBytes * blocksOfSequence(kvDemand(plan, sequences), contextLength);
  const longest = (sequences: number, bytes: number) =>
    longestSequence(kvDemand(plan, sequences), Math.max(0, Math.floor(bytes / blockBytes)));
  const room = (sequences: number) => {
    const { activations, states } = fixedMemory(plan, { parallel: sequences, drafts });
    return free - weights - activations - states;
  };
  const kvRoom = Math.floor(room(parallel) / 1e6);
  const pool = (sequences: number) => kvBytes ?? (kvShare === undefined ? sequences : 1) * bytesOf(sequences);
  const most = largest(parallel - 1, (n) => pool(n) <= room(n));
  const held = kvShare === undefined ? parallel : 1; // number of sequences that the pool must hold at once
  const context = longest(parallel, room(parallel) / held);
  const fits = [
    ...(most > 0 ? [{ parallel: most }] : []),
    ...(kvBytes === undefined && context > 0 ? [{ ctx: context }] : []),
    ...(kvRoom * 1e6 >= bytesOf(parallel) ? [{ kvBytes: 1e6 * kvRoom }] : []),
  ];
  if (fits.length > 0) return fits;
  const least = Math.floor(room(1) / 1e6);
  const tokens = Math.min(contextLength, longest(1, least * 1e6));
  return tokens > 0 ? [{ parallel: 1, ctx: tokens, kvBytes: 1e6 * least }] : [];
}
