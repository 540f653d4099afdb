/**
 * Attention of single rows. A workgroup reads keys and values once for all heads that share them, many positions at a
 * time. Sums have the order of `attention_tile.ts`, so both kernels give a row the same bits.
 */
import { KV_BLOCK_TOKENS } from "../../../backend.ts";
import { kernelOf } from "../../kernels/kernel.ts";
import { list } from "../../kernels/list.ts";
import type { Kernel } from "../../kernels/types.ts";
import type { HeadCounts } from "../../program.ts";
import {
  addPart,
  addSink,
  ATTENTION_COST,
  type AttentionShape,
  cache,
  CHUNK,
  type ContextParts,
  head,
  headsTogether,
  laneWords,
  positionsSeen,
  scoreLanes,
  shapeKey,
  SINKS,
  storeQuad,
  tableOf,
} from "./attention_shape.ts";
import { putUnit, unitsOf } from "../kv_cache.ts";

const LANES = 128;
/** Number of query floats that fit into a workgroup's memory. */
const QUERY_FLOATS = 1024;

function together(shape: HeadCounts) {
  return headsTogether(shape, Math.max(1, Math.floor(QUERY_FLOATS / shape.headDim)));
}

/**
 * Returns the attention kernel for single rows. With `shared`, a workgroup computes one part of a context and stores
 * only the part's result.
 */
export function singleKernel(shape: AttentionShape, parts: ContextParts, shared = false): Kernel {
  const { splits, together: heads } = together(shape);
  const positions = positionsSeen(shape, parts, shared);
  return kernelOf(
    `attention_single ${shapeKey(shape, parts)} ${shared}`,
    code(shape, parts, shared),
    (_n, rows, context = 1) => {
      return [shape.kvHeads * splits, rows, shared ? Math.ceil(context / parts.length) : 1];
    },
    (size) => ATTENTION_COST * 2 * heads * shape.headDim * positions(size),
  );
}

/**
 * Distribution of attention work over lanes. For scores, neighbouring lanes share a position. For values, a lane has
 * four dimensions of every n-th head.
 */
interface Places {
  readonly heads: number;
  /** Number of lanes per position, and of positions per round. */
  readonly lanes: number;
  readonly positions: number;
  readonly chunks: number;
  /** Number of lane groups ("strands"). Each computes every n-th head. */
  readonly strands: number;
  readonly headsOfLane: number;
  readonly words: number;
}

function placesOf(shape: HeadCounts): Places {
  const lanes = scoreLanes(shape);
  const heads = together(shape).together;
  const positions = LANES / lanes;
  const strands = Math.floor(LANES / (shape.headDim / 4));
  return {
    heads,
    lanes,
    positions,
    chunks: positions / CHUNK,
    strands,
    headsOfLane: Math.ceil(heads / strands),
    words: laneWords(shape),
  };
}

function code(shape: AttentionShape, parts: ContextParts, shared: boolean): string {
  const { heads, kvHeads, headDim } = shape;
  const { splits } = together(shape);
  const places = placesOf(shape);
  const { positions, chunks, strands, headsOfLane, lanes } = places;
  const of = (text: (n: number) => string) => list(headsOfLane, text).join("\n  ");
  return `${head(shape)}${cache(shape)}
${shape.sinks && !shared ? SINKS : ""}
const HEADS = ${places.heads}u;
const POSITIONS = ${positions}u;
const CHUNKS = ${chunks}u;
const QUADS = ${headDim / 4}u;
var<workgroup> query: array<vec4<f32>, ${places.heads * headDim / 4}>;
/* parts of a score, by head, position and lane */
var<workgroup> shares: array<f32, ${places.heads * LANES}>;
/* scores, then weights, by head and position */
var<workgroup> weights: array<f32, ${places.heads * positions}>;
/* the largest score of each head's chunks, and of all chunks before */
var<workgroup> tops: array<f32, ${places.heads * chunks}>;
var<workgroup> reached: array<f32, ${places.heads}>;
var<workgroup> stage: array<vec2<u32>, ${positions * headDim / 4}>;

@compute @workgroup_size(${LANES})
fn attention_single(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let index = tables[op.list + group.y];
  let row = rows[index];
  if (row.w == 1u) { return; }
  let end = row.y + 1u;
  let seen = first_seen(end);
  let table = ${tableOf(shape, "row", "index")};
  let kv_head = group.x / ${splits}u;
  let head_end = (kv_head + 1u) * ${heads / kvHeads}u;
  let head_first = kv_head * ${heads / kvHeads}u + group.x % ${splits}u * HEADS;
  let p = lane % ${lanes}u;
  let mine = lane / ${lanes}u;
  let quad = lane % QUADS;
  let strand = lane / QUADS;
  ${of((n) => `let head_${n} = strand + ${n * strands}u;`)}
  ${
    of((n) =>
      `let used_${n} = strand < ${strands}u && head_${n} < HEADS && head_first + head_${n} < head_end;`
    )
  }
  for (var i = lane; i < HEADS * QUADS; i += ${LANES}u) {
    let head = min(head_first + i / QUADS, head_end - 1u);
    query[i] = q[query_at(index, head) + i % QUADS] * op.scale;
  }
  ${of((n) => `var top_${n} = NONE; var total_${n} = 0.0; var sum_${n} = vec4<f32>();`)}
  ${
    shared
      ? ""
      : of((n) => `var all_top_${n} = NONE; var all_total_${n} = 0.0; var all_sum_${n} = vec4<f32>();`)
  }
  ${
    shared
      ? `let start = group.z * ${parts.length}u;
  if (start >= end || start + ${parts.length}u <= seen) { return; }
  ${rounds(shape, parts, places)}
  ${of(storePart)}`
      : `for (var start = seen / ${parts.length}u * ${parts.length}u; start < end; start += ${parts.length}u) {
  ${of((n) => `top_${n} = NONE; total_${n} = 0.0; sum_${n} = vec4<f32>();`)}
  ${rounds(shape, parts, places)}
  ${of((n) => addPart([`sum_${n}`], `_${n}`))}
  }
  ${of((n) => storeAll(shape, n))}`
  }
}`;
}

/** Returns WGSL that processes a context part in rounds. */
function rounds(shape: AttentionShape, parts: ContextParts, places: Places): string {
  const { positions, words, lanes } = places;
  const blocks = Math.max(1, positions / KV_BLOCK_TOKENS);
  const blockOf = (position: string) => {
    if (blocks === 1) return "block_0";
    return list(blocks - 1, (i) => i + 1).reduce(
      (found, i) => `select(${found}, block_${i}, ${position} >= ${i * KV_BLOCK_TOKENS}u)`,
      "block_0",
    );
  };
  const round = Math.max(positions, CHUNK);
  const halves = shape.kv === "f16";
  return `let stop = min(start + ${parts.length}u, end);
  if (lane < HEADS) { reached[lane] = NONE; }
  workgroupBarrier();
  for (var c = max(start, seen / ${round}u * ${round}u); c < stop; c += POSITIONS) {
    ${
    list(blocks, (i) =>
      `let block_${i} = tables[table + min(max(c + ${
        i * KV_BLOCK_TOKENS
      }u, seen), stop - 1u) / ${KV_BLOCK_TOKENS}u];`)
      .join("\n    ")
  }
    let position = c + mine;
    let inside = position >= seen && position < stop;
    ${list(words, (i) => `var key_${i} = vec4<u32>();`).join(" ")}
    ${
    halves
      ? `${ownKeys(shape, places, blockOf("mine"))}
    ${stageUnits(shape, places, "value", blockOf)}`
      : `${stageUnits(shape, places, "key", blockOf)}
    workgroupBarrier();
    ${stagedKeys(shape, places)}`
  }
    ${
    list(words, (i) =>
      `let word_${i} = min(p + ${
        i * lanes
      }u, WORDS - 1u); let a_${i} = low(key_${i}); let b_${i} = high(key_${i});`)
      .join("\n    ")
  }
    for (var head = 0u; head < HEADS; head++) {
      var part = vec4<f32>();
      ${
    list(words, (i) =>
      `part = fma(b_${i}, query[head * QUADS + 2u * word_${i} + 1u], fma(a_${i}, query[head * QUADS + 2u * word_${i}], part));`)
      .join("\n      ")
  }
      shares[head * ${LANES}u + lane] = added(part);
    }
    workgroupBarrier();
    ${halves ? "" : stageUnits(shape, places, "value", blockOf)}
    ${softmax(places)}
    ${list(places.headsOfLane, addValues).join("\n    ")}
    workgroupBarrier();
  }`;
}

/** Returns WGSL that turns the lanes' partial sums into scores, and scores into weights of an online softmax. */
function softmax({ lanes, chunks }: Places): string {
  return `for (var i = lane; i < HEADS * POSITIONS; i += ${LANES}u) {
      let first = i / POSITIONS * ${LANES}u + i % POSITIONS * ${lanes}u;
      var score = shares[first];
      ${list(lanes - 1, (k) => `score += shares[first + ${k + 1}u];`).join(" ")}
      let at = c + i % POSITIONS;
      weights[i] = select(NONE, score, at >= seen && at < stop);
    }
    workgroupBarrier();
    if (lane < HEADS * CHUNKS) {
      var largest = NONE;
      for (var j = 0u; j < ${CHUNK}u; j++) { largest = max(largest, weights[lane * ${CHUNK}u + j]); }
      tops[lane] = largest;
    }
    workgroupBarrier();
    for (var i = lane; i < HEADS * POSITIONS; i += ${LANES}u) {
      let head = i / POSITIONS;
      var top = reached[head];
      ${
    list(
      chunks,
      (k) => `if (i % POSITIONS >= ${k * CHUNK}u) { top = max(top, tops[head * CHUNKS + ${k}u]); }`,
    ).join("\n      ")
  }
      let at = c + i % POSITIONS;
      weights[i] = select(0.0, exp(weights[i] - top), at >= seen && at < stop);
    }
    workgroupBarrier();
    if (lane < HEADS) {
      for (var k = 0u; k < CHUNKS; k++) { reached[lane] = max(reached[lane], tops[lane * CHUNKS + k]); }
    }`;
}

/** Returns WGSL that loads the lane's words of a key from the cache. */
function ownKeys({ headDim }: AttentionShape, { words, lanes }: Places, block: string): string {
  const load = (i: number) => `key_${i} = key_unit(at + p + ${i * lanes}u);`;
  return `if (inside) {
      let at = unit_of(${block}, kv_head, position);
      ${list(words, (i) => ifWord(headDim, lanes, i, load(i))).join("\n      ")}
    }`;
}

/** Returns WGSL that loads the lane's words of a key from `stage`. */
function stagedKeys({ headDim }: AttentionShape, { words, lanes }: Places): string {
  const load = (i: number) =>
    `let at = 2u * (mine * WORDS + p + ${i * lanes}u); key_${i} = vec4<u32>(stage[at], stage[at + 1u]);`;
  return list(words, (i) => ifWord(headDim, lanes, i, load(i))).join("\n    ");
}

/** Returns a WGSL statement for word i of a lane, guarded if the lane may not have the word. */
function ifWord(headDim: number, lanes: number, i: number, statement: string): string {
  return `${headDim / 8 % lanes === 0 ? "" : `if (p + ${i * lanes}u < WORDS) `}{ ${statement} }`;
}

/**
 * Returns WGSL that copies the round's keys or values to `stage` as f16, with zeros for positions that the row does not
 * see.
 */
function stageUnits(
  shape: AttentionShape,
  { positions }: Places,
  what: "key" | "value",
  blockOf: (position: string) => string,
): string {
  const units = positions * unitsOf(shape);
  return list(Math.ceil(units / LANES), (n) => {
    const whole = (n + 1) * LANES <= units;
    const put = putUnit(
      shape,
      "staged",
      "unit",
      (at, word) => `let word = ${word}; stage[2u * (${at})] = word.xy; stage[2u * (${at}) + 1u] = word.zw;`,
    );
    return `{
      let unit = lane + ${n * LANES}u;
      let its = unit / UNITS;
      var staged = Unit();
      if (c + its >= seen && c + its < stop) {
        staged = ${what}_unit(unit_of(${blockOf("its")}, kv_head, c + its) + unit % UNITS);
      }
      ${whole ? put : `if (unit < ${units}u) { ${put} }`}
    }`;
  }).join("\n    ");
}

/** Returns WGSL that adds a head's weighted values and weights, chunk by chunk. */
function addValues(n: number): string {
  return `if (used_${n}) {
      for (var k = 0u; k < CHUNKS; k++) {
        let largest = max(top_${n}, tops[head_${n} * CHUNKS + k]);
        let shrink = exp(top_${n} - largest);
        top_${n} = largest;
        sum_${n} *= shrink;
        var all = 0.0;
        for (var j = k * ${CHUNK}u; j < (k + 1u) * ${CHUNK}u; j++) {
          let weight = weights[head_${n} * POSITIONS + j];
          let value = stage[j * QUADS + quad];
          sum_${n} = fma(vec4<f32>(weight), vec4(unpack2x16float(value.x), unpack2x16float(value.y)), sum_${n});
          all += weight;
        }
        total_${n} = fma(total_${n}, shrink, all);
      }
    }`;
}

function storeAll(shape: AttentionShape, n: number): string {
  const head = `(head_first + head_${n})`;
  const names = { row: "index", head, quad: "quad", sum: `sum_${n}`, total: `all_total_${n}` };
  return `if (used_${n}) {
    ${addSink(shape, [`sum_${n}`], head, `_${n}`)}
    ${storeQuad(shape, names)}
  }`;
}

function storePart(n: number): string {
  return `if (used_${n}) {
    let to = partial_at(index, head_first + head_${n}, group.z);
    y[to + quad] = sum_${n};
    if (quad == 0u) { y[to + QUADS] = vec4<f32>(top_${n}, total_${n}, 0.0, 0.0); }
  }`;
}
