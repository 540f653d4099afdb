import { buffersOf, type PlanOp } from "../../plan/ops/registry.ts";
import { type BufferId, type Forms, formsOf, type Plan, type TensorId } from "../../plan/plan.ts";
import type {
  GpuBufferShape,
  GpuMatrix,
  GpuVector,
  LoweredOp,
  MatrixId,
  Program,
  RowKind,
  Slice,
  VectorId,
} from "./program.ts";

/** Unit in floats to which rows are padded, so that vector loads never cross rows. */
const ROUND = 64;

/** Builds a program. The ops (`ops/*.ts`) add themselves to it. */
export class ProgramBuilder {
  readonly #matrices: GpuMatrix[] = [];
  readonly #matrixIds = new Map<string, MatrixId>();
  readonly #vectors: GpuVector[] = [];
  readonly #vectorIds = new Map<string, VectorId>();
  readonly #buffers: GpuBufferShape[] = [];
  /** Buffers for reuse, by shape: no later op reads them. */
  readonly #free = new Map<string, number[]>();
  /** Place of each plan buffer on the GPU. The forms of a value share a place. */
  readonly #slices = new Map<BufferId, Slice>();
  /** The last op that uses each plan buffer in any form. */
  readonly #lastUse: number[];
  readonly #ops: LoweredOp[] = [];
  /** Ops that a later op includes, by the plan buffer they write. */
  readonly #deferred = new Map<BufferId, PlanOp>();
  #layer: number | undefined;

  constructor(readonly plan: Plan) {
    this.#lastUse = lastUses(plan);
  }

  get program(): Program {
    return { matrices: this.#matrices, vectors: this.#vectors, buffers: this.#buffers, ops: this.#ops };
  }

  /**
   * Runs `lower` for op `i` of the plan, which belongs to `layer`, then frees the buffers that no later op
   * reads.
   */
  lowered(i: number, layer: number | undefined, lower: () => void): void {
    this.#layer = layer;
    lower();
    this.#release(i);
  }

  push<G extends LoweredOp>(op: G): void {
    this.#ops.push({ ...op, layer: this.#layer });
  }

  /** Defers an op on a buffer to a later op, which gets it from `deferred`. */
  defer(buffer: BufferId, op: PlanOp): void {
    this.#deferred.set(buffer, op);
  }

  deferred<Name extends PlanOp["op"]>(
    buffer: BufferId,
    name: Name,
  ): Extract<PlanOp, { op: Name }> | undefined {
    const op = this.#deferred.get(buffer);
    return op?.op === name ? op as Extract<PlanOp, { op: Name }> : undefined;
  }

  /** Returns the place of a plan buffer. */
  slice(id: BufferId): Slice {
    return this.#slices.get(id)!;
  }

  /** Returns the place of a value in any of its forms. */
  sliceOf(forms: Forms): Slice {
    return this.slice(formsOf(forms).find((id) => this.#slices.has(id))!);
  }

  /** Declares that a plan buffer is another form of an existing one. */
  alias(id: BufferId, of: BufferId): void {
    this.#slices.set(id, this.slice(of));
  }

  /** Returns the row kind of a plan buffer. */
  rowsOf(id: BufferId): RowKind {
    const { rows } = this.plan.buffers[id];
    if (rows === "step" || rows === "logits") return rows;
    throw new TypeError("The GPU backend supports no buffers with one row per expert or per pooled sequence");
  }

  /**
   * Allocates a buffer for several forms of one value or, with `sideBySide`, for several values of one row
   * kind.
   */
  make(ids: readonly BufferId[], sideBySide = false): Slice {
    const rows = this.rowsOf(ids[0]);
    const columns = ids.map((id) => this.plan.buffers[id].columns);
    const width = sideBySide ? columns.reduce((a, b) => a + b, 0) : columns[0];
    const buffer = this.buffer(rows, width);
    let offset = 0;
    for (const [i, id] of ids.entries()) {
      this.#slices.set(id, { buffer, offset });
      if (sideBySide) offset += columns[i];
    }
    return this.slice(ids[0]);
  }

  buffer(rows: RowKind, columns: number): number {
    const stride = Math.ceil(columns / ROUND) * ROUND;
    return this.#free.get(`${rows} ${stride}`)?.pop() ?? this.#buffers.push({ rows, stride }) - 1;
  }

  freeBuffer(buffer: number): void {
    const { rows, stride } = this.#buffers[buffer];
    const key = `${rows} ${stride}`;
    const free = this.#free.get(key) ?? [];
    if (!free.includes(buffer)) free.push(buffer);
    this.#free.set(key, free);
  }

  /** Adds matrices stacked by rows or, with `paired`, a gate and its up matrix. */
  matrix(tensors: readonly TensorId[], paired = false): MatrixId {
    const key = tensors.join();
    const known = this.#matrixIds.get(key);
    if (known !== undefined) return known;
    const shapes = tensors.map((id) => this.plan.tensors[id]);
    const rows = paired ? shapes[0].rows : shapes.reduce((sum, t) => sum + t.rows, 0);
    this.#matrices.push({ tensors, paired, columns: shapes[0].columns, rows });
    this.#matrixIds.set(key, this.#matrices.length - 1);
    return this.#matrices.length - 1;
  }

  vector(parts: GpuVector["parts"]): VectorId {
    const key = parts.map(({ tensor, length }) => `${tensor}:${length}`).join();
    const known = this.#vectorIds.get(key);
    if (known !== undefined) return known;
    this.#vectors.push({ parts });
    this.#vectorIds.set(key, this.#vectors.length - 1);
    return this.#vectors.length - 1;
  }

  /** Frees the buffers that no op after this one reads. Quantized forms share the buffer of the float form. */
  #release(op: number): void {
    const alive = new Set<number>();
    for (const [id, slice] of this.#slices) if (this.#lastUse[id] > op) alive.add(slice.buffer);
    for (const [id, slice] of [...this.#slices]) {
      if (alive.has(slice.buffer)) continue;
      this.#slices.delete(id);
      this.freeBuffer(slice.buffer);
    }
  }
}

/** Returns the index of the last op that uses each plan buffer. */
function lastUses(plan: Plan): number[] {
  const last = plan.buffers.map(() => -1);
  for (const [i, op] of plan.ops.entries()) for (const { buffer } of buffersOf(op)) last[buffer] = i;
  return last;
}
