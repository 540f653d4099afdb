import { cannotRun } from "../../errors.ts";
import type { DispatchWriter } from "../../step/dispatch_writer.ts";
import type { Kernel } from "../../kernels/types.ts";
import type { DispatchKind, HeadCounts, LoweredOp, Slice, VectorId } from "../../program.ts";
import type { Dispatch, StepSize } from "../../step/dispatch.ts";
import { mergeKernel } from "./attention_merge.ts";
import { type AttentionShape, sharesContext } from "./attention_shape.ts";
import { singleKernel } from "./attention_single.ts";
import { tileKernel } from "./attention_tile.ts";
import { float, type GpuKind, label, type PlanOpOf } from "../op.ts";

export interface AttentionOp extends LoweredOp {
  readonly op: "attention";
  readonly rows: "step";
  readonly q: Slice;
  readonly y: Slice;
  /** The layer's index among the layers that have a KV cache. */
  readonly cache: number;
  readonly heads: HeadCounts;
  readonly scale: number;
  /** Number of positions that a row attends to; 0 for all. */
  readonly window: number;
  readonly sinks?: VectorId;
}

export const ATTENTION: GpuKind<PlanOpOf<"attention">, AttentionOp> = {
  op: "attention",
  lower({ q, out, heads, scale, window, chunked, sinks, softcap, chosen }, to) {
    if (chunked) throw cannotRun("its attention is chunked");
    if (softcap !== 0) throw cannotRun("its attention scores are capped");
    if (chosen !== undefined) throw cannotRun("its rows attend to chosen tokens");
    to.push<AttentionOp>({
      op: "attention",
      rows: "step",
      q: to.slice(q),
      y: to.make([out]),
      cache: heads.layer,
      heads,
      scale,
      window,
      sinks: sinks === undefined ? undefined : to.vector([{ tensor: sinks, length: heads.heads }]),
    });
  },
  async dispatches(op, w) {
    const parts = w.context.buffers.keys[op.cache].length;
    const all: Dispatch[] = [];
    for (let part = 0; part < parts; part++) all.push(...await dispatchesOf(op, w, part, parts));
    return all;
  },
};

/** Returns the attention dispatches for the heads whose keys are in one of a layer's buffers. */
async function dispatchesOf(
  op: AttentionOp,
  w: DispatchWriter,
  part: number,
  parts: number,
): Promise<Dispatch[]> {
  const { plan } = w.context;
  const { keys, values, rows, tables, partials, contexts, layout } = w.context.buffers;
  const { q, y, window } = op;
  const { group } = plan.kv.layers[op.cache];
  const heads = { ...op.heads, heads: op.heads.heads / parts, kvHeads: op.heads.kvHeads / parts };
  const first = part * heads.heads;
  const shape: AttentionShape = {
    ...heads,
    kv: plan.kv.type,
    window,
    sinks: op.sinks !== undefined,
    group,
  };
  const at = {
    q: q.offset + first * heads.headDim * (heads.gated ? 2 : 1),
    y: y.offset + first * heads.headDim,
  };
  const words = (list: number) => {
    const strides = [w.stride(q), at.q, w.stride(y), at.y];
    return [...strides, float(op.scale), contexts.count, list, layout.basesOf(group)];
  };
  const [singles, tiles] = [await w.uniforms(words(layout.singles)), await w.uniforms(words(layout.tiles))];
  const sinks = op.sinks === undefined ? [] : [await sinksOf(op.sinks, w, first, heads.heads)];
  const cache = [keys[op.cache][part], values[op.cache][part], rows, tables];
  const shares = (size: StepSize) => sharesContext(heads, contexts, size);
  const alone = (size: StepSize) => !shares(size);
  const make = (
    name: string,
    kind: DispatchKind,
    kernel: Kernel,
    bindings: Dispatch["bindings"],
    when: Dispatch["when"],
  ): Dispatch => ({ label: `${label(op)}${name}`, rows: kind, kernels: [kernel], n: 1, bindings, when });
  const [query, out] = [w.buffer(q), w.buffer(y)];
  const merged = [singles, out, partials, rows, ...heads.gated ? [query] : [], ...sinks];
  return [
    make("", "singles", singleKernel(shape, contexts), [singles, query, out, ...cache, ...sinks], alone),
    make(" of tiles", "tiles", tileKernel(shape, contexts), [tiles, query, out, ...cache, ...sinks], alone),
    make(
      " of parts",
      "singles",
      singleKernel(shape, contexts, true),
      [singles, query, partials, ...cache],
      shares,
    ),
    make(
      " of tiles' parts",
      "tiles",
      tileKernel(shape, contexts, true),
      [tiles, query, partials, ...cache],
      shares,
    ),
    make(" merged", "step", mergeKernel(shape, contexts), merged, shares),
  ];
}

/**
 * Returns a buffer with the sinks of `count` heads. A binding cannot start at an arbitrary head, so a part of the sinks
 * is copied.
 */
async function sinksOf(id: VectorId, w: DispatchWriter, first: number, count: number): Promise<GPUBuffer> {
  const { device, memory, weights } = w.context;
  const all = weights.vectors[id];
  if (all.size === 4 * count) return all;
  const some = await memory.storage("sinks", 4 * count);
  const encoder = device.createCommandEncoder();
  encoder.copyBufferToBuffer(all, 4 * first, some, 0, 4 * count);
  device.queue.submit([encoder.finish()]);
  return some;
}
