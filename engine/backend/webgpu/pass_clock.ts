import type { DeviceLoss } from "./device_loss.ts";
import type { GpuMemory } from "./memory.ts";

/** Passes of one query set, which holds at most 4,096 stamps. */
const MOST_TIMED = 2048;

/** What passes take by the device's own clock: stamps where each begins and ends. */
export class PassClock {
  #passes = 0;

  private constructor(
    private readonly device: GPUDevice,
    private readonly loss: DeviceLoss,
    private readonly memory: GpuMemory,
    private readonly querySets: readonly GPUQuerySet[],
    private readonly resolved: GPUBuffer,
    private readonly back: GPUBuffer,
  ) {}

  /** For at most so many passes. Throws GpuError where there is no room. */
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
    const querySets = Array.from({ length: Math.ceil(passes / MOST_TIMED) }, (_, i) => {
      const left = passes - i * MOST_TIMED;
      return device.createQuerySet({ type: "timestamp", count: 2 * Math.min(left, MOST_TIMED) });
    });
    return new PassClock(device, loss, memory, querySets, resolved, back);
  }

  /** The stamps of the next pass. */
  next(): GPUComputePassTimestampWrites {
    const pass = this.#passes++;
    const querySet = this.querySets[Math.floor(pass / MOST_TIMED)];
    const at = 2 * (pass % MOST_TIMED);
    return { querySet, beginningOfPassWriteIndex: at, endOfPassWriteIndex: at + 1 };
  }

  /** Milliseconds of each pass so far, once what was submitted is done. */
  async read(): Promise<number[]> {
    const { device, resolved, back } = this;
    const count = 2 * this.#passes;
    const encoder = device.createCommandEncoder();
    for (const [i, querySet] of this.querySets.entries()) {
      const first = 2 * i * MOST_TIMED;
      const stamps = Math.min(querySet.count, count - first);
      if (stamps > 0) encoder.resolveQuerySet(querySet, 0, stamps, resolved, 8 * first);
    }
    encoder.copyBufferToBuffer(resolved, 0, back, 0, 8 * count);
    device.queue.submit([encoder.finish()]);
    await this.loss.or(back.mapAsync(GPUMapMode.READ));
    const stamps = new BigUint64Array(back.getMappedRange(0, 8 * count).slice(0));
    return Array.from({ length: this.#passes }, (_, i) => Number(stamps[2 * i + 1] - stamps[2 * i]) / 1e6);
  }

  free(): void {
    for (const querySet of this.querySets) querySet.destroy();
    this.memory.free(this.resolved);
    this.memory.free(this.back);
  }
}
