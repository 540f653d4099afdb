import { type CompileOptions, KV_TYPES } from "./choices.ts";
import { encodeOp } from "./ops/registry.ts";
import { type BufferForm, type BufferRows, NO_MATRICES, type Plan } from "./plan.ts";
import { planScratch } from "./scratch.ts";
import { WordWriter } from "./words.ts";

const MAGIC = 0x4e4c5043; // "CPLN"
const VERSION = 18;
const ROW_CODES = { step: 0, logits: 1, pools: 3 };
const BUFFER_FORMS: readonly BufferForm[] = ["float", "quant", "fine"];

/** Encodes a plan as the words that rust-kernels/src/program reads. Change both together, and VERSION too. */
export function encodePlan(plan: Plan, options: CompileOptions): Uint8Array<ArrayBuffer> {
  const scratch = planScratch(plan, options.maxRows, options.maxLogitRows);
  const w = new WordWriter(65536);
  w.u32(MAGIC, VERSION, options.maxRows, options.maxLogitRows, plan.vocabSize);
  const { type, layers, windows } = plan.kv;
  w.u32(KV_TYPES.indexOf(type), options.kvBlocks, windows.length, layers.length, ...windows);
  for (const { heads, headDim, group } of layers) w.u32(heads, headDim, group);
  w.u32(plan.states.length, options.stateSlots ?? 0);
  for (const { conv, matrices } of plan.states) {
    const { heads, rows, columns } = matrices ?? NO_MATRICES;
    w.u32(conv.channels, conv.inputs, heads, rows, columns);
  }
  w.u64(scratch.arenaBytes);
  w.u32(plan.rope.length);
  for (const { frequencies, axes, magnitude } of plan.rope) {
    w.u32(frequencies.length).f64(magnitude);
    for (const frequency of frequencies) w.f64(frequency);
    w.u32(...axes ?? new Uint8Array(frequencies.length));
  }
  w.u32(plan.buffers.length);
  plan.buffers.forEach((b, i) => {
    w.u32(BUFFER_FORMS.indexOf(b.form), ...rowWords(b.rows), b.columns).u64(scratch.offsets[i]);
  });
  w.u32(plan.ops.length);
  for (const op of plan.ops) encodeOp(w, op);
  return w.bytes();
}

function rowWords(rows: BufferRows): number[] {
  if (typeof rows !== "string") return [2, rows.count, rows.used];
  return [ROW_CODES[rows]];
}
