import { cannotRun } from "../errors.ts";
import { CONV_TAPS, type DeltaShape, formsOf } from "../../../plan/plan.ts";
import { kernelOf } from "../kernels/kernel.ts";
import type { Kernel } from "../kernels/types.ts";
import type { LoweredOp, Slice, VectorId } from "../program.ts";
import { NO_SLOT } from "../step/layout.ts";
import { float, type GpuKind, label, type PlanOpOf } from "./op.ts";

/** Maximum floats of recurrent state in a lane's registers. */
const STRIP = 64;
/** Number of lanes that sum the products of a head's query and key. */
const PARTS = 8;

/** Number of previous inputs that a token's convolution reads. */
const PAST = CONV_TAPS - 1;

type Heads = Omit<DeltaShape, "layer">;

/** A layer's short convolution, gates, delta rule and gated norm. */
export interface DeltaRuleOp extends LoweredOp {
  readonly op: "delta_rule";
  readonly rows: "sequences";
  /** The buffer with all inputs of the delta rule, and the offset of each input in its rows. */
  readonly buffer: number;
  readonly at: { readonly qkv: number; readonly gate: number; readonly alpha: number; readonly beta: number };
  readonly y: Slice;
  /** Vector with the convolution's taps, decay, bias and norm weights. */
  readonly weights: VectorId;
  /** `heads.layer` counts the layers with recurrent state. */
  readonly heads: DeltaShape;
  readonly lengthEps: number;
  readonly eps: number;
}

export const DELTA_RULE: GpuKind<PlanOpOf<"delta_rule">, DeltaRuleOp> = {
  op: "delta_rule",
  lower(op, to) {
    if (op.heads.inGroups) throw cannotRun("its value heads are in groups");
    const conv = to.deferred(op.qkv, "short_conv");
    const [qkv, gate, alpha, beta] = [op.qkv, op.gate, op.alpha, op.beta].map((id) => to.slice(id));
    if (!conv || [gate, alpha, beta].some(({ buffer }) => buffer !== qkv.buffer)) {
      throw new Error("Cannot run this plan on the GPU: the delta rule's inputs come from different ops");
    }
    if (conv.bias !== undefined || conv.first !== 0) {
      throw cannotRun("its short convolution has a bias or does not cover all columns");
    }
    if (conv.keys !== undefined) throw cannotRun("its queries, keys and values have separate convolutions");
    const { columns } = to.plan.buffers[op.qkv];
    const { valueHeads, headDim } = op.heads;
    to.push<DeltaRuleOp>({
      op: "delta_rule",
      rows: "sequences",
      buffer: qkv.buffer,
      at: { qkv: qkv.offset, gate: gate.offset, alpha: alpha.offset, beta: beta.offset },
      y: to.make(formsOf(op.out)),
      weights: to.vector([
        { tensor: conv.weight, length: CONV_TAPS * columns },
        { tensor: op.decay, length: valueHeads },
        { tensor: op.bias, length: valueHeads },
        { tensor: op.norm, length: headDim },
      ]),
      heads: op.heads,
      lengthEps: conv.eps,
      eps: op.eps,
    });
  },
  async dispatches(op, w) {
    const { weights, buffers, program } = w.context;
    const { qkv, gate, alpha, beta } = op.at;
    const { stride } = program.buffers[op.buffer];
    const words = [stride, qkv, gate, alpha, beta, w.stride(op.y), op.y.offset, float(op.eps)];
    const bindings = [
      await w.uniforms(words),
      buffers.activations[op.buffer],
      w.buffer(op.y),
      buffers.states[op.heads.layer],
      buffers.carries,
      weights.vectors[op.weights],
    ];
    return [{ label: label(op), rows: op.rows, kernels: [deltaRuleKernel(op)], n: 1, bindings }];
  },
};

export interface DeltaRuleShape {
  readonly heads: Heads;
  /** Lower bound for the length by which queries and keys are divided. */
  readonly lengthEps: number;
}

/**
 * Returns the floats of a value head in a state slot: its matrix, and the last inputs of the channels that it reads.
 */
export function headStateFloats({ headDim }: Heads): number {
  return headDim * headDim + PAST * 3 * headDim;
}

/**
 * Computes a layer's short convolution, gates, delta rule and gated norm. A workgroup takes one value head
 * through all rows of one sequence, with its state in registers. It reads the state from the step's slot, and stores it
 * in the requested slots, between rows or at the end.
 *
 * For each token S <- a S + d k^T with d = beta (v - a S k). The output is o = S q = a (S q) + d (k . q),
 * from the S before the token, so S is read once. Source: "Gated Delta Networks" (arXiv 2412.06464), equation
 * 10.
 *
 * Lane (strip, v) holds S[v] for a strip of keys. In memory S is [key / 4][v][4], so neighbouring lanes read
 * neighbouring addresses. Value heads that share a key head each convolve it and keep its inputs: none waits
 * for another, and a slot can be read and written in one dispatch. The sums of a token have one order
 * wherever a step begins.
 *
 * Bindings: 1 rows of queries, keys, values, gates, alpha, beta; 2 y; 3 states; 4 slots of the sequences
 * (`step_data.ts`); 5 taps by channel, decay and bias by value head, norm.
 */
export function deltaRuleKernel({ heads, lengthEps }: DeltaRuleShape): Kernel {
  const { keyHeads, valueHeads, headDim } = heads;
  const strips = stripsOf(headDim);
  const quads = headDim / 4;
  const held = Array.from({ length: quads / strips }, (_, i) => i);
  const lanes = headDim * strips;
  const code = `
${declarations(heads, lanes)}

@compute @workgroup_size(${lanes})
fn delta_rule(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  ${loadState(heads, held)}
  let stride = op.x_stride >> 2u;
  var at = carry.x * stride + ((op.qkv + channel) >> 2u);
  var next = x[at];
  var put = carry.z;
  for (var t = 0u; t < length; t++) {
    let row = carry.x + t;
    let input = next;
    at += select(0u, stride, t + 1u < length);
    next = x[at];
    ${convolve(quads)}
    ${updateState({ heads, lengthEps }, strips, held)}
    ${normAndGate()}
    ${storeStates(held)}
  }
}`;
  return kernelOf(
    `delta_rule ${keyHeads} ${valueHeads} ${headDim} ${lengthEps}`,
    code,
    (_n, sequences) => [valueHeads, sequences, 1],
    ({ step }) => 3 * headDim * headDim * step,
  );
}

/** Returns the delta rule kernel's declarations. */
function declarations(heads: Heads, lanes: number): string {
  const { valueHeads, headDim } = heads;
  const quads = headDim / 4;
  return `struct Op {
  x_stride: u32, qkv: u32, gate: u32, alpha: u32, beta: u32, y_stride: u32, y_offset: u32, eps: f32,
}
@group(0) @binding(0) var<uniform> op: Op;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<storage, read_write> states: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> carries: array<vec4<u32>>;
@group(0) @binding(5) var<storage, read> weights: array<vec4<f32>>;
const D = ${headDim}u;
const QUADS = ${quads}u;
const SLOT = ${valueHeads * headStateFloats(heads) / 4}u;
const HEAD = ${headStateFloats(heads) / 4}u;
/* the head's query, key and value */
var<workgroup> mixed: array<vec4<f32>, ${3 * quads}>;
/* q . q, k . k, k . q */
var<workgroup> products: array<vec3<f32>, ${PARTS}>;
var<workgroup> shares: array<vec2<f32>, ${lanes}>;
var<workgroup> results: array<f32, ${headDim}>;
var<workgroup> squares: array<f32, ${PARTS}>;

fn weight(i: u32) -> f32 { return weights[i >> 2u][i & 3u]; }
fn activation(i: u32) -> f32 { return x[i >> 2u][i & 3u]; }
/* ln(1 + e^x) from 2 artanh(e / (2 + e)): exact for small e^x too, unlike a driver's log */
fn softplus(x: f32) -> f32 {
  let e = exp(-abs(x));
  let s = e / (2.0 + e);
  let z = s * s;
  let odd = 1.0 + z * (1.0 / 3.0 + z * (1.0 / 5.0 + z * (1.0 / 7.0 + z * (1.0 / 9.0 + z * (1.0 / 11.0 +
    z * (1.0 / 13.0 + z / 15.0))))));
  return max(x, 0.0) + 2.0 * s * odd;
}`;
}

/** Returns WGSL that loads a lane's constants, and its state from the slot, or zeros. */
function loadState({ keyHeads, valueHeads, headDim }: Heads, held: readonly number[]): string {
  const channels = (2 * keyHeads + valueHeads) * headDim;
  return `/* first row, slot to read, and the range of entries (after how many rows, slot to store the state in) */
  let carry = carries[group.y];
  let length = carries[carry.w - 1u].x;
  let head = group.x;
  let key_head = head % ${keyHeads}u;
  let v = lane % D;
  let strip = lane / D;
  /* four channels of the head's query, key or value */
  let part = lane / QUADS;
  let convolves = part < 3u;
  var of_part = ${2 * keyHeads}u + head;
  if (part == 0u) { of_part = key_head; }
  if (part == 1u) { of_part = ${keyHeads}u + key_head; }
  let channel = select(0u, of_part * D + 4u * (lane % QUADS), convolves);
  ${[0, 1, 2, 3].map((c) => `let taps_${c} = weights[channel + ${c}u];`).join("\n  ")}
  let decay = weight(${4 * channels}u + head);
  let bias = weight(${4 * channels + valueHeads}u + head);
  let norm = weight(${4 * channels + 2 * valueHeads}u + v);

  let cell = strip * ${held.length}u * D + v;
  let window = D * QUADS + lane;
  ${held.map((i) => `var s_${i} = vec4<f32>();`).join("\n  ")}
  var past_0 = vec4<f32>();
  var past_1 = vec4<f32>();
  var past_2 = vec4<f32>();
  if (carry.y != ${NO_SLOT}u) {
    let base = carry.y * SLOT + head * HEAD;
    ${held.map((i) => `s_${i} = states[base + cell + ${i}u * D];`).join("\n    ")}
    if (convolves) {
      ${[0, 1, 2].map((i) => `past_${i} = states[base + window + ${3 * i}u * QUADS];`).join("\n      ")}
    }
  }`;
}

/** Returns WGSL that convolves a token's inputs, and sums the products of its query and key. */
function convolve(quads: number): string {
  return `if (convolves) {
      let sum = vec4<f32>(${
    ["x", "y", "z", "w"].map((c, i) => `
        dot(taps_${i}, vec4<f32>(past_0.${c}, past_1.${c}, past_2.${c}, input.${c}))`).join(",")
  },
      );
      past_0 = past_1;
      past_1 = past_2;
      past_2 = input;
      mixed[lane] = sum / (1.0 + exp(-sum));
    }
    workgroupBarrier();
    if (lane < ${PARTS}u) {
      var sum = vec3<f32>();
      ${
    Array.from({ length: quads / PARTS }, (_, i) =>
      `{
        let q = mixed[${quads / PARTS}u * lane + ${i}u];
        let k = mixed[QUADS + ${quads / PARTS}u * lane + ${i}u];
        sum += vec3<f32>(dot(q, q), dot(k, k), dot(k, q));
      }`).join("\n      ")
  }
      products[lane] = sum;
    }`;
}

/** Returns WGSL that reads from the recurrent state, updates it, and stores the token's result in `results`. */
function updateState(
  { heads: { headDim }, lengthEps }: DeltaRuleShape,
  strips: number,
  held: readonly number[],
): string {
  return `let keys = QUADS + strip * ${held.length}u;
    let queries = strip * ${held.length}u;
    var with_key = vec4<f32>();
    var with_query = vec4<f32>();
    ${
    held.map((i) =>
      `with_key = fma(s_${i}, mixed[keys + ${i}u], with_key);
    with_query = fma(s_${i}, mixed[queries + ${i}u], with_query);`
    ).join("\n    ")
  }
    shares[lane] = vec2<f32>(dot(with_key, vec4<f32>(1.0)), dot(with_query, vec4<f32>(1.0)));
    workgroupBarrier();
    let product = ${tree(PARTS, (i) => `products[${i}]`)};
    let read = ${tree(strips, (i) => `shares[v + ${i}u * D]`)};
    let q_scale = ${1 / Math.sqrt(headDim)} / max(sqrt(product.x), ${lengthEps});
    let k_scale = 1.0 / max(sqrt(product.y), ${lengthEps});
    let alpha = activation(row * op.x_stride + op.alpha + head);
    let a = exp(decay * softplus(alpha + bias));
    let beta = 1.0 / (1.0 + exp(-activation(row * op.x_stride + op.beta + head)));
    let d = beta * (mixed[2u * QUADS + (v >> 2u)][v & 3u] - a * read.x * k_scale);
    let update = d * k_scale;
    ${held.map((i) => `s_${i} = fma(vec4<f32>(update), mixed[keys + ${i}u], a * s_${i});`).join("\n    ")}
    let result = (a * read.y + d * product.z * k_scale) * q_scale;
    if (strip == 0u) { results[v] = result; }
    workgroupBarrier();`;
}

/** Returns WGSL that norms and gates the result, and stores it. */
function normAndGate(): string {
  return `if (lane < ${PARTS}u) {
      var sum = 0.0;
      for (var i = 0u; i < D / ${PARTS}u; i++) {
        let r = results[D / ${PARTS}u * lane + i];
        sum = fma(r, r, sum);
      }
      squares[lane] = sum;
    }
    workgroupBarrier();
    if (strip == 0u) {
      let square = ${tree(PARTS, (i) => `squares[${i}]`)};
      let gate = activation(row * op.x_stride + op.gate + head * D + v);
      y[row * op.y_stride + op.y_offset + head * D + v] = result / sqrt(square / f32(D) + op.eps) * norm *
        gate / (1.0 + exp(-gate));
    }`;
}

/** Returns WGSL that stores the state in the slots that receive it after this token. */
function storeStates(held: readonly number[]): string {
  return `while (put < carry.w && carries[put].x == t + 1u) {
      let base = carries[put].y * SLOT + head * HEAD;
      ${held.map((i) => `states[base + cell + ${i}u * D] = s_${i};`).join("\n      ")}
      if (convolves) {
        ${[0, 1, 2].map((i) => `states[base + window + ${3 * i}u * QUADS] = past_${i};`).join("\n        ")}
      }
      put++;
    }`;
}

/**
 * Returns the lanes that share a row of the state, a power of two. Heads of up to 128 dimensions use the 256
 * lanes that every device has; 256 dimensions use 1,024.
 */
function stripsOf(headDim: number): number {
  let strips = 1;
  while (headDim / strips > STRIP) strips *= 2;
  return strips;
}

/** Returns a WGSL expression for the sum of terms, added in pairs. */
function tree(count: number, term: (i: number) => string): string {
  const terms = Array.from({ length: count }, (_, i) => term(i));
  while (terms.length > 1) terms.push(`(${terms.shift()} + ${terms.shift()})`);
  return terms[0];
}
