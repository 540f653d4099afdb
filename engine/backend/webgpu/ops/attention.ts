import type { Kernel } from "../kernels/types.ts";
import type { DispatchKind, HeadCounts, LoweredOp, Slice, VectorId } from "../program.ts";
import type { Dispatch, StepSize } from "../recorder.ts";
import { mergeKernel } from "./attention_merge.ts";
import { type AttentionShape, sharesContext } from "./attention_shape.ts";
import { singleKernel } from "./attention_single.ts";
import { tileKernel } from "./attention_tile.ts";
import { float, type GpuKind, label, type PlanOpOf } from "./op.ts";

interface AttentionOp extends LoweredOp {
  readonly op: "attention";
  readonly rows: "step";
  readonly q: Slice;
  readonly y: Slice;
  /** Among the layers that have a KV cache. */
  readonly cache: number;
  readonly heads: HeadCounts;
  readonly scale: number;
  /** Positions that a row sees; 0 is all. */
  readonly window: number;
  readonly sinks?: VectorId;
}

export const ATTENTION: GpuKind<PlanOpOf<"attention">, AttentionOp> = {
  op: "attention",
  lower({ q, out, heads, scale, window, sinks }, to) {
    to.push({
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
    const { plan, weights } = w.context;
    const { keys, values, rows, tables, partials, contexts, layout } = w.context.buffers;
    const { q, y, heads, window } = op;
    const { group } = plan.kv.layers[op.cache];
    const shape: AttentionShape = {
      ...heads,
      kv: plan.kv.type,
      window,
      sinks: op.sinks !== undefined,
      group,
    };
    const words = (list: number) => {
      const strides = [w.stride(q), q.offset, w.stride(y), y.offset];
      return [...strides, float(op.scale), contexts.count, list, layout.basesOf(group)];
    };
    const [singles, tiles] = [await w.uniforms(words(layout.singles)), await w.uniforms(words(layout.tiles))];
    const sinks = op.sinks === undefined ? [] : [weights.vectors[op.sinks]];
    const cache = [keys[op.cache], values[op.cache], rows, tables];
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
  },
};
