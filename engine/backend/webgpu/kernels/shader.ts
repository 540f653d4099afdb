/** Code shared by the matrix kernels: bindings, the format's decoder, activations, and the product of two blocks. */
import { order as orderOfQuads, quadFunction } from "./formats/codes.ts";
import {
  BLOCK,
  type Decoder,
  ELEMENT_BYTES,
  QUAD,
  rowBytesOf,
  rowOf,
  type Scalar,
  scaledTo,
  sharedPlanes,
  type WeightFormat,
} from "./formats/format.ts";
import { gpuFormat } from "./formats/registry.ts";
import type { Arithmetic } from "../../backend.ts";
import type { Epilogue, MatMulSpec } from "./types.ts";
import { loaders } from "./words.ts";

/** The number types with which a matrix kernel computes. */
export interface Numbers {
  /** Type of decoded weights. */
  readonly weight: Scalar;
  /** Type of activations in multiplications. */
  readonly input: Scalar;
}

/**
 * Returns the types for an arithmetic. Weights without bounds (F32) are never multiplied in f16: a block's products
 * could overflow, for activations of any scale.
 */
export function numbersOf(format: WeightFormat, arithmetic: Arithmetic): Numbers {
  return { weight: arithmetic === "f16" && !format.unbounded ? "f16" : "f32", input: arithmetic };
}

const OP = `struct Op {
  columns: u32, n: u32, x_stride: u32, y_stride: u32, y_offset: u32, bias_offset: u32, unused_0: u32, unused_1: u32,
}
@group(0) @binding(0) var<uniform> op: Op;
@group(0) @binding(1) var<uniform> step: vec4<u32>;`;

const HALF_OF = `// The value of a half float from its bits, subnormal ones too, which devices may flush to 0.
fn half_of(bits: u32) -> f32 {
  let m = bits & 0x7fffu;
  let value = select(bitcast<f32>((m << 13u) + 0x38000000u), f32(m) * 5.9604644775390625e-8, m < 0x400u);
  return select(value, -value, (bits & 0x8000u) != 0u);
}`;

/**
 * Returns the declarations of the weight planes, from binding 4 on, and of the functions that load and decode a block
 * (`words.ts`).
 */
export function weights(type: MatMulSpec["type"], columns: number, scalar: Scalar): string {
  const format = gpuFormat(type);
  const decoder = format.decoder(scalar);
  const planes = format.planes.map((plane, i) =>
    `@group(0) @binding(${4 + i}) var<storage, read> ${plane.name}: array<${plane.element}>;
const ${rowOf(plane.name)} = ${rowBytesOf(plane, columns) / ELEMENT_BYTES[plane.element]}u;`
  );
  const scale = scaleType(format);
  return `${planes.join("\n")}
${decoder.globals ?? ""}
${HALF_OF}
${quadFunction(scalar)}
${loaders(format)}
struct Block { q: array<${QUAD[scalar]}, 8>, scale: ${scale}${decoder.offset ? `, offset: ${scale}` : ""} }
fn decode_block(b: u32, own: Own${sharedPlanes(format).length > 0 ? ", words: Words" : ""}) -> Block {
  ${decoder.body}
  return Block(
    array<${QUAD[scalar]}, 8>(
      ${decoder.quads.join(",\n      ")},
    ),
    ${decoder.scale},${decoder.offset ? ` ${decoder.offset},` : ""}
  );
}`;
}

/**
 * Returns the bindings of a matrix product, its decoder, and `read_block`, which loads a block of
 * activations.
 */
export function preamble(spec: MatMulSpec, numbers: Numbers): string {
  const format = gpuFormat(spec.type);
  const decoder = format.decoder(numbers.weight);
  const bias = 4 + format.planes.length;
  return `${numbers.input === "f16" ? "enable f16;" : ""}
${OP}
@group(0) @binding(2) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
${weights(spec.type, spec.columns, numbers.weight)}
${spec.bias ? `@group(0) @binding(${bias}) var<storage, read> bias: array<f32>;` : ""}
const BLOCKS = ${Math.ceil(spec.columns / BLOCK)}u;
const PAIRS = ${Math.ceil(spec.columns / BLOCK / 2)}u;
fn added(x: vec4<f32>) -> f32 { return (x.x + x.y) + (x.z + x.w); }
${inputBlock(spec.columns, format, decoder, numbers)}`;
}

/** Returns the WGSL type of a block's scale, and of the sums that an offset multiplies. */
export function scaleType(format: WeightFormat): string {
  return format.sub === BLOCK ? "f32" : "vec2<f32>";
}

/**
 * Exponent of the bound for scaled activations: below 2^10, with weights of at most 1, no sum of a block overflows f16.
 */
const MAGNITUDE = 10;

/**
 * Returns `Input` and `read_block(t, b)`, which loads columns 32 b to 32 b + 31 of row t in the decoder's
 * order.
 */
function inputBlock(
  columns: number,
  format: WeightFormat,
  decoder: Decoder,
  { input, weight }: Numbers,
): string {
  const order = decoder.order ?? orderOfQuads(weight);
  const scaled = input !== "f32";
  const fields = [
    `q: array<${QUAD[input]}, 8>`,
    ...(scaled ? ["scale: f32"] : []),
    ...(decoder.offset ? [`sum: ${scaleType(format)}`] : []),
  ];
  const quads = Array.from({ length: 8 }, (_, k) => {
    const from = order.slice(4 * k, 4 * k + 4).map((c) => `x${c >> 2}.${"xyzw"[c & 3]}`);
    const quad = `vec4<f32>(${from.join(", ")})`;
    return scaled ? `vec4<f16>(${quad} * up)` : quad;
  });
  const values = [
    `array<${QUAD[input]}, 8>(\n      ${quads.join(",\n      ")},\n    )`,
    ...(scaled ? ["down"] : []),
    ...(decoder.offset ? [sums(format)] : []),
  ];
  const loads = Array.from({ length: 8 }, (_, k) => `let x${k} = ${loadQuad(columns, k)};`);
  return `struct Input { ${fields.join(", ")} }
fn read_block(t: u32, b: u32) -> Input {
  let at = t * (op.x_stride >> 2u) + 8u * b;
  ${loads.join("\n  ")}
  ${scaled ? scaledTo(MAGNITUDE) : ""}
  return Input(
    ${values.join(",\n    ")},
  );
}`;
}

/**
 * Returns WGSL that loads four columns. Columns beyond the matrix count as 0, because the buffer may hold anything
 * there.
 */
function loadQuad(columns: number, k: number): string {
  if (columns % BLOCK === 0) return `x[at + ${k}u]`;
  const lanes = "vec4<u32>(0u, 1u, 2u, 3u)";
  return `select(vec4<f32>(), x[at + ${k}u], ${lanes} + (32u * b + ${4 * k}u) < vec4<u32>(${columns}u))`;
}

/** Returns WGSL for sums of the unrounded activations, so that multiplying an offset adds no rounding error. */
function sums(format: WeightFormat): string {
  const of = (from: number, to: number) => {
    const list = Array.from({ length: to - from }, (_, i) => `x${from + i}`);
    return `added(${list.join(" + ")})`;
  };
  return format.sub === BLOCK ? of(0, 8) : `vec2<f32>(${of(0, 4)}, ${of(4, 8)})`;
}

/**
 * Returns `block_dot(w, v, sum)`, which adds the product of a block to `sum`. Each addition is an `fma`, so that
 * compilers round a sum equally in all kernels.
 */
export function blockDot(spec: MatMulSpec, numbers: Numbers): string {
  const format = gpuFormat(spec.type);
  const x = (k: number) => numbers.weight === numbers.input ? `v.q[${k}]` : `vec4<f32>(v.q[${k}])`;
  const chain = (...ks: number[]) =>
    ks.slice(1).reduce((sum, k) => `fma(w.q[${k}], ${x(k)}, ${sum})`, `w.q[${ks[0]}] * ${x(ks[0])}`);
  const wide = (e: string) => numbers.weight === "f16" ? `vec4<f32>(${e})` : `(${e})`;
  const whole = format.sub === BLOCK;
  const chains = whole
    ? [chain(0, 4), chain(1, 5), chain(2, 6), chain(3, 7)]
    : [chain(0, 2), chain(1, 3), chain(4, 6), chain(5, 7)];
  const parts = whole
    ? [`let all = added(${wide("(c0 + c1) + (c2 + c3)")});`]
    : [`let low = added(${wide("c0 + c1")});`, `let high = added(${wide("c2 + c3")});`];
  const offset = format.decoder(numbers.weight).offset !== undefined;
  return `fn block_dot(w: Block, v: Input, sum: f32) -> f32 {
  ${[...chains.map((c, i) => `let c${i} = ${c};`), ...parts].join("\n  ")}
  return ${scaledSum(format, numbers, offset)};
}`;
}

/**
 * Returns a WGSL expression: `sum` plus a block's products (`all`, or `low` and `high`) times their scales, plus
 * offsets.
 */
function scaledSum(format: WeightFormat, { input }: Numbers, offset: boolean): string {
  const [whole, scaled] = [format.sub === BLOCK, input !== "f32"];
  const sum = whole
    ? (scaled ? "fma(all * w.scale, v.scale, sum)" : "fma(all, w.scale, sum)")
    : scaled
    ? "fma(fma(low, w.scale.x, high * w.scale.y), v.scale, sum)"
    : "fma(low, w.scale.x, fma(high, w.scale.y, sum))";
  return offset ? withOffset(format, sum) : sum;
}

function withOffset(format: WeightFormat, sum: string): string {
  return format.sub === BLOCK
    ? `fma(w.offset, v.sum, ${sum})`
    : `fma(w.offset.x, v.sum.x, fma(w.offset.y, v.sum.y, ${sum}))`;
}

/**
 * Returns WGSL that stores `value` in column `row` of row `t` of y. With "swiglu" it combines the gate's `value` with
 * `up`.
 */
export function store(epilogue: Epilogue, bias: boolean, value: string, up = ""): string {
  const at = "t * op.y_stride + op.y_offset + row";
  if (epilogue === "add") return `y[${at}] += ${value};`;
  if (epilogue === "swiglu") return `y[${at}] = ${value} / (1.0 + exp(-${value})) * ${up};`;
  return `y[${at}] = ${value}${bias ? " + bias[op.bias_offset + row]" : ""};`;
}
