import { type CompileOptions, KV_TYPES } from "../backend/backend.ts";
import { encodeOp } from "./ops/registry.ts";
import type { BufferForm, Plan } from "./plan.ts";
import { planScratch } from "./scratch.ts";
import { WordWriter } from "./words.ts";

const MAGIC = 0x4e4c5043; // "CPLN"
const VERSION = 6;
const BUFFER_FORMS: readonly BufferForm[] = ["float", "quant", "fine"];

/** A plan as the words that rust-kernels/src/program reads; the two change together, with VERSION. */
export function encodePlan(plan: Plan, options: CompileOptions): Uint8Array<ArrayBuffer> {
  const scratch = planScratch(plan, options.maxRows, options.maxLogitRows);
  const w = new WordWriter(65536);
  w.u32(MAGIC, VERSION, options.maxRows, options.maxLogitRows, plan.vocabSize);
  w.u32(KV_TYPES.indexOf(plan.kv.type), options.kvBlocks, plan.kv.layers.length);
  for (const { heads, headDim } of plan.kv.layers) w.u32(heads, headDim);
  const { recurrent } = plan;
  w.u32(recurrent.layers, recurrent.keyHeads, recurrent.valueHeads, recurrent.headDim);
  w.u32(options.stateSlots ?? 0);
  w.u64(scratch.arenaBytes);
  w.u32(plan.rope.length);
  for (const frequencies of plan.rope) {
    w.u32(frequencies.length);
    for (const frequency of frequencies) w.f64(frequency);
  }
  w.u32(plan.buffers.length);
  plan.buffers.forEach((b, i) => {
    w.u32(BUFFER_FORMS.indexOf(b.form), b.rows === "step" ? 0 : 1, b.columns).u64(scratch.offsets[i]);
  });
  w.u32(plan.ops.length);
  for (const op of plan.ops) encodeOp(w, op);
  return w.bytes();
}
