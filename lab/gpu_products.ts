/** Times the GPU's matrix-vector products alone, over copies of a matrix that exceed every cache. */
import { type Gpu, openGpu } from "../engine/backend/webgpu/device/gpu.ts";
import { DEFAULT_TUNING, matMulKernels } from "../engine/backend/webgpu/kernels/matmul.ts";
import { planeRowBytes } from "../engine/backend/webgpu/kernels/planes.ts";
import { fits, LANES, ROWS } from "../engine/backend/webgpu/tuning/tuning.ts";
import type { Arithmetic } from "../engine/backend/backend.ts";
import type { Kernel, Tuning } from "../engine/backend/webgpu/kernels/types.ts";
import { copyBandwidth } from "../engine/backend/webgpu/device/limits.ts";
import { GpuMemory } from "../engine/backend/webgpu/device/memory.ts";
import type { TensorType } from "../engine/gguf/types.ts";
import { median } from "../bench/samples.ts";

const ROUNDS = 5;
/**
 * Milliseconds of a round: short with the GPU's timestamps, because otherwise this thread notices the end only every 10
 * ms.
 */
const STAMPED_MS = 50;
const WAITED_MS = 200;

export interface MatrixSize {
  readonly rows: number;
  readonly columns: number;
  /** Bytes of all copies of the matrix together. */
  readonly bytes: number;
}

export interface Speed {
  /** 10^9 bytes of the matrix per second in the median round. */
  readonly gbps: number;
  /** Time of the slowest round over that of the fastest. */
  readonly spread: number;
}

/** Copies of a matrix of random codes, and the other bindings of a product. */
export interface Matrices {
  readonly size: MatrixSize;
  /** Bytes of one copy of the matrix. */
  readonly weight: number;
  readonly shared: readonly GPUBuffer[];
  readonly copies: readonly (readonly GPUBuffer[])[];
}

export class GpuProducts {
  readonly #stamps: { querySet: GPUQuerySet; resolved: GPUBuffer } | undefined;

  private constructor(readonly gpu: Gpu) {
    if (!gpu.timestamps) return;
    const { QUERY_RESOLVE, COPY_SRC } = GPUBufferUsage;
    this.#stamps = {
      querySet: gpu.device.createQuerySet({ type: "timestamp", count: 2 }),
      resolved: gpu.device.createBuffer({ size: 16, usage: QUERY_RESOLVE | COPY_SRC }),
    };
  }

  /** Opens the GPU. Throws GpuError if there is no adapter. */
  static async open(): Promise<GpuProducts> {
    return new GpuProducts(await openGpu());
  }

  /** Returns the speed of copies in 10^9 bytes a second, counting both bytes read and bytes written. */
  copy(): Promise<number> {
    return copyBandwidth(this.gpu, new GpuMemory(this.gpu.device));
  }

  /** Returns the tunings that this adapter can run. */
  tunings(): Tuning[] {
    return ROWS.flatMap((rows) => LANES.map((lanes): Tuning => ({ rows, lanes })))
      .filter((tuning) => fits(tuning, this.gpu.workgroupLanes));
  }

  /** Allocates matrices until `destroy`. */
  matrices(type: TensorType, size: MatrixSize): Matrices {
    const { rows, columns, bytes } = size;
    const { device } = this.gpu;
    const planes = planeRowBytes(type, columns).map((n) => n * rows);
    const weight = planes.reduce((a, b) => a + b, 0);
    const buffer = (size: number, usage: number = GPUBufferUsage.STORAGE) =>
      device.createBuffer({ size: Math.ceil(size / 4) * 4, usage: usage | GPUBufferUsage.COPY_DST });
    const codes = crypto.getRandomValues(new Uint8Array(65536));
    const filled = (size: number) => {
      const plane = buffer(size);
      for (let at = 0; at < plane.size; at += codes.length) {
        device.queue.writeBuffer(plane, at, codes, 0, Math.min(codes.length, plane.size - at));
      }
      return plane;
    };
    const copies = Array.from({ length: Math.max(1, Math.ceil(bytes / weight)) }, () => planes.map(filled));
    const words = (values: number[]) => {
      const uniform = buffer(32, GPUBufferUsage.UNIFORM);
      device.queue.writeBuffer(uniform, 0, new Uint32Array(values));
      return uniform;
    };
    const stride = 64 * Math.ceil(rows / 64);
    const shared = [
      words([columns, rows, columns, stride, 0, 0, 0, 0]),
      words([1, 0, 0, 0]),
      buffer(4 * columns),
      buffer(4 * stride),
    ];
    return { size, weight, shared, copies };
  }

  destroy({ shared, copies }: Matrices): void {
    for (const buffer of [...shared, ...copies.flat()]) buffer.destroy();
  }

  /** Multiplies one row of activations with the matrices in turn. */
  async measure(
    type: TensorType,
    arithmetic: Arithmetic,
    matrices: Matrices,
    tuning: Tuning = DEFAULT_TUNING,
  ): Promise<Speed> {
    const { columns } = matrices.size;
    const spec = { type, arithmetic, columns, epilogue: "store", bias: false } as const;
    const [kernel] = matMulKernels(spec, this.gpu.kernels, tuning);
    const run = await this.#runner(kernel, matrices);
    await run(1);
    const once = await run(1);
    const goal = this.#stamps ? STAMPED_MS : WAITED_MS;
    const count = Math.max(1, Math.min(2000, Math.round(goal / once)));
    const times: number[] = [];
    for (let i = 0; i < ROUNDS; i++) times.push(await run(count) / count);
    return {
      gbps: matrices.weight / median(times) / 1e6,
      spread: Math.max(...times) / Math.min(...times),
    };
  }

  /** Returns a function that runs a number of products and returns their milliseconds. */
  async #runner(
    kernel: Kernel,
    { size, shared, copies }: Matrices,
  ): Promise<(count: number) => Promise<number>> {
    const { device } = this.gpu;
    const { entryPoint, constants } = kernel;
    const module = device.createShaderModule({ code: kernel.code });
    const compute = { module, entryPoint, constants: { ...constants } };
    const pipeline = await device.createComputePipelineAsync({ layout: "auto", compute });
    const groups = copies.map((planes) =>
      device.createBindGroup({
        layout: pipeline.getBindGroupLayout(0),
        entries: [...shared, ...planes].map((buffer, binding) => ({ binding, resource: { buffer } })),
      })
    );
    return async (count) => {
      const encoder = device.createCommandEncoder();
      const pass = encoder.beginComputePass(this.#stamps && { timestampWrites: stampsOf(this.#stamps) });
      pass.setPipeline(pipeline);
      for (let turn = 0; turn < count; turn++) {
        pass.setBindGroup(0, groups[turn % groups.length]);
        pass.dispatchWorkgroups(...kernel.workgroups(size.rows, 1));
      }
      pass.end();
      return await this.#time(encoder);
    };
  }

  /**
   * Returns the milliseconds of the recorded work: between the timestamps, or until this thread learns of the
   * end.
   */
  async #time(encoder: GPUCommandEncoder): Promise<number> {
    const { device } = this.gpu;
    const start = performance.now();
    if (!this.#stamps) {
      device.queue.submit([encoder.finish()]);
      await device.queue.onSubmittedWorkDone();
      return performance.now() - start;
    }
    const { querySet, resolved } = this.#stamps;
    const back = device.createBuffer({ size: 16, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
    encoder.resolveQuerySet(querySet, 0, 2, resolved, 0);
    encoder.copyBufferToBuffer(resolved, 0, back, 0, 16);
    device.queue.submit([encoder.finish()]);
    await back.mapAsync(GPUMapMode.READ);
    const [from, to] = new BigUint64Array(back.getMappedRange().slice(0));
    back.destroy();
    return Number(to - from) / 1e6;
  }
}

function stampsOf({ querySet }: { querySet: GPUQuerySet }): GPUComputePassTimestampWrites {
  return { querySet, beginningOfPassWriteIndex: 0, endOfPassWriteIndex: 1 };
}
