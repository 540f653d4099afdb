import type { ByteSource } from "../../../gguf/byte_source.ts";
import type { GgufFile, TensorInfo } from "../../../gguf/types.ts";
import type { Plan } from "../../../plan/plan.ts";
import type { Gpu } from "../device/gpu.ts";
import { GpuError, unsupportedOnGpu } from "../errors.ts";
import { planeRowBytes } from "../kernels/planes.ts";
import type { GpuMemory } from "../device/memory.ts";
import { Packer } from "./packer.ts";
import type { GpuMatrix, GpuVector, Program } from "../program.ts";

/** A shard: rows of a matrix that fit into one binding. */
export interface Shard {
  /** First row and number of rows of the shard; rows of the gate for a gate and up pair. */
  readonly first: number;
  readonly rows: number;
  readonly planes: readonly GPUBuffer[];
}

export interface Weights {
  readonly matrices: readonly (readonly Shard[])[]; // [program.matrices]
  readonly vectors: readonly GPUBuffer[]; // [program.vectors]
}

/** Bytes of the model file that are repacked at once. */
const PIECE = 4 * 2 ** 20;
/** Bytes to write to the GPU queue before awaiting it: until then they are in memory twice. */
const IN_FLIGHT = 64 * 2 ** 20;
/** Rows per shard are a multiple of this, so that no workgroup's rows are in two shards. */
const SHARD_ROWS = 64;

/**
 * Returns the number of rows of a shard, such that no plane exceeds `bindingBytes`. With `paired`, gate and up count
 * together.
 */
function shardRows(rowBytes: readonly number[], paired: boolean, bindingBytes: number): number {
  const widest = Math.max(...rowBytes) * (paired ? 2 : 1);
  const rows = Math.floor(bindingBytes / widest);
  return rows > SHARD_ROWS ? rows - rows % SHARD_ROWS : rows;
}

/** Reads, repacks and uploads a model's weights once. */
export class WeightLoader {
  readonly #packer = new Packer();
  #inFlight = 0;
  #done = 0;
  /** Model files that are open while weights are read. */
  readonly #files = new Map<string, ByteSource>();
  readonly #total: number;

  constructor(
    private readonly gpu: Gpu,
    private readonly memory: GpuMemory,
    private readonly file: GgufFile,
    private readonly plan: Plan,
    private readonly progress?: (done: number, total: number) => void,
  ) {
    this.#total = plan.tensors.reduce((sum, t) => sum + t.info.byteLength, 0);
  }

  async load(program: Program): Promise<Weights> {
    await using opened = new AsyncDisposableStack();
    opened.use(this.#packer);
    for (const path of this.file.paths) this.#files.set(path, opened.use(await this.file.open(path)));
    const matrices: Shard[][] = [];
    for (const matrix of program.matrices) matrices.push(await this.#matrix(matrix));
    const vectors: GPUBuffer[] = [];
    for (const vector of program.vectors) vectors.push(await this.#vector(vector));
    await this.gpu.loss.or(this.gpu.device.queue.onSubmittedWorkDone());
    return { matrices, vectors };
  }

  async #matrix(matrix: GpuMatrix): Promise<Shard[]> {
    const { info } = this.plan.tensors[matrix.tensors[0]];
    const rowBytes = planeRowBytes(info.type, matrix.columns);
    const most = shardRows(rowBytes, matrix.paired, this.gpu.bindingBytes);
    if (most < 1) {
      throw unsupportedOnGpu(
        `Cannot hold ${info.name} on the GPU: one row exceeds a binding's ${this.gpu.bindingBytes} bytes`,
      );
    }
    const shards: Shard[] = [];
    for (let first = 0; first < matrix.rows; first += most) {
      const rows = Math.min(most, matrix.rows - first);
      const planes: GPUBuffer[] = [];
      for (const bytes of rowBytes) {
        planes.push(await this.memory.storage(info.name, bytes * rows * (matrix.paired ? 2 : 1)));
      }
      const shard = { first, rows, planes };
      await this.#fill(matrix, shard, rowBytes);
      shards.push(shard);
    }
    return shards;
  }

  /** Uploads the rows of each tensor that fall into the shard. */
  async #fill(matrix: GpuMatrix, shard: Shard, rowBytes: readonly number[]) {
    let before = 0; // rows of the tensors before this one
    for (const [half, id] of matrix.tensors.entries()) {
      const { info, rows } = this.plan.tensors[id];
      const start = matrix.paired ? 0 : before;
      const from = Math.max(shard.first, start);
      const to = Math.min(shard.first + shard.rows, start + rows);
      const at = from - shard.first + (matrix.paired ? half * shard.rows : 0);
      if (from < to) await this.#rows(info, [from - start, to - start], { ...shard, at, rowBytes });
      before += rows;
    }
  }

  async #rows(
    info: TensorInfo,
    [from, to]: readonly [number, number],
    target: {
      readonly planes: readonly GPUBuffer[];
      readonly at: number;
      readonly rowBytes: readonly number[];
    },
  ): Promise<void> {
    const [columns, rows = 1] = info.shape;
    const bytesOfRow = info.byteLength / rows;
    const pieceRows = Math.max(1, Math.floor(PIECE / bytesOfRow));
    for (let row = from; row < to; row += pieceRows) {
      const count = Math.min(pieceRows, to - row);
      const bytes = await this.#read(info, row * bytesOfRow, count * bytesOfRow);
      const { planes, nan } = await this.#packer.pack({ type: info.type, bytes, rows: count, columns });
      const { device, loss } = this.gpu;
      if (loss.error) throw loss.error;
      if (nan) {
        const place = `${info.type}'s scale of row ${row + nan[0]}, column ${nan[1]}`;
        throw new GpuError(
          `Cannot load tensor "${info.name}" of ${info.path}: ${place} is NaN: the file is damaged or badly converted`,
        );
      }
      for (const [p, plane] of planes.entries()) {
        device.queue.writeBuffer(
          target.planes[p],
          (target.at + row - from) * target.rowBytes[p],
          plane,
        );
        this.#inFlight += plane.length;
      }
      this.#done += bytes.length;
      this.progress?.(Math.min(this.#done, this.#total), this.#total);
      if (this.#inFlight > IN_FLIGHT) {
        await loss.or(device.queue.onSubmittedWorkDone());
        this.#inFlight = 0;
      }
    }
  }

  async #vector(vector: GpuVector): Promise<GPUBuffer> {
    const values = new Float32Array(vector.parts.reduce((sum, part) => sum + part.length, 0));
    let at = 0;
    for (const { tensor, length } of vector.parts) {
      if (tensor !== undefined) {
        const { info } = this.plan.tensors[tensor];
        values.set(floats(info, await this.#read(info, 0, info.byteLength)), at);
      }
      at += length;
    }
    const buffer = await this.memory.storage("a vector", values.byteLength);
    this.gpu.device.queue.writeBuffer(buffer, 0, values);
    return buffer;
  }

  async #read(info: TensorInfo, offset: number, length: number) {
    const source = this.#files.get(info.path)!;
    const bytes = new Uint8Array(length);
    if (await source.read(info.offset + offset, bytes) < length) {
      throw new Error(`Cannot load tensor "${info.name}" of ${info.path}: the file has become shorter`);
    }
    return bytes;
  }
}

function floats(info: TensorInfo, bytes: Uint8Array<ArrayBuffer>): Float32Array {
  if (info.type === "F32") return new Float32Array(bytes.buffer);
  if (info.type === "F16") return Float32Array.from(new Float16Array(bytes.buffer));
  if (info.type === "BF16") {
    const words = Uint32Array.from(new Uint16Array(bytes.buffer), (half) => half << 16);
    return new Float32Array(words.buffer);
  }
  throw unsupportedOnGpu(
    `Cannot load tensor "${info.name}": vectors must be F32, F16 or BF16 (got ${info.type})`,
  );
}
