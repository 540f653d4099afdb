/**
 * Attention of many rows of one sequence. A workgroup stages keys and values once for a tile of rows and all
 * heads that share them. Several lanes share a query (one head of one row). Each has some dimensions and
 * holds the query and sums in registers.
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

const LANES = 256;
/** Number of queries per lane for wide heads, so that each loaded word serves both. */
const TWICE = 2;
/** Number of positions whose scores a lane keeps in registers at once. */
const AT_ONCE = 8;

function queriesOf(shape: HeadCounts): { queries: number; each: number } {
  const lanes = scoreLanes(shape);
  const each = lanes > 2 ? TWICE : 1;
  return { queries: LANES / lanes * each, each };
}

/** Returns the number of rows in an attention tile. */
export function tileRows(shape: HeadCounts): number {
  const { queries } = queriesOf(shape);
  return Math.floor(queries / headsTogether(shape, queries).together);
}

/**
 * Returns the attention kernel for tiles: consecutive rows of one sequence, listed as (first row, rows). With `shared`,
 * a workgroup computes one part of a context and stores only the part's result.
 */
export function tileKernel(shape: AttentionShape, parts: ContextParts, shared = false): Kernel {
  const { kvHeads, headDim } = shape;
  const { queries } = queriesOf(shape);
  const { splits } = headsTogether(shape, queries);
  const positions = positionsSeen(shape, parts, shared);
  return kernelOf(
    `attention_tile ${shapeKey(shape, parts)} ${shared}`,
    code(shape, parts, shared),
    (_n, tiles, context = 1) => {
      return [tiles, kvHeads * splits, shared ? Math.ceil(context / parts.length) : 1];
    },
    (size) => ATTENTION_COST * 2 * queries * headDim * positions(size),
  );
}

function code(shape: AttentionShape, parts: ContextParts, shared: boolean): string {
  const { heads, kvHeads, headDim } = shape;
  const { queries, each } = queriesOf(shape);
  const { together, splits } = headsTogether(shape, queries);
  const lanes = scoreLanes(shape);
  const words = laneWords(shape);
  const sumsOf = (r: number) => list(2 * words, (i) => `sum_${r}_${i}`);
  const of = (text: (r: number) => string) => list(each, text).join("\n  ");
  return `${head(shape)}${cache(shape)}
${shape.sinks && !shared ? SINKS : ""}
const LANES = ${lanes}u;
var<workgroup> stage: array<vec4<u32>, ${CHUNK * headDim / 8}>;
/* quads of positions by query: scores, then weights */
var<workgroup> scores: array<vec4<f32>, ${queries * CHUNK / 4}>;

@compute @workgroup_size(${LANES})
fn attention_tile(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let first_row = tables[op.list + 2u * group.x];
  let row_count = tables[op.list + 2u * group.x + 1u];
  let first = rows[first_row];
  let table = ${tableOf(shape, "first", "first_row")};
  let end = first.y + row_count;
  let seen = first_seen(first.y + 1u);
  let kv_head = group.y / ${splits}u;
  let head_end = (kv_head + 1u) * ${heads / kvHeads}u;
  let head_first = kv_head * ${heads / kvHeads}u + group.y % ${splits}u * ${together}u;
  let p = lane % LANES;
  ${list(words, (i) => `let word_${i} = min(p + ${i * lanes}u, WORDS - 1u);`).join("\n  ")}
  ${of((r) => query(shape, r, { together, queries, each, words, lanes }))}
  ${of((r) => sumsOf(r).map((sum) => `var ${sum} = vec4<f32>();`).join(" "))}
  ${shared ? "" : of((r) => sumsOf(r).map((sum) => `var all_${sum} = vec4<f32>();`).join(" "))}
  ${of((r) => `var top_${r} = NONE; var total_${r} = 0.0;`)}
  ${shared ? "" : of((r) => `var all_top_${r} = NONE; var all_total_${r} = 0.0;`)}
  ${
    shared
      ? `let start = group.z * ${parts.length}u;
  if (start >= end || start + ${parts.length}u <= seen) { return; }
  ${chunks(shape, parts, each)}
  ${of((r) => storePart(r, words, lanes))}`
      : `for (var start = seen / ${parts.length}u * ${parts.length}u; start < end; start += ${parts.length}u) {
  ${
        of((r) =>
          `top_${r} = NONE; total_${r} = 0.0; ${sumsOf(r).map((sum) => `${sum} = vec4<f32>();`).join(" ")}`
        )
      }
  ${chunks(shape, parts, each)}
  ${of((r) => addPart(sumsOf(r), `_${r}`))}
  }
  ${of((r) => storeAll(shape, r, words, lanes))}`
  }
}`;
}

/**
 * Returns WGSL that loads the lane's query r, with zeros beyond the head, and determines the positions its row sees.
 */
function query(shape: AttentionShape, r: number, of: {
  readonly together: number;
  readonly queries: number;
  readonly each: number;
  readonly words: number;
  readonly lanes: number;
}): string {
  const { together, queries, each, words, lanes } = of;
  const load = (i: number, half: number) => {
    const quad = `q[query_${r} + 2u * word_${i} + ${half}u] * op.scale`;
    const inside = shape.headDim / 8 % lanes === 0 ? "" : ` && p + ${i * lanes}u < WORDS`;
    return `let q_${r}_${2 * i + half} = select(vec4<f32>(), ${quad}, used_${r}${inside});`;
  };
  return `let slot_${r} = lane / LANES + ${r * queries / each}u;
  let row_${r} = slot_${r} / ${together}u;
  let head_${r} = head_first + slot_${r} % ${together}u;
  let used_${r} = row_${r} < row_count && head_${r} < head_end;
  let count_${r} = select(0u, first.y + row_${r} + 1u, used_${r});
  let seen_${r} = first_seen(count_${r});
  let query_${r} = select(query_at(first_row, head_first), query_at(first_row + row_${r}, head_${r}), used_${r});
  ${list(words, (i) => `${load(i, 0)} ${load(i, 1)}`).join("\n  ")}`;
}

/** Returns WGSL that processes a context part chunk by chunk. Keys load while values are used, and vice versa. */
function chunks(shape: AttentionShape, parts: ContextParts, each: number): string {
  const staged = CHUNK * unitsOf(shape);
  const loads = Math.ceil(staged / LANES);
  const inside = (i: number) => (i + 1) * LANES <= staged ? "" : `if (lane + ${i * LANES}u < ${staged}u) `;
  const load = (what: string) =>
    list(loads, (i) => `${inside(i)}{ ${what}_${i} = ${what}_unit(at + lane + ${i * LANES}u); }`).join(
      "\n      ",
    );
  const put = (what: string) =>
    list(loads, (i) => {
      const words = putUnit(shape, `${what}_${i}`, `lane + ${i * LANES}u`, (at, word) =>
        `stage[${at}] = ${word};`);
      return `${inside(i)}{ ${words} }`;
    }).join("\n    ");
  const at = (position: string) =>
    `let at = unit_of(tables[table + ${position} / ${KV_BLOCK_TOKENS}u], kv_head, ${position});`;
  return `let stop = min(start + ${parts.length}u, end);
  let begin = max(start, seen / ${CHUNK}u * ${CHUNK}u);
  ${list(loads, (i) => `var key_${i} = Unit(); var value_${i} = Unit();`).join(" ")}
  {
      ${at("begin")}
      ${load("key")}
  }
  for (var c = begin; c < stop; c += ${CHUNK}u) {
    ${put("key")}
    {
      ${at("c")}
      ${load("value")}
    }
    workgroupBarrier();
    if (c + ${CHUNK}u < stop) {
      ${at(`(c + ${CHUNK}u)`)}
      ${load("key")}
    }
    ${scores(shape, each)}
    ${list(each, softmax).join("\n    ")}
    workgroupBarrier();
    ${list(each, (r) => weigh(shape, r)).join("\n    ")}
    ${put("value")}
    workgroupBarrier();
    ${addValues(shape, each)}
    workgroupBarrier();
  }`;
}

/** Returns WGSL for the scores of a chunk. The lanes of a query add their partial sums one after the other. */
function scores(shape: AttentionShape, each: number): string {
  const lanes = scoreLanes(shape);
  const words = laneWords(shape);
  const position = (j: number) =>
    `${list(each, (r) => `var part_${r}_${j} = vec4<f32>();`).join(" ")}
      ${
      list(words, (i) =>
        `{ let word = stage[(h + ${j}u) * WORDS + word_${i}]; let a = low(word); let b = high(word);
        ${
          list(
            each,
            (r) => `part_${r}_${j} = fma(b, q_${r}_${2 * i + 1}, fma(a, q_${r}_${2 * i}, part_${r}_${j}));`,
          ).join(" ")
        } }`).join("\n      ")
    }`;
  const quad = (r: number, k: number) =>
    `vec4(${list(4, (j) => `added(part_${r}_${4 * k + j})`).join(", ")})`;
  const quads = list(AT_ONCE / 4, (k) => k);
  const put = (turn: number) =>
    list(
      each,
      (r) =>
        quads.map((k) =>
          `scores[slot_${r} * ${CHUNK / 4}u + h / 4u + ${k}u] ${turn === 0 ? "=" : "+="} share_${r}_${k};`
        ).join(" "),
    ).join(" ");
  return `for (var h = 0u; h < ${CHUNK}u; h += ${AT_ONCE}u) {
      ${list(AT_ONCE, position).join("\n      ")}
      ${
    list(each, (r) => quads.map((k) => `let share_${r}_${k} = ${quad(r, k)};`).join(" ")).join("\n      ")
  }
      ${
    list(lanes, (turn) => `if (p == ${turn}u) { ${put(turn)} }\n      workgroupBarrier();`).join("\n      ")
  }
    }`;
}

/** Returns WGSL for the scores of the positions that the query's row sees, and the largest score so far. */
function softmax(r: number): string {
  const quads = list(CHUNK / 4, (k) => k);
  return `${
    quads.map((k) =>
      `let at_${r}_${k} = vec4<u32>(0u, 1u, 2u, 3u) + (c + ${4 * k}u);
    let sees_${r}_${k} = (at_${r}_${k} >= vec4<u32>(seen_${r})) & (at_${r}_${k} < vec4<u32>(count_${r}));
    let x_${r}_${k} = select(vec4<f32>(NONE), scores[slot_${r} * ${CHUNK / 4}u + ${k}u], sees_${r}_${k});`
    ).join("\n    ")
  }
    let x_${r} = max(max(x_${r}_0, x_${r}_1), max(x_${r}_2, x_${r}_3));
    let largest_${r} = max(top_${r}, max(max(x_${r}.x, x_${r}.y), max(x_${r}.z, x_${r}.w)));
    let shrink_${r} = exp(top_${r} - largest_${r});
    top_${r} = largest_${r};`;
}

/** Returns WGSL for the query's softmax weights. Each lane computes some of them. */
function weigh(shape: AttentionShape, r: number): string {
  const lanes = scoreLanes(shape);
  return list(CHUNK / 4, (k) => {
    const weight = `select(vec4<f32>(), exp(x_${r}_${k} - largest_${r}), sees_${r}_${k})`;
    const mine = lanes === 1 ? "" : `if (p == ${k % lanes}u) `;
    return `${mine}{ scores[slot_${r} * ${CHUNK / 4}u + ${k}u] = ${weight}; }`;
  }).join("\n    ");
}

/** Returns WGSL that adds weighted values and weights. */
function addValues(shape: AttentionShape, each: number): string {
  const words = laneWords(shape);
  const position = (j: number) =>
    list(
      words,
      (i) =>
        `{ let word = stage[(4u * k + ${j}u) * WORDS + word_${i}]; let a = low(word); let b = high(word);
        ${
          list(each, (r) => {
            const w = `vec4<f32>(w_${r}.${"xyzw"[j]})`;
            return `sum_${r}_${2 * i} = fma(${w}, a, sum_${r}_${2 * i});
        sum_${r}_${2 * i + 1} = fma(${w}, b, sum_${r}_${2 * i + 1});`;
          }).join(" ")
        } }`,
    ).join("\n      ");
  return `${
    list(each, (r) =>
      `var weights_${r} = 0.0;
    ${list(2 * words, (i) => `sum_${r}_${i} *= shrink_${r};`).join(" ")}`).join("\n    ")
  }
    for (var k = 0u; k < ${CHUNK / 4}u; k++) {
      ${list(each, (r) => `let w_${r} = scores[slot_${r} * ${CHUNK / 4}u + k];`).join(" ")}
      ${list(4, position).join("\n      ")}
      ${
    list(each, (r) => ["x", "y", "z", "w"].map((c) => `weights_${r} += w_${r}.${c};`).join(" ")).join(" ")
  }
    }
    ${list(each, (r) => `total_${r} = fma(total_${r}, shrink_${r}, weights_${r});`).join("\n    ")}`;
}

function storeAll(shape: AttentionShape, r: number, words: number, lanes: number): string {
  const sums = list(2 * words, (i) => `sum_${r}_${i}`);
  const names = (i: number, half: number) => ({
    row: `(first_row + row_${r})`,
    head: `head_${r}`,
    quad: `(2u * word_${i} + ${half}u)`,
    sum: sums[2 * i + half],
    total: `all_total_${r}`,
  });
  return `if (used_${r}) {
    ${addSink(shape, sums, `head_${r}`, `_${r}`)}
    ${
    list(words, (i) =>
      `if (p + ${i * lanes}u < WORDS) { ${storeQuad(shape, names(i, 0))} ${storeQuad(shape, names(i, 1))} }`)
      .join("\n    ")
  }
  }`;
}

function storePart(r: number, words: number, lanes: number): string {
  return `if (used_${r}) {
    let to = partial_at(first_row + row_${r}, head_${r}, group.z);
    ${
    list(words, (i) =>
      `if (p + ${i * lanes}u < WORDS) {
      y[to + 2u * word_${i}] = sum_${r}_${2 * i};
      y[to + 2u * word_${i} + 1u] = sum_${r}_${2 * i + 1};
    }`).join("\n    ")
  }
    if (p == 0u) { y[to + 2u * WORDS] = vec4<f32>(top_${r}, total_${r}, 0.0, 0.0); }
  }`;
}
