/**
 * Layout of the KV cache, and how kernels read and write it. Both buffers of a layer hold blocks of heads, each with
 * KV_BLOCK_TOKENS slots. In f16 a word holds two values. In 8 bits, 32 codes share an f16 scale as in GGUF's Q8_0. The
 * codes of all slots come first, then the scales, an even number per slot. Kernels load one unit at a time (8 values in
 * f16, 32 in 8 bits) and compute with words of eight halves.
 */

import { KV_BLOCK_TOKENS, type KvType } from "../../backend.ts";

/** The types of the KV cache that the GPU supports. */
export const GPU_KV_TYPES: readonly KvType[] = ["f16", "q8_0"];

/** The figures of a layer's KV cache that kernels depend on. */
export interface KvShape {
  readonly kv: KvType;
  readonly kvHeads: number;
  readonly headDim: number;
}

/** Number of 8-bit values per scale in the KV cache. */
const SCALED = 32;

/** Returns the number of words (eight values each) in a unit of the KV cache. */
function unitWords(type: KvType): number {
  return type === "f16" ? 1 : SCALED / 8;
}

/** Returns the number of units per head in the KV cache. The last unit may have fewer values. */
export function unitsOf({ kv, headDim }: KvShape): number {
  return Math.ceil(headDim / 8 / unitWords(kv));
}

/** Returns the number of scales in a KV slot: an even number, so that a word of two scales belongs to one slot. */
function scalesOf(shape: KvShape): number {
  return 2 * Math.ceil(unitsOf(shape) / 2);
}

/** Returns the bytes of one head's keys (or values) in a KV block. */
export function kvHeadBytes(shape: KvShape): number {
  if (shape.kv === "f16") return KV_BLOCK_TOKENS * shape.headDim * 2;
  return KV_BLOCK_TOKENS * (unitsOf(shape) * SCALED + 2 * scalesOf(shape));
}

/** Returns the size of a head in a KV block, and the end of its codes, in words. */
function wordsOf(shape: KvShape): { codes: number; head: number } {
  return { codes: KV_BLOCK_TOKENS * unitsOf(shape) * SCALED / 4, head: kvHeadBytes(shape) / 4 };
}

/**
 * Returns WGSL that reads `keys` and `values`, arrays of vec4<u32>: `Unit`, `unit_of`, `key_unit` and
 * `value_unit`.
 */
export function kvReader(shape: KvShape): string {
  const units = unitsOf(shape);
  const place = `
const UNITS = ${units}u;
/* the first unit of a position in a block; the next position's units follow */
fn unit_of(block: u32, kv_head: u32, position: u32) -> u32 {
  return ((block * ${shape.kvHeads}u + kv_head) * ${KV_BLOCK_TOKENS}u + position % ${KV_BLOCK_TOKENS}u) * UNITS;
}`;
  if (shape.kv === "f16") {
    return `${place}
alias Unit = vec4<u32>;
fn key_unit(at: u32) -> Unit { return keys[at]; }
fn value_unit(at: u32) -> Unit { return values[at]; }`;
  }
  const { codes, head } = wordsOf(shape);
  const unit = (name: string, from: string) =>
    `fn ${name}(at: u32) -> Unit {
  let head = at / ${KV_BLOCK_TOKENS * units}u * ${head / 4}u;
  let u = at % ${KV_BLOCK_TOKENS * units}u;
  let scale = u / UNITS * ${scalesOf(shape)}u + u % UNITS;
  let scales = ${from}[head + ${codes / 4}u + scale / 8u][(scale / 2u) % 4u];
  return Unit(${from}[head + 2u * u], ${from}[head + 2u * u + 1u], unpack2x16float(scales)[scale % 2u]);
}`;
  return `${place}
struct Unit { low: vec4<u32>, high: vec4<u32>, scale: f32 }
${unit("key_unit", "keys")}
${unit("value_unit", "values")}
fn four(codes: u32, scale: f32) -> vec4<f32> {
  let signed = (vec4<i32>(bitcast<i32>(codes)) << vec4<u32>(24u, 16u, 8u, 0u)) >> vec4<u32>(24u);
  return clamp(vec4<f32>(signed) * scale, vec4<f32>(-65504.0), vec4<f32>(65504.0));
}
fn halves_of(codes: vec2<u32>, scale: f32) -> vec4<u32> {
  let a = four(codes.x, scale);
  let b = four(codes.y, scale);
  return vec4<u32>(pack2x16float(a.xy), pack2x16float(a.zw), pack2x16float(b.xy), pack2x16float(b.zw));
}`;
}

/** Returns a WGSL expression for word k (eight halves) of a KV unit. */
function unitWord({ kv }: KvShape, unit: string, k: number): string {
  if (kv === "f16") return unit;
  return `halves_of(${unit}.${k < 2 ? "low" : "high"}.${k % 2 === 0 ? "xy" : "zw"}, ${unit}.scale)`;
}

/**
 * Returns WGSL that passes the words of unit `at` to `put(word, value)`. Both indices continue across neighbouring
 * positions.
 */
export function putUnit(
  shape: KvShape,
  unit: string,
  at: string,
  put: (word: string, value: string) => string,
): string {
  const [each, words] = [unitWords(shape.kv), shape.headDim / 8];
  const place = (k: number) =>
    words % each === 0
      ? `${each}u * (${at}) + ${k}u`
      : `(${at}) / UNITS * ${words}u + (${at}) % UNITS * ${each}u + ${k}u`;
  const inside = (k: number) =>
    words % each === 0 ? "" : `if ((${at}) % UNITS * ${each}u + ${k}u < ${words}u) `;
  return Array.from({ length: each }, (_, k) => `${inside(k)}{ ${put(place(k), unitWord(shape, unit, k))} }`)
    .join("\n    ");
}

/**
 * Returns the declarations and statements of the kernel that appends. `keys` and `values` are arrays of u32; `head`
 * holds the values; they go to `slot` of `kv_head` in `block`. Values are clamped to the largest f16: an infinity would
 * give NaN in masked positions (0 x infinity).
 */
export function kvWriter(
  shape: KvShape,
  lanes: number,
): { readonly globals: string; readonly statements: string } {
  const { kv, kvHeads, headDim } = shape;
  const finite = (x: string, of: string) => `clamp(${x}, ${of}(-65504.0), ${of}(65504.0))`;
  const put = (at: string, word: string) =>
    `if (is_v) { values[${at}] = ${word}; } else { keys[${at}] = ${word}; }`;
  if (kv === "f16") {
    return {
      globals: "",
      statements: `let to = ((block * ${kvHeads}u + kv_head) * ${KV_BLOCK_TOKENS}u + slot) * ${headDim / 2}u;
  for (var d = lane; d < ${headDim / 2}u; d += ${lanes}u) {
    let pair = ${finite("vec2(head[2u * d], head[2u * d + 1u])", "vec2<f32>")};
    ${put("to + d", "pack2x16float(pair)")}
  }`,
    };
  }
  const [units, scales] = [unitsOf(shape), scalesOf(shape)];
  const words = wordsOf(shape);
  const quads = scales * SCALED / 4;
  const largest = (unit: string) =>
    Array.from({ length: 8 }, (_, i) => `tops[8u * (${unit}) + ${i}u]`).reduce((a, b) => `max(${a}, ${b})`);
  return {
    globals: `var<workgroup> tops: array<f32, ${quads}>;
fn quad_of(i: u32) -> vec4<f32> {
  if (4u * i >= ${headDim}u) { return vec4<f32>(); }
  return ${
      finite("vec4<f32>(head[4u * i], head[4u * i + 1u], head[4u * i + 2u], head[4u * i + 3u])", "vec4<f32>")
    };
}
fn scale_of(unit: u32) -> f32 { return ${largest("unit")} * ${1 / 127}; }`,
    statements: `for (var i = lane; i < ${quads}u; i += ${lanes}u) {
    let x = abs(quad_of(i));
    tops[i] = max(max(x.x, x.y), max(x.z, x.w));
  }
  workgroupBarrier();
  let to = (block * ${kvHeads}u + kv_head) * ${words.head}u;
  for (var i = lane; i < ${units * SCALED / 4}u; i += ${lanes}u) {
    let scale = scale_of(i / 8u);
    let codes = vec4<i32>(round(quad_of(i) * select(0.0, 1.0 / scale, scale > 0.0))) & vec4<i32>(255);
    let at = to + slot * ${units * SCALED / 4}u + i;
    ${put("at", "u32(codes.x | (codes.y << 8u) | (codes.z << 16u) | (codes.w << 24u))")}
  }
  for (var i = lane; i < ${scales / 2}u; i += ${lanes}u) {
    let at = to + ${words.codes}u + slot * ${scales / 2}u + i;
    ${put("at", "pack2x16float(vec2<f32>(scale_of(2u * i), scale_of(2u * i + 1u)))")}
  }`,
  };
}
