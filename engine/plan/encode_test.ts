import { assertEquals } from "@std/assert";
import { buildPlan, hasDraftLayer } from "../architectures/registry.ts";
import { encodePlan } from "./encode.ts";
import { type Forms, withKvType } from "./plan.ts";
import { planScratch } from "./scratch.ts";
import { smallHybrid, smallLfm2, smallMambaHybrid, smallTransformer } from "./testing.ts";

/** Decodes a plan in the word order of rust-kernels/src/program/ and ops/. */
class Reader {
  #at = 0;
  readonly #view: DataView;

  constructor(bytes: Uint8Array) {
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  u32(): number {
    return this.#view.getUint32((this.#at += 4) - 4, true);
  }

  u32s(count: number): number[] {
    return Array.from({ length: count }, () => this.u32());
  }

  f32(): number {
    return this.#view.getFloat32((this.#at += 4) - 4, true);
  }

  u64(): number {
    return Number(this.#view.getBigUint64((this.#at += 8) - 8, true));
  }

  f64(): number {
    return this.#view.getFloat64((this.#at += 8) - 8, true);
  }

  get rest(): number {
    return this.#view.byteLength - this.#at;
  }
}

const NONE = 0xffffffff;
const ONE = 0x3f800000; // 1 as an f32
const MODELS = {
  qwen2: smallTransformer({ architecture: "qwen2", type: "Q8_0", biases: true, types: { ffn_down: "F16" } }),
  qwen35: smallHybrid({ architecture: "qwen35", type: "Q8_0" }),
  qwen3moe: smallTransformer({ architecture: "qwen3moe", type: "Q8_0", headNorms: true }),
  lfm2: smallLfm2({ architecture: "lfm2", type: "Q8_0" }),
  nemotron_h: smallMambaHybrid({ architecture: "nemotron_h", type: "Q8_0" }),
  "falcon-h1": smallMambaHybrid({ architecture: "falcon-h1", type: "Q8_0" }),
};
const SIZES = { kvBlocks: 9, stateSlots: 3, maxRows: 48, maxLogitRows: 5 };
const DELTA = [8 * 64, 3, 4, 64, 64];
const CONV = [256, 2, 0, 0, 0];
const MAMBA = [8 * 32 + 2 * 2 * 64, 3, 8, 32, 65];
/**
 * Words of the KV cache: type, blocks, groups, layers, each group's window, each layer's heads, head
 * dimension and group. Then recurrent layers, slots, and per layer the convolution's channels and inputs and
 * the matrices' heads, rows and columns.
 */
const SHAPES = {
  qwen2: [[0, 9, 1, 2, 0, 2, 32, 0, 2, 32, 0], [0, 3]],
  qwen35: [[1, 9, 1, 1, 0, 2, 32, 0], [3, 3, ...DELTA, ...DELTA, ...DELTA]],
  qwen3moe: [[0, 9, 1, 2, 0, 2, 32, 0, 2, 32, 0], [0, 3]],
  lfm2: [[0, 9, 1, 1, 0, 2, 32, 0], [2, 3, ...CONV, ...CONV]],
  nemotron_h: [[0, 9, 1, 1, 0, 2, 32, 0], [1, 3, ...MAMBA]],
  "falcon-h1": [[0, 9, 1, 1, 0, 2, 32, 0], [1, 3, ...MAMBA]],
} as const;

/** Returns a buffer's form, kind of rows (for experts also their count and the chosen number), columns and offset. */
function readBuffer(r: Reader): number[] {
  const [form, rows] = r.u32s(2);
  return [form, rows, ...rows === 2 ? r.u32s(2) : [], r.u32(), r.u64()];
}

for (const name of ["qwen2", "qwen35", "qwen3moe", "lfm2", "nemotron_h", "falcon-h1"] as const) {
  Deno.test(`encode: the header and the buffers of ${name} match the plan`, () => {
    const plan = withKvType(buildPlan(MODELS[name]), name === "qwen35" ? "q8_0" : "f16");
    const [kv, recurrent] = SHAPES[name];
    const { offsets, arenaBytes } = planScratch(plan, SIZES.maxRows, SIZES.maxLogitRows);
    const r = new Reader(encodePlan(plan, SIZES));
    assertEquals(r.u32s(5 + kv.length), [0x4e4c5043, 18, 48, 5, plan.vocabSize, ...kv]);
    assertEquals(r.u32s(recurrent.length), recurrent);
    assertEquals(r.u64(), arenaBytes);
    const tables = Array.from({ length: r.u32() }, () => {
      const length = r.u32();
      const angles = { magnitude: r.f64(), frequencies: Float64Array.from({ length }, () => r.f64()) };
      assertEquals(r.u32s(length), Array(length).fill(0)); // axes
      return angles;
    });
    assertEquals(tables, plan.rope);
    const buffers = Array.from({ length: r.u32() }, () => readBuffer(r));
    const expected = plan.buffers.map((b, i) => [
      ["float", "quant", "fine"].indexOf(b.form),
      ...typeof b.rows === "string" ? [{ step: 0, logits: 1, pools: 3 }[b.rows]] : [2, 6, 2],
      b.columns,
      offsets[i],
    ]);
    assertEquals(buffers, expected);
    assertEquals(r.u32(), plan.ops.length);
  });

  Deno.test(`encode: every op of ${name} has its operands, and nothing follows the last`, () => {
    const drafts = hasDraftLayer(MODELS[name]);
    assertEquals(drafts, name === "qwen35");
    const plan = buildPlan(MODELS[name], undefined, undefined, { drafts });
    const r = new Reader(encodePlan(plan, SIZES));
    r.u32s(5 + 4 + 1 + 3 * plan.kv.layers.length + 2 + 5 * plan.states.length + 2);
    for (let tables = r.u32(); tables > 0; tables--) {
      const pairs = r.u32();
      for (let n = pairs; n >= 0; n--) r.f64();
      r.u32s(pairs);
    }
    for (let n = r.u32(); n > 0; n--) readBuffer(r);
    const operand = (id: number | undefined) => id ?? NONE;
    const forms = (f: Forms) => [f.float, f.quant, f.fine].map(operand);
    assertEquals(r.u32(), plan.ops.length);
    for (const op of plan.ops) {
      const code = r.u32();
      switch (op.op) {
        case "embed":
          assertEquals([code, r.u32(), r.f32(), r.u32()], [0, op.weight, 1, op.out]);
          break;
        case "rope_table":
          assertEquals([code, ...r.u32s(2)], [1, op.out, op.table]);
          break;
        case "rms_norm":
          assertEquals([code, ...r.u32s(2), r.f32()], [2, op.x, op.weight, op.eps]);
          assertEquals([r.f32(), ...r.u32s(3)], [1, ...forms(op.out)]);
          break;
        case "matmul":
          assertEquals([code, ...r.u32s(4)], [3, ...forms(op.x), op.parts.length]);
          for (const p of op.parts) {
            assertEquals(r.u32s(3), [p.weight, operand(p.bias), p.out]);
            assertEquals(r.u32s(2), [p.add === undefined ? NONE : ONE, p.fine]);
          }
          break;
        case "glu":
          assertEquals([code, ...r.u32s(2)], [4, operand(op.x.float), operand(op.x.quant)]);
          assertEquals(r.u32s(6), [op.gate, operand(op.gateBias), op.up, operand(op.upBias), 0, op.limit]);
          assertEquals(r.u32s(2), [operand(op.out.float), operand(op.out.quant)]);
          break;
        case "activated":
          assertEquals([code, ...r.u32s(2)], [17, operand(op.x.float), operand(op.x.quant)]);
          assertEquals(r.u32s(3), [op.weight, operand(op.bias), 3]);
          assertEquals(r.u32s(2), [operand(op.out.float), operand(op.out.quant)]);
          break;
        case "rope_append":
          assertEquals([code, ...r.u32s(4)], [5, ...[op.q, op.k, op.v, op.table].map(operand)]);
          assertEquals(r.u32s(2), [operand(op.qNorm), operand(op.kNorm)]);
          assertEquals(r.u32s(5), [op.heads.layer, 8, 2, 32, Number(op.heads.gated)]);
          assertEquals([...r.u32s(2), r.f32(), r.u32()], [op.rotated, Number(op.interleaved), op.eps, 0]);
          assertEquals([r.f32(), ...r.u32s(2)], [op.beta, op.period, op.offset]);
          assertEquals(r.u32s(3), [Number(op.normLast), Number(op.unweighted), op.vFrom]);
          break;
        case "attention":
          assertEquals([code, ...r.u32s(2)], [6, op.q, op.out]);
          assertEquals(r.u32s(5), [op.heads.layer, 8, 2, 32, Number(op.heads.gated)]);
          assertEquals([r.f32(), ...r.u32s(2)], [Math.fround(op.scale), op.window, Number(op.chunked)]);
          assertEquals([r.u32(), r.f32(), r.u32()], [
            operand(op.sinks),
            op.softcap,
            operand(op.chosen?.buffer),
          ]);
          assertEquals(r.u32s(3), [op.chosen?.count ?? 0, op.chosen?.length ?? 0, Number(op.causal)]);
          break;
        case "quantize":
          assertEquals([code, ...r.u32s(3)], [7, op.x, NONE, op.out.quant]);
          break;
        case "candidates":
          assertEquals([code, ...r.u32s(3)], [8, op.logits, operand(op.exact?.x), operand(op.exact?.weight)]);
          assertEquals([r.f32(), r.f32()], [1, 0]);
          break;
        case "pool":
          assertEquals([code, ...r.u32s(2), r.f32()], [11, op.x, op.norm!.weight, op.norm!.eps]);
          assertEquals(r.u32s(2), [op.way, op.out]);
          break;
        case "return_pooled":
          assertEquals([code, r.u32()], [15, op.x]);
          break;
        case "route":
          assertEquals([code, ...r.u32s(3)], [12, op.logits, operand(op.bias), 0]);
          assertEquals([r.u32(), r.f32(), ...r.u32s(3)], [1, 1, operand(op.scales), 1, 1]);
          assertEquals(r.u32s(3), [op.chosen.buffer, 6, 2]);
          break;
        case "expert_glu":
          assertEquals([code, ...r.u32s(2)], [13, operand(op.x.float), operand(op.x.quant)]);
          assertEquals(r.u32s(5), [op.chosen.buffer, 6, 2, op.gate, operand(op.gateBias)]);
          assertEquals(r.u32s(4), [op.up, operand(op.upBias), 0, op.limit]);
          assertEquals(r.u32s(2), [operand(op.out.float), operand(op.out.quant)]);
          break;
        case "expert_sum":
          assertEquals([code, ...r.u32s(3)], [14, op.chosen.buffer, 6, 2]);
          assertEquals(r.u32s(2), [operand(op.x.float), operand(op.x.quant)]);
          assertEquals(r.u32s(4), [op.weight, operand(op.bias), op.out, Number(op.add)]);
          break;
        case "short_conv":
          assertEquals([code, ...r.u32s(3)], [9, op.x, op.first, op.weight]);
          assertEquals(r.u32s(3), [op.keys, op.values, op.bias].map(operand));
          assertEquals([...r.u32s(4), r.f32()], [op.heads.layer, 8, 64, op.first === 0 ? 2 : 0, op.eps]);
          break;
        case "mamba2":
          assertEquals([code, ...r.u32s(4)], [26, op.x, op.decay, op.skip, op.bias]);
          assertEquals(r.u32s(5), [op.heads.layer, 8, 32, 2, 64]);
          break;
        case "grouped_norm":
          assertEquals([code, ...r.u32s(4)], [27, op.x, op.first, op.weight, 2]);
          assertEquals([r.f32(), ...r.u32s(3)], [op.eps, ...forms(op.out)]);
          break;
        case "columns":
          assertEquals([code, ...r.u32s(5)], [34, op.x, op.first, ...forms(op.out)]);
          break;
        case "gated_conv":
          assertEquals([code, ...r.u32s(2)], [28, op.x, op.weight]);
          assertEquals(r.u32s(5), [op.conv.layer, op.conv.taps, ...forms(op.out)]);
          break;
        case "shift":
          assertEquals([code, ...r.u32s(3)], [29, op.x, op.state, op.out]);
          break;
        case "join":
          assertEquals([code, ...r.u32s(3)], [30, op.first, op.second, op.out]);
          break;
        case "recall":
          assertEquals([code, ...r.u32s(2)], [31, op.x, op.out]);
          break;
        case "keep":
          assertEquals([code, ...r.u32s(2)], [32, op.x, op.to]);
          break;
        case "delta_rule":
          assertEquals([code, ...r.u32s(4)], [10, op.qkv, op.gate, op.alpha, op.beta]);
          assertEquals(r.u32s(4), [op.decay, op.bias, op.norm, op.heads.layer]);
          assertEquals([...r.u32s(4), r.f32(), ...r.u32s(3)], [2, 4, 64, 0, op.eps, ...forms(op.out)]);
          break;
      }
    }
    assertEquals(r.rest, 0);
  });
}
