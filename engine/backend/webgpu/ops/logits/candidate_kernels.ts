import { MAX_CANDIDATES } from "../../../backend.ts";
import { kernelOf } from "../../kernels/kernel.ts";
import type { Kernel } from "../../kernels/types.ts";
import { bestOf, ROW } from "../shape.ts";
import { ADJUST_WORDS, DRAW, HEAD_WORDS, wantHead } from "./wants.ts";

/** Number of logits per workgroup in the first pass of the candidate search. */
const PART = 2048;
const LANES = 256;

/**
 * Bytes of a vocabulary part's result: largest logit, sum of exponentials, token of the largest, sum of distances from
 * the largest. Then score and token of the race's winner, and the sum of squared distances.
 */
export const PART_BYTES = 32;

/** Returns the number of parts of the vocabulary. Each part has one result. */
export function partsOf(vocabulary: number): number {
  return Math.ceil(vocabulary / PART);
}

/**
 * Returns the kernel that finds the largest logit, its token, and sums, for each part of each row. It also copies the
 * probed logits.
 */
export function partsKernel(): Kernel {
  const code = `
${wantHead()}
@group(0) @binding(3) var<storage, read_write> parts: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> answers: array<u32>;
/* of exponentials, of distances from the largest, and of their squares */
var<workgroup> sums: array<vec3<f32>, ${LANES}>;
${bestOf(LANES)}

@compute @workgroup_size(${LANES})
fn logit_parts(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let row = group.y * op.stride + op.offset;
  let want = want_of(group.y);
  let end = min(op.vocabulary, (group.x + 1u) * ${PART}u);
  var top = -3.4e38;
  var token = op.vocabulary;
  for (var i = group.x * ${PART}u + lane; i < end; i += ${LANES}u) {
    let x = logits[row + i];
    if (x > top) { top = x; token = i; }
  }
  let best = best_of(lane, top, token);
  let largest = best.value;
  var sum = vec3(0.0);
  for (var i = group.x * ${PART}u + lane; i < end; i += ${LANES}u) {
    let distance = logits[row + i] - largest;
    sum += vec3(exp(distance), distance, distance * distance);
  }
  sums[lane] = sum;
  workgroupBarrier();
  for (var reach = ${LANES / 2}u; reach > 0u; reach >>= 1u) {
    if (lane < reach) { sums[lane] += sums[lane + reach]; }
    workgroupBarrier();
  }
  if (lane == 0u) {
    let at = 2u * (group.y * op.parts + group.x);
    parts[at] = vec4(largest, sums[0].x, f32(best.token), sums[0].y);
    parts[at + 1u] = vec4(0.0, 0.0, sums[0].z, 0.0);
  }
  if (group.x == 0u) {
    for (var i = lane; i < want.probe_count; i += ${LANES}u) {
      let probed = logits[row + min(wants[want.probes + i], op.vocabulary - 1u)];
      answers[want.answer + ${HEAD_WORDS}u + 2u * want.k + i] = bitcast<u32>(probed);
    }
  }
}`;
  return kernelOf("logit_parts", code, (n, m) => [partsOf(n), m, 1]);
}

/**
 * Returns the kernel that finds the token with the best random score in each part of rows that draw from the whole
 * vocabulary.
 */
export function racesKernel(): Kernel {
  const code = `
${wantHead()}
@group(0) @binding(3) var<storage, read_write> parts: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> chosen: array<u32>;
@group(0) @binding(5) var<storage, read> rows: array<Row>;
${ROW}
${DRAW}
${bestOf(LANES)}

@compute @workgroup_size(${LANES})
fn races(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let want = want_of(group.y);
  if (want.draw == 0u || (wants[want.draw] & DRAW_WHOLE) == 0u) { return; }
  let row = group.y * op.stride + op.offset;
  let draw = draw_of(want.draw);
  let position = rows[chosen[group.y]].y;
  let end = min(op.vocabulary, (group.x + 1u) * ${PART}u);
  var score = -3.4e38;
  var token = op.vocabulary;
  for (var i = group.x * ${PART}u + lane; i < end; i += ${LANES}u) {
    let x = logits[row + i];
    let its = score_of(draw, x, position, i);
    /* masked tokens take no part */
    if (x > -3.3e38 && its > score) { score = its; token = i; }
  }
  let best = best_of(lane, score, token);
  if (lane == 0u) {
    let at = 2u * (group.y * op.parts + group.x) + 1u;
    parts[at].x = best.value;
    parts[at].y = f32(best.token);
  }
}`;
  return kernelOf("races", code, (n, m) => [partsOf(n), m, 1]);
}

/**
 * Returns the kernel that applies penalties and bias to the listed tokens, then the mask. It stores these tokens' raw
 * logits in the answer.
 */
export function adjustKernel(): Kernel {
  const code = `
${wantHead("read_write")}
@group(0) @binding(3) var<storage, read_write> answers: array<u32>;

@compute @workgroup_size(${LANES})
fn adjust(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let row = group.x * op.stride + op.offset;
  let want = want_of(group.x);
  let raws = want.answer + ${HEAD_WORDS}u + 2u * want.k + want.probe_count;
  for (var i = lane; i < want.adjust_count; i += ${LANES}u) {
    let entry = want.adjusts + ${ADJUST_WORDS}u * i;
    let at = row + min(wants[entry], op.vocabulary - 1u);
    let penalty = bitcast<f32>(wants[entry + 1u]);
    let x = logits[at];
    answers[raws + i] = bitcast<u32>(x);
    logits[at] = select(x * penalty, x / penalty, x > 0.0) - bitcast<f32>(wants[entry + 2u]) +
      bitcast<f32>(wants[entry + 3u]);
  }
  storageBarrier();
  if (want.mask == 0u) { return; }
  for (var i = lane; i < op.vocabulary; i += ${LANES}u) {
    if (((wants[want.mask + i / 32u] >> (i % 32u)) & 1u) == 0u) { logits[row + i] = -3.4e38; }
  }
}`;
  return kernelOf("adjust", code, (_n, m) => [m, 1, 1]);
}

/** WGSL declarations for the search of candidates. */
const SEARCH = `/* sums of exponentials, of distances from the largest logit, and of their squares */
var<workgroup> work: array<vec3<f32>, ${LANES}>;
var<workgroup> counts: array<atomic<u32>, 256>;
var<workgroup> keys: array<u32, ${MAX_CANDIDATES}>;
var<workgroup> tokens: array<u32, ${MAX_CANDIDATES}>;
var<workgroup> found: atomic<u32>;
/* the k-th best: its known digits, of logit and token, and how many are wanted among equals in those
   digits */
var<workgroup> high: u32;
var<workgroup> low: u32;
var<workgroup> missing: u32;
var<workgroup> chosen: u32;
var<workgroup> settled: u32;

/* larger for larger logits; 0 for logits that must not be chosen */
fn key_of(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u || x <= -3.3e38) { return 0u; }
  return select(bits | 0x80000000u, ~bits, bits >= 0x80000000u);
}

/* the first digits of (key, reversed token), as many as high and low hold after so many passes */
fn head_of(key: u32, token: u32, digits: u32) -> vec2<u32> {
  if (digits <= 4u) { return vec2(select(key >> ((4u - digits) * 8u % 32u), 0u, digits == 0u), 0u); }
  return vec2(key, (0xffffffu - token) >> ((7u - digits) * 8u));
}`;

/**
 * WGSL that computes a row's log-sum-exp and standard deviation from its parts, and its best logit (`top`) and token
 * (`best`).
 */
const MERGE_PARTS = `let first_part = 2u * group.x * op.parts;
  var top = -3.4e38;
  var best = op.vocabulary;
  for (var i = 0u; i < op.parts; i++) {
    let part = parts[first_part + 2u * i];
    if (part.x > top) { top = part.x; best = u32(part.z); }
  }
  var sum = vec3(0.0);
  for (var i = lane; i < op.parts; i += ${LANES}u) {
    let part = parts[first_part + 2u * i];
    let squares = parts[first_part + 2u * i + 1u].z;
    let shift = part.x - top;
    let count = f32(min(${PART}u, op.vocabulary - i * ${PART}u));
    sum += vec3(
      part.y * exp(shift), part.w + count * shift, squares + 2.0 * shift * part.w + count * shift * shift);
  }
  work[lane] = sum;
  workgroupBarrier();
  for (var reach = ${LANES / 2}u; reach > 0u; reach >>= 1u) {
    if (lane < reach) { work[lane] += work[lane + reach]; }
    workgroupBarrier();
  }
  if (lane == 0u) {
    let mean = work[0].y / f32(op.vocabulary);
    let variance = max(work[0].z / f32(op.vocabulary) - mean * mean, 0.0);
    answers[want.answer + 1u] = bitcast<u32>(top + log(work[0].x));
    answers[want.answer + 2u] = bitcast<u32>(sqrt(variance));
  }`;

/** WGSL that finds the digits of the k-th best logit. */
const FIND_DIGITS = `keys[lane] = 0u;
  tokens[lane] = 0xffffffu;
  if (lane == 0u) { high = 0u; low = 0u; missing = want.k; chosen = want.k; settled = 0u; atomicStore(&found, 0u); }
  for (var digits = 0u; digits < 7u; digits++) {
    atomicStore(&counts[lane], 0u);
    workgroupBarrier();
    if (settled == 0u) {
      let known = vec2(high, low);
      for (var i = lane; i < op.vocabulary; i += ${LANES}u) {
        let key = key_of(logits[row + i]);
        if (key != 0u && all(head_of(key, i, digits) == known)) {
          let next = head_of(key, i, digits + 1u);
          atomicAdd(&counts[select(next.x, next.y, digits >= 4u) & 255u], 1u);
        }
      }
    }
    workgroupBarrier();
    if (lane == 0u && settled == 0u) {
      if (digits == 0u) {
        var all_counts = 0u;
        for (var i = 0u; i < 256u; i++) { all_counts += atomicLoad(&counts[i]); }
        missing = min(missing, all_counts);
        chosen = missing;
      }
      var digit = 255u;
      var here = atomicLoad(&counts[255]);
      while (here < missing && digit > 0u) {
        missing -= here;
        digit--;
        here = atomicLoad(&counts[digit]);
      }
      if (digits < 4u) { high = (high << 8u) | digit; } else { low = (low << 8u) | digit; }
      if (here == missing || digits == 6u) { settled = digits + 1u; }
    }
    workgroupBarrier();
  }`;

/** WGSL that collects the logits that are at least the k-th best. */
const COLLECT = `let known = vec2(high, low);
  if (chosen > 0u) {
    for (var i = lane; i < op.vocabulary; i += ${LANES}u) {
      let key = key_of(logits[row + i]);
      let head = head_of(key, i, settled);
      if (key != 0u && (head.x > known.x || (head.x == known.x && head.y >= known.y))) {
        let at = atomicAdd(&found, 1u);
        if (at < ${MAX_CANDIDATES}u) { keys[at] = key; tokens[at] = i; }
      }
    }
  }
  workgroupBarrier();`;

/** WGSL that sorts the collected logits. */
const SORT = `/* bitonic sort, best first */
  for (var size = 2u; size <= ${MAX_CANDIDATES}u; size <<= 1u) {
    for (var reach = size / 2u; reach > 0u; reach >>= 1u) {
      let other = lane ^ reach;
      if (other > lane) {
        let after = keys[lane] < keys[other] || (keys[lane] == keys[other] && tokens[lane] > tokens[other]);
        if (after == ((lane & size) == 0u)) {
          let key = keys[lane];
          let token = tokens[lane];
          keys[lane] = keys[other];
          tokens[lane] = tokens[other];
          keys[other] = key;
          tokens[other] = token;
        }
      }
      workgroupBarrier();
    }
  }`;

/**
 * Returns the kernel that finds the k best logits of a row, best first, the lower token first among equals, and
 * log(sum(exp(raw))).
 *
 * The kernel finds several candidates digit by digit: count the logits by their next eight bits, and take the digit of
 * the k-th best. There are four digits of the logit, then three of the token. NaN and masked logits are never
 * chosen.
 */
export function candidatesKernel(): Kernel {
  const code = `
${wantHead()}
@group(0) @binding(3) var<storage, read> parts: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> answers: array<u32>;
${SEARCH}

@compute @workgroup_size(${LANES})
fn candidates(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let row = group.x * op.stride + op.offset;
  let want = want_of(group.x);
  ${MERGE_PARTS}
  if (want.k == 1u && want.adjust_count == 0u && want.mask == 0u) {
    if (lane == 0u) {
      answers[want.answer] = select(0u, 1u, best < op.vocabulary);
      answers[want.answer + ${HEAD_WORDS}u] = best;
      answers[want.answer + ${HEAD_WORDS + 1}u] = bitcast<u32>(top);
    }
    return;
  }
  ${FIND_DIGITS}
  ${COLLECT}
  ${SORT}
  if (lane == 0u) { answers[want.answer] = chosen; }
  if (lane < chosen) {
    answers[want.answer + ${HEAD_WORDS}u + lane] = tokens[lane];
    answers[want.answer + ${HEAD_WORDS}u + want.k + lane] = bitcast<u32>(logits[row + tokens[lane]]);
  }
}`;
  return kernelOf("candidates", code, (_n, m) => [m, 1, 1]);
}
