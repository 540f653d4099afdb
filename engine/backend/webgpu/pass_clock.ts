import type { DeviceLoss } from "./device_loss.ts";
import type { GpuMemory } from "./memory.ts";

/** Passes that one clock times: a query set holds at most 4,096 stamps. */
export const MOST_TIMED = 2048;

/** What passes take by the device's own clock: stamps where each begins and ends. */
export class PassClock {
  #passes = 0;

  private constructor(
    private readonly device: GPUDevice,
    private readonly loss: DeviceLoss,
    private readonly memory: GpuMemory,
    private readonly querySet: GPUQuerySet,
    private readonly resolved: GPUBuffer,
    private readonly back: GPUBuffer,
  ) {}

  /** For at most so many passes, up to MOST_TIMED. Throws GpuError where there is no room. */
  static async make(
    device: GPUDevice,
    loss: DeviceLoss,
    memory: GpuMemory,
    passes: number,
  ): Promise<PassClock> {
    const count = 2 * passes;
    const { QUERY_RESOLVE, COPY_SRC, MAP_READ, COPY_DST } = GPUBufferUsage;
    const resolved = await memory.buffer("timestamps", 8 * count, QUERY_RESOLVE | COPY_SRC);
    const back = await memory.buffer("timestamps on their way", 8 * count, MAP_READ | COPY_DST);
    const querySet = device.createQuerySet({ type: "timestamp", count });
    return new PassClock(device, loss, memory, querySet, resolved, back);
  }

  /** The stamps of the next pass. */
  next(): GPUComputePassTimestampWrites {
    const at = 2 * this.#passes++;
    return { querySet: this.querySet, beginningOfPassWriteIndex: at, endOfPassWriteIndex: at + 1 };
  }

  /** Milliseconds of each pass so far, once what was submitted is done. */
  async read(): Promise<number[]> {
    const { device, resolved, back } = this;
    const count = 2 * this.#passes;
    const encoder = device.createCommandEncoder();
    encoder.resolveQuerySet(this.querySet, 0, count, resolved, 0);
    encoder.copyBufferToBuffer(resolved, 0, back, 0, 8 * count);
    device.queue.submit([encoder.finish()]);
    await this.loss.or(back.mapAsync(GPUMapMode.READ));
    const stamps = new BigUint64Array(back.getMappedRange(0, 8 * count).slice(0));
    return Array.from({ length: this.#passes }, (_, i) => Number(stamps[2 * i + 1] - stamps[2 * i]) / 1e6);
  }

  free(): void {
    this.querySet.destroy();
    this.memory.free(this.resolved);
    this.memory.free(this.back);
  }
}
