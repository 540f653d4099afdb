import { assert, assertEquals, assertThrows } from "@std/assert";
import { Random, seedOf } from "../../../../testing/random.ts";
import type { StepSequence } from "../../backend.ts";
import { dispatch, openTestDevice, read, upload } from "../kernels/testing.ts";
import { encodeCarries } from "../step/step_data.ts";
import { fullTier } from "../../../../testing/tier.ts";
import { DELTA_RULE, deltaRuleKernel, headStateFloats } from "./delta_rule.ts";

const gpu = await openTestDevice();
const test = (name: string, fn: () => Promise<void>) =>
  fullTier.test({ name, ignore: !gpu, sanitizeResources: false, sanitizeOps: false, fn });

const { STORAGE, COPY_SRC, UNIFORM } = GPUBufferUsage;
const EPS = 1e-6;
const LENGTH_EPS = 1e-5;
const SLOTS = 4;
/** Maximum mean squared error over the mean square. */
const GATE = 1e-11;

interface Heads {
  readonly keyHeads: number;
  readonly valueHeads: number;
  readonly headDim: number;
}

/** A layer's weights and the inputs of some rows, as the kernel reads them. */
interface Layer {
  readonly heads: Heads;
  readonly weights: Float32Array<ArrayBuffer>;
  readonly x: Float32Array<ArrayBuffer>;
  readonly stride: number;
}

const channelsOf = ({ keyHeads, valueHeads, headDim }: Heads) => (2 * keyHeads + valueHeads) * headDim;

Deno.test("delta rule: refuses grouped value heads", () => {
  const op = { heads: { layer: 0, keyHeads: 2, valueHeads: 4, headDim: 32, inGroups: true } };
  assertThrows(() => DELTA_RULE.lower!(op as never, {} as never), Error, 'use backend: "cpu"');
});

/** Where a row's gates, alpha and beta begin. A row begins with its queries, keys and values. */
function placesOf(heads: Heads) {
  const gate = channelsOf(heads);
  const alpha = gate + heads.valueHeads * heads.headDim;
  return { gate, alpha, beta: alpha + heads.valueHeads };
}

function layer(heads: Heads, rows: number, seed = "delta"): Layer {
  const { valueHeads, headDim } = heads;
  const random = new Random(seedOf(seed));
  const of = (length: number, mean: number, spread: number) =>
    Array.from({ length }, () => mean + spread * random.normal());
  const weights = Float32Array.from([
    ...of(4 * channelsOf(heads), 0, 0.4),
    ...of(valueHeads, -1, 0.3),
    ...of(valueHeads, 0, 0.5),
    ...of(headDim, 1, 0.1),
  ]);
  const stride = 64 * Math.ceil((placesOf(heads).beta + valueHeads) / 64);
  return { heads, weights, x: Float32Array.from(of(rows * stride, 0, 1)), stride };
}

/** Returns the results of the formulas in float64 over one sequence's rows. */
function plain({ heads, weights, x, stride }: Layer, first: number, length: number): Float64Array {
  const { keyHeads, valueHeads, headDim: D } = heads;
  const channels = channelsOf(heads);
  const { gate, alpha, beta } = placesOf(heads);
  const sigmoid = (v: number) => 1 / (1 + Math.exp(-v));
  const input = (t: number, i: number) => t < 0 ? 0 : x[(first + t) * stride + i];
  const mixed = (t: number, head: number) =>
    Float64Array.from({ length: D }, (_, i) => {
      const c = head * D + i;
      const sum = [0, 1, 2, 3].reduce((s, tap) => s + weights[4 * c + tap] * input(t - 3 + tap, c), 0);
      return sum * sigmoid(sum);
    });
  const unit = (vector: Float64Array) => {
    const divisor = Math.max(Math.hypot(...vector), LENGTH_EPS);
    return vector.map((v) => v / divisor);
  };
  const out = new Float64Array(length * valueHeads * D);
  for (let head = 0; head < valueHeads; head++) {
    const state = Array.from({ length: D }, () => new Float64Array(D)); // [value][key]
    for (let t = 0; t < length; t++) {
      const q = unit(mixed(t, head % keyHeads)).map((v) => v / Math.sqrt(D));
      const k = unit(mixed(t, keyHeads + head % keyHeads));
      const v = mixed(t, 2 * keyHeads + head);
      const [decay, bias] = [weights[4 * channels + head], weights[4 * channels + valueHeads + head]];
      const a = Math.exp(decay * Math.log1p(Math.exp(input(t, alpha + head) + bias)));
      const b = sigmoid(input(t, beta + head));
      const o = state.map((row, i) => {
        const d = b * (v[i] - a * row.reduce((s, value, j) => s + value * k[j], 0));
        for (let j = 0; j < D; j++) row[j] = a * row[j] + d * k[j];
        return row.reduce((s, value, j) => s + value * q[j], 0);
      });
      const rms = Math.sqrt(o.reduce((s, value) => s + value * value, 0) / D + EPS);
      for (let i = 0; i < D; i++) {
        const z = input(t, gate + head * D + i);
        const norm = weights[4 * channels + 2 * valueHeads + i];
        out[(t * valueHeads + head) * D + i] = o[i] / rms * norm * z * sigmoid(z);
      }
    }
  }
  return out;
}

/** Runs steps over the same slots and returns all their rows: [rows, valueHeads * headDim]. */
async function run(
  { heads, weights, x, stride }: Layer,
  steps: readonly StepSequence[][],
): Promise<Float32Array> {
  const { device } = gpu!;
  const width = heads.valueHeads * heads.headDim;
  const { gate, alpha, beta } = placesOf(heads);
  const op = new Uint32Array([stride, 0, gate, alpha, beta, width, 0, 0]);
  new Float32Array(op.buffer)[7] = EPS;
  const y = upload(device, new Float32Array(x.length / stride * width), STORAGE | COPY_SRC);
  // The initial content of a slot must not matter.
  const states = new Float32Array(SLOTS * heads.valueHeads * headStateFloats(heads)).fill(NaN);
  const kernel = deltaRuleKernel({ heads, lengthEps: LENGTH_EPS });
  const buffers = [
    upload(device, op, UNIFORM),
    upload(device, x, STORAGE),
    y,
    upload(device, states, STORAGE),
    upload(device, new Uint32Array(64), STORAGE),
    upload(device, Float32Array.from([...weights, 0, 0, 0]), STORAGE),
  ];
  for (const sequences of steps) {
    device.queue.writeBuffer(buffers[4], 0, encodeCarries(sequences));
    const bindings = buffers.map((buffer, i): [number, GPUBuffer] => [i, buffer]);
    await dispatch(device, kernel, kernel.workgroups(1, sequences.length), bindings);
  }
  const found = await read(device, y);
  for (const buffer of buffers) buffer.destroy();
  return found;
}

const sequence = (start: number, length: number, state: StepSequence["state"]): StepSequence => {
  return { start, length, cached: 0, blockTable: new Int32Array(0), state };
};

function assertNear(found: Float32Array, exact: Float64Array): void {
  let [error, energy] = [0, 0];
  for (const [i, value] of exact.entries()) {
    error += (found[i] - value) ** 2;
    energy += value ** 2;
  }
  assert(error <= GATE * energy, `NMSE ${error / energy}`); // NaN fails this comparison too
}

for (const headDim of [32, 96, 256]) {
  test(`delta rule: matches the formulas for heads of ${headDim}`, async () => {
    const one = layer({ keyHeads: 2, valueHeads: headDim > 64 ? 2 : 6, headDim }, 9);
    const found = await run(one, [[sequence(0, 9, { read: undefined, write: 1, saves: [] })]]);
    assertNear(found, plain(one, 0, 9));
  });
}

test("delta rule: gives the same bits however rows are cut and states are carried", async () => {
  const one = layer({ keyHeads: 2, valueHeads: 4, headDim: 128 }, 12);
  const whole = await run(one, [
    [
      sequence(0, 8, { read: undefined, write: 0, saves: [] }),
      sequence(8, 4, { read: undefined, write: 1, saves: [] }),
    ],
  ]);
  assertNear(whole.subarray(8 * 512), plain(one, 8, 4));
  const cut = await run(one, [
    // Slots keep states between rows, and the next step continues from some of them.
    [sequence(0, 8, { read: undefined, write: 3, saves: [{ after: 2, slot: 0 }, { after: 5, slot: 2 }] })],
    [sequence(8, 1, { read: undefined, write: 3, saves: [{ after: 1, slot: 1 }] })],
    [
      sequence(2, 3, { read: 0, write: 0, saves: [] }),
      sequence(9, 2, { read: 3, write: 3, saves: [] }),
    ],
    [sequence(5, 3, { read: 2, write: 0, saves: [] }), sequence(9, 3, { read: 1, write: 3, saves: [] })],
  ]);
  assertEquals(cut, whole);
});

test("delta rule: gives finite numbers for extreme gates, zeros and large inputs", async () => {
  const heads = { keyHeads: 1, valueHeads: 2, headDim: 64 };
  const one = layer(heads, 8);
  const { alpha, beta } = placesOf(heads);
  for (const [t, value] of [-1e4, -90, -18, 18, 90, 1e4].entries()) {
    one.x.fill(value, t * one.stride + alpha, t * one.stride + alpha + 2);
    one.x.fill(-value, t * one.stride + beta, t * one.stride + beta + 2);
  }
  one.x.fill(0, 6 * one.stride, 6 * one.stride + alpha);
  one.x.fill(3e4, 7 * one.stride, 7 * one.stride + 64);
  const found = await run(one, [[sequence(0, 8, { read: undefined, write: 0, saves: [] })]]);
  assertNear(found, plain(one, 0, 8));
});
