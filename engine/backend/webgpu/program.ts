import { layersOf } from "../../plan/layers.ts";
import {
  CONV_TAPS,
  type DeltaShape,
  type Forms,
  formsOf,
  type Plan,
  type PlanOp,
  type TensorId,
} from "../../plan/plan.ts";
import { buffersOf } from "../../plan/ops/registry.ts";
import type { Epilogue } from "./kernels/types.ts";

/**
 * A plan as the GPU runs it: a list of dispatches. Pure data, made without a device, so that it can be counted and
 * printed anywhere. Matrices of one type that read one x are stacked into one, gate and up too; the forms of a value
 * (f32, 8-bit) are one; the table of angles is made once, for all positions. No op is recorded that moves nothing.
 */
export interface Program {
  readonly matrices: readonly GpuMatrix[];
  readonly vectors: readonly GpuVector[];
  readonly buffers: readonly GpuBufferShape[];
  readonly ops: readonly GpuOp[];
}

export type MatrixId = number;
export type VectorId = number;

/** Matrices of one type stacked by rows; or gate and up, which stay side by side in every shard. */
export interface GpuMatrix {
  readonly tensors: readonly TensorId[];
  readonly paired: boolean;
  readonly columns: number;
  /** Rows of y: of a pair, those of the gate. */
  readonly rows: number;
}

/** Vectors of f32, end to end; `undefined` stands for zeros. */
export interface GpuVector {
  readonly parts: readonly { readonly tensor?: TensorId; readonly length: number }[];
}

export type RowKind = "step" | "logits";
/** What a dispatch is over: rows, or the sequences that they belong to. */
export type DispatchKind = RowKind | "sequences";

/** f32 rows; `stride` floats from one to the next. */
export interface GpuBufferShape {
  readonly rows: RowKind;
  readonly stride: number;
}

/** Columns of a buffer. */
export interface Slice {
  readonly buffer: number;
  readonly offset: number;
}

export type GpuOp = { readonly layer?: number } & (RowOp | DeltaRuleOp);

type RowOp =
  & { readonly rows: RowKind }
  & (
    | { readonly op: "embed"; readonly matrix: MatrixId; readonly y: Slice }
    | {
      readonly op: "rms_norm";
      readonly x: Slice;
      readonly y: Slice;
      readonly weight: VectorId;
      readonly columns: number;
      readonly eps: number;
      /** Reads only the rows that want logits. */
      readonly gather: boolean;
    }
    | {
      readonly op: "matmul";
      readonly matrix: MatrixId;
      readonly x: Slice;
      readonly y: Slice;
      readonly epilogue: Epilogue;
      readonly bias?: VectorId;
    }
    | {
      readonly op: "rope_append";
      /** The one buffer of queries, keys and values, and where each begins in its rows. */
      readonly buffer: number;
      readonly at: { readonly q: number; readonly k: number; readonly v: number };
      /** Of q's heads, then of k's. */
      readonly norms?: VectorId;
      /** Among the layers that have a KV cache. */
      readonly cache: number;
      readonly heads: HeadCounts;
      readonly rotated: number;
      readonly interleaved: boolean;
      readonly eps: number;
    }
    | {
      readonly op: "attention";
      readonly q: Slice;
      readonly y: Slice;
      readonly cache: number;
      readonly heads: HeadCounts;
      readonly scale: number;
    }
    | { readonly op: "silu_multiply"; readonly x: Slice; readonly y: Slice; readonly columns: number }
    | { readonly op: "candidates"; readonly x: Slice }
  );

/** A layer's short convolution, gates, delta rule and gated norm. */
export interface DeltaRuleOp {
  readonly op: "delta_rule";
  readonly rows: "sequences";
  /** The one buffer of its inputs, and where each begins in its rows. */
  readonly buffer: number;
  readonly at: { readonly qkv: number; readonly gate: number; readonly alpha: number; readonly beta: number };
  readonly y: Slice;
  /** The convolution's taps, decay, bias, norm. */
  readonly weights: VectorId;
  /** `heads.layer` is among the layers that have a recurrent state. */
  readonly heads: DeltaShape;
  readonly lengthEps: number;
  readonly eps: number;
}

export interface HeadCounts {
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  /** In the queries' rows each head is followed by a gate as wide. */
  readonly gated: boolean;
}

/** Floats that rows are rounded up to: a kernel's vector loads never straddle rows. */
const ROUND = 64;

/** Lowers a plan. Throws for one that the GPU has no kernels for. */
export function lower(plan: Plan): Program {
  if (plan.kv.type !== "f16") {
    throw new Error(
      `Cannot keep the KV cache in ${plan.kv.type} on the GPU, allowed is f16; use it on the CPU`,
    );
  }
  return new Lowering(plan).run();
}

class Lowering {
  readonly #matrices: GpuMatrix[] = [];
  readonly #matrixIds = new Map<string, MatrixId>();
  readonly #vectors: GpuVector[] = [];
  readonly #vectorIds = new Map<string, VectorId>();
  readonly #buffers: GpuBufferShape[] = [];
  /** Buffers that no later op reads, by shape. */
  readonly #free = new Map<string, number[]>();
  /** Where the plan's buffers are; forms of one value are the same. */
  readonly #slices = new Map<number, Slice>();
  /** The last op that touches each of the plan's buffers, by any form. */
  readonly #lastUse: number[];
  readonly #ops: GpuOp[] = [];
  /** Convolutions that the delta rule behind them takes along, by the plan's buffer. */
  readonly #convolutions = new Map<number, Extract<PlanOp, { op: "short_conv" }>>();
  #layer: number | undefined;

  constructor(private readonly plan: Plan) {
    this.#lastUse = lastUses(plan);
  }

  run(): Program {
    const layers = layersOf(this.plan);
    for (const [i, op] of this.plan.ops.entries()) {
      this.#layer = layers[i];
      this.#lower(op);
      this.#release(i);
    }
    return { matrices: this.#matrices, vectors: this.#vectors, buffers: this.#buffers, ops: this.#ops };
  }

  #lower(op: PlanOp): void {
    switch (op.op) {
      case "embed":
        this.#push("step", {
          op: "embed",
          matrix: this.#matrix([op.weight], false),
          y: this.#make([op.out]),
        });
        return;
      case "rope_table":
        return; // made for all positions at compile
      case "quantize":
        this.#slices.set(op.out, this.#slices.get(op.x)!); // another form of the same value
        return;
      case "rms_norm":
        return this.#rmsNorm(op);
      case "matmul":
        return this.#matmul(op);
      case "swiglu":
        return this.#swiglu(op);
      case "rope_append":
        return this.#ropeAppend(op);
      case "attention": {
        const q = this.#slices.get(op.q)!;
        const { heads, scale } = op;
        const y = this.#make([op.out]);
        this.#push("step", { op: "attention", q, y, cache: heads.layer, heads, scale });
        return;
      }
      case "short_conv":
        this.#convolutions.set(op.x, op);
        return;
      case "delta_rule":
        return this.#deltaRule(op);
      case "candidates":
        this.#push("logits", { op: "candidates", x: this.#slices.get(op.logits)! });
        return;
    }
  }

  #rmsNorm(op: Extract<PlanOp, { op: "rms_norm" }>): void {
    const x = this.#slices.get(op.x)!;
    const y = this.#make(formsOf(op.out));
    const { rows, columns } = this.plan.buffers[formsOf(op.out)[0]];
    const gather = rows === "logits" && this.plan.buffers[op.x].rows === "step";
    const weight = this.#vector([{ tensor: op.weight, length: columns }]);
    this.#push(rows, { op: "rms_norm", x, y, weight, columns, eps: op.eps, gather });
  }

  /** New outputs lie side by side in one buffer; neighbours of one type are one matrix. */
  #matmul(op: Extract<PlanOp, { op: "matmul" }>): void {
    const x = this.#slice(op.x);
    const made = op.parts.filter((part) => !part.add);
    if (made.length > 0) this.#make(made.map((part) => part.out), true);
    for (let first = 0; first < op.parts.length;) {
      const { add, weight, out } = op.parts[first];
      const { type } = this.plan.tensors[weight].info;
      let end = first + 1;
      while (
        !add && end < op.parts.length && !op.parts[end].add &&
        this.plan.tensors[op.parts[end].weight].info.type === type
      ) end++;
      const parts = op.parts.slice(first, end);
      const biased = parts.some((part) => part.bias !== undefined);
      const bias = biased
        ? this.#vector(parts.map((p) => ({ tensor: p.bias, length: this.plan.tensors[p.weight].rows })))
        : undefined;
      this.#push(this.plan.buffers[out].rows, {
        op: "matmul",
        matrix: this.#matrix(parts.map((part) => part.weight), false),
        x,
        y: this.#slices.get(out)!,
        epilogue: add ? "add" : "store",
        bias,
      });
      first = end;
    }
  }

  /** One op where gate and up are of one type; otherwise three. */
  #swiglu(op: Extract<PlanOp, { op: "swiglu" }>): void {
    const x = this.#slice(op.x);
    const [gate, up] = [op.gate, op.up].map((id) => this.plan.tensors[id]);
    if (gate.info.type === up.info.type) {
      const matrix = this.#matrix([op.gate, op.up], true);
      this.#push("step", { op: "matmul", matrix, x, y: this.#make(formsOf(op.out)), epilogue: "swiglu" });
      return;
    }
    const both = this.#buffer("step", gate.rows + up.rows);
    for (const [offset, weight] of [[0, op.gate], [gate.rows, op.up]]) {
      const matrix = this.#matrix([weight], false);
      this.#push("step", { op: "matmul", matrix, x, y: { buffer: both, offset }, epilogue: "store" });
    }
    const y = this.#make(formsOf(op.out));
    this.#push("step", { op: "silu_multiply", x: { buffer: both, offset: 0 }, y, columns: gate.rows });
    this.#freeBuffer(both);
  }

  #ropeAppend(op: Extract<PlanOp, { op: "rope_append" }>): void {
    const [q, k, v] = [op.q, op.k, op.v].map((id) => this.#slices.get(id)!);
    if (q.buffer !== k.buffer || q.buffer !== v.buffer) {
      throw new Error("Cannot run this plan on the GPU: q, k and v come from different ops");
    }
    const length = op.heads.headDim;
    const norms = op.qNorm === undefined || op.kNorm === undefined
      ? undefined
      : this.#vector([{ tensor: op.qNorm, length }, { tensor: op.kNorm, length }]);
    this.#push("step", {
      op: "rope_append",
      buffer: q.buffer,
      at: { q: q.offset, k: k.offset, v: v.offset },
      norms,
      cache: op.heads.layer,
      heads: op.heads,
      rotated: op.rotated,
      interleaved: op.interleaved,
      eps: op.eps,
    });
  }

  #deltaRule(op: Extract<PlanOp, { op: "delta_rule" }>): void {
    const conv = this.#convolutions.get(op.qkv);
    const [qkv, gate, alpha, beta] = [op.qkv, op.gate, op.alpha, op.beta].map((id) => this.#slices.get(id)!);
    if (!conv || [gate, alpha, beta].some(({ buffer }) => buffer !== qkv.buffer)) {
      throw new Error("Cannot run this plan on the GPU: the delta rule's inputs come from different ops");
    }
    const { columns } = this.plan.buffers[op.qkv];
    const { valueHeads, headDim } = op.heads;
    this.#ops.push({
      op: "delta_rule",
      layer: this.#layer,
      rows: "sequences",
      buffer: qkv.buffer,
      at: { qkv: qkv.offset, gate: gate.offset, alpha: alpha.offset, beta: beta.offset },
      y: this.#make(formsOf(op.out)),
      weights: this.#vector([
        { tensor: conv.weight, length: CONV_TAPS * columns },
        { tensor: op.decay, length: valueHeads },
        { tensor: op.bias, length: valueHeads },
        { tensor: op.norm, length: headDim },
      ]),
      heads: op.heads,
      lengthEps: conv.eps,
      eps: op.eps,
    });
  }

  #push(rows: RowKind, op: DistributiveOmit<RowOp, "rows">): void {
    this.#ops.push({ layer: this.#layer, rows, ...op });
  }

  #slice(forms: Forms): Slice {
    return this.#slices.get(formsOf(forms).find((id) => this.#slices.has(id))!)!;
  }

  /** A buffer for values of one kind of rows: forms of one value, or (side by side) several values. */
  #make(ids: readonly number[], sideBySide = false): Slice {
    const { rows } = this.plan.buffers[ids[0]];
    const columns = ids.map((id) => this.plan.buffers[id].columns);
    const width = sideBySide ? columns.reduce((a, b) => a + b, 0) : columns[0];
    const buffer = this.#buffer(rows, width);
    let offset = 0;
    for (const [i, id] of ids.entries()) {
      this.#slices.set(id, { buffer, offset });
      if (sideBySide) offset += columns[i];
    }
    return this.#slices.get(ids[0])!;
  }

  /** Gives back the buffers whose last reader is this op. Quantised forms are the float form's buffer. */
  #release(op: number): void {
    const alive = new Set<number>();
    for (const [id, slice] of this.#slices) if (this.#lastUse[id] > op) alive.add(slice.buffer);
    for (const [id, slice] of [...this.#slices]) {
      if (alive.has(slice.buffer)) continue;
      this.#slices.delete(id);
      this.#freeBuffer(slice.buffer);
    }
  }

  #buffer(rows: RowKind, columns: number): number {
    const stride = Math.ceil(columns / ROUND) * ROUND;
    return this.#free.get(`${rows} ${stride}`)?.pop() ?? this.#buffers.push({ rows, stride }) - 1;
  }

  #freeBuffer(buffer: number): void {
    const { rows, stride } = this.#buffers[buffer];
    const key = `${rows} ${stride}`;
    const free = this.#free.get(key) ?? [];
    if (!free.includes(buffer)) free.push(buffer);
    this.#free.set(key, free);
  }

  #matrix(tensors: readonly TensorId[], paired: boolean): MatrixId {
    const key = tensors.join();
    const known = this.#matrixIds.get(key);
    if (known !== undefined) return known;
    const shapes = tensors.map((id) => this.plan.tensors[id]);
    const rows = paired ? shapes[0].rows : shapes.reduce((sum, t) => sum + t.rows, 0);
    this.#matrices.push({ tensors, paired, columns: shapes[0].columns, rows });
    this.#matrixIds.set(key, this.#matrices.length - 1);
    return this.#matrices.length - 1;
  }

  #vector(parts: GpuVector["parts"]): VectorId {
    const key = parts.map(({ tensor, length }) => `${tensor}:${length}`).join();
    const known = this.#vectorIds.get(key);
    if (known !== undefined) return known;
    this.#vectors.push({ parts });
    this.#vectorIds.set(key, this.#vectors.length - 1);
    return this.#vectors.length - 1;
  }
}

/** Index of the last op that touches each of the plan's buffers. */
function lastUses(plan: Plan): number[] {
  const last = plan.buffers.map(() => -1);
  for (const [i, op] of plan.ops.entries()) for (const { buffer } of buffersOf(op)) last[buffer] = i;
  return last;
}

type DistributiveOmit<T, K extends PropertyKey> = T extends unknown ? Omit<T, K> : never;
