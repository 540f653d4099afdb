import { type CompileOptions, KV_TYPES } from "../backend/backend.ts";
import type { BufferForm, Forms, HeadShape, Plan, PlanOp } from "./plan.ts";
import { planScratch } from "./scratch.ts";
import { WordWriter } from "./words.ts";

const MAGIC = 0x4e4c5043; // "CPLN"
const VERSION = 5;
/** "No such operand" among the words. */
const NONE = 0xffffffff;
const BUFFER_FORMS: readonly BufferForm[] = ["float", "quant", "fine"];
const CODES: Readonly<Record<PlanOp["op"], number>> = {
  embed: 0,
  rope_table: 1,
  rms_norm: 2,
  matmul: 3,
  swiglu: 4,
  rope_append: 5,
  attention: 6,
  quantize: 7,
  candidates: 8,
  short_conv: 9,
  delta_rule: 10,
};

/** A plan as the words that rust-kernels/src/program.rs reads; the two change together, with VERSION. */
export function encodePlan(plan: Plan, options: CompileOptions): Uint8Array<ArrayBuffer> {
  const scratch = planScratch(plan, options.maxRows, options.maxLogitRows);
  const w = new WordWriter(65536);
  w.u32(MAGIC, VERSION, options.maxRows, options.maxLogitRows, plan.vocabSize);
  w.u32(KV_TYPES.indexOf(plan.kv.type), plan.kv.layers, plan.kv.heads, plan.kv.headDim, options.kvBlocks);
  const { layers, keyHeads, valueHeads, headDim } = plan.recurrent;
  w.u32(layers, keyHeads, valueHeads, headDim, options.stateSlots ?? 0);
  w.u64(scratch.arenaBytes);
  w.u32(plan.frequencies.length);
  for (const frequency of plan.frequencies) w.f64(frequency);
  w.u32(plan.buffers.length);
  plan.buffers.forEach((b, i) => {
    w.u32(BUFFER_FORMS.indexOf(b.form), b.rows === "step" ? 0 : 1, b.columns).u64(scratch.offsets[i]);
  });
  w.u32(plan.ops.length);
  for (const op of plan.ops) encodeOp(w, op);
  return w.bytes();
}

/** Returns the writer, so that the compiler names an op that has no case. */
function encodeOp(w: WordWriter, op: PlanOp): WordWriter {
  w.u32(CODES[op.op]);
  switch (op.op) {
    case "embed":
      return w.u32(op.weight, op.out);
    case "rope_table":
      return w.u32(op.out);
    case "rms_norm":
      return w.u32(op.x, op.weight).f32(op.eps).u32(...triple(op.out));
    case "matmul":
      w.u32(...triple(op.x), op.parts.length);
      return op.parts.reduce(
        (w, p) => w.u32(p.weight, p.bias ?? NONE, p.out, p.add ? 1 : 0, p.fine),
        w,
      );
    case "swiglu":
      return w.u32(...pair(op.x), op.gate, op.up, ...pair(op.out));
    case "rope_append":
      w.u32(op.q, op.k, op.v, op.table, op.qNorm ?? NONE, op.kNorm ?? NONE, ...heads(op.heads));
      return w.u32(op.rotated, op.interleaved ? 1 : 0).f32(op.eps);
    case "attention":
      return w.u32(op.q, op.out, ...heads(op.heads)).f32(op.scale);
    case "quantize":
      return w.u32(op.x, NONE, op.out);
    case "candidates":
      return w.u32(op.logits, op.exact?.x ?? NONE, op.exact?.weight ?? NONE);
    case "short_conv":
      return w.u32(op.x, op.weight, op.heads.layer).f32(op.eps);
    case "delta_rule":
      w.u32(op.qkv, op.gate, op.alpha, op.beta, op.decay, op.bias, op.norm, op.heads.layer);
      return w.f32(op.eps).u32(...triple(op.out));
  }
}

function pair(forms: Forms): [number, number] {
  return [forms.float ?? NONE, forms.quant ?? NONE];
}

function triple(forms: Forms): [number, number, number] {
  return [...pair(forms), forms.fine ?? NONE];
}

function heads(h: HeadShape): number[] {
  return [h.layer, h.heads, h.kvHeads, h.headDim, h.gated ? 1 : 0];
}
