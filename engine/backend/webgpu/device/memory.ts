import type { DeviceLoss } from "./device_loss.ts";
import { GpuError } from "../errors.ts";

/** The part of a device that allocations use, so that tests can replace it. */
export type BufferMaker = Pick<GPUDevice, "createBuffer" | "pushErrorScope" | "popErrorScope" | "limits">;

const MIB = 2 ** 20;

/**
 * Owns all buffers of a backend. A refused allocation throws an error that names the buffer and its size. `freeAll`
 * frees everything.
 */
export class GpuMemory {
  readonly #buffers = new Set<GPUBuffer>();
  #bytes = 0;

  constructor(private readonly device: BufferMaker, private readonly loss?: Pick<DeviceLoss, "or">) {}

  /** Number of allocated bytes. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Allocates a buffer for kernels, filled with zeros. Throws GpuError if the device lacks memory. */
  async storage(what: string, bytes: number, usage = 0): Promise<GPUBuffer> {
    const all = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_DST | GPUBufferUsage.COPY_SRC;
    const limit = Math.min(this.device.limits.maxBufferSize, this.device.limits.maxStorageBufferBindingSize);
    if (bytes > limit) {
      throw new GpuError([
        `Cannot hold ${what} on the GPU: a buffer must take at most ${mib(limit)} (got ${mib(bytes)}); `,
        "ask for less with ",
        { ctx: undefined },
        " or ",
        { parallel: undefined },
        ", or use ",
        { backend: "cpu" },
      ]);
    }
    return await this.buffer(what, bytes, all | usage);
  }

  async buffer(what: string, bytes: number, usage: number): Promise<GPUBuffer> {
    const size = Math.max(16, Math.ceil(bytes / 16) * 16);
    this.device.pushErrorScope("out-of-memory");
    this.device.pushErrorScope("validation");
    const buffer = this.device.createBuffer({ label: what, size, usage });
    // Pop both scopes at once, so that the scopes of another allocation cannot come between.
    const scopes = Promise.all([this.device.popErrorScope(), this.device.popErrorScope()]);
    const [invalid, full] = await (this.loss?.or(scopes) ?? scopes).catch((error) => {
      buffer.destroy();
      throw error;
    });
    if (invalid || full) {
      buffer.destroy();
      const held = `${mib(this.#bytes)} are held already`;
      throw new GpuError(
        full
          ? [
            `The GPU is out of memory: ${what} takes ${mib(size)}, ${held}. Use a smaller model, lower `,
            { ctx: undefined },
            " or ",
            { parallel: undefined },
            ", or use ",
            { backend: "cpu" },
          ]
          : `The GPU refused ${mib(size)} for ${what}, ${held}: ${invalid!.message}`,
      );
    }
    this.#buffers.add(buffer);
    this.#bytes += size;
    return buffer;
  }

  /** Allocates a uniform buffer with words that never change. */
  constant(what: string, words: Uint32Array<ArrayBuffer>): GPUBuffer {
    const size = words.byteLength;
    const buffer = this.device.createBuffer({
      label: what,
      size,
      usage: GPUBufferUsage.UNIFORM,
      mappedAtCreation: true,
    });
    try {
      new Uint32Array(buffer.getMappedRange()).set(words);
      buffer.unmap();
    } catch (error) {
      buffer.destroy(); // the device was lost
      throw error;
    }
    this.#buffers.add(buffer);
    this.#bytes += size;
    return buffer;
  }

  free(buffer: GPUBuffer): void {
    if (!this.#buffers.delete(buffer)) return;
    this.#bytes -= buffer.size;
    buffer.destroy();
  }

  freeAll(): void {
    for (const buffer of [...this.#buffers]) this.free(buffer);
  }
}

function mib(bytes: number): string {
  return `${(bytes / MIB).toFixed(bytes < 10 * MIB ? 2 : 0)} MiB`;
}
