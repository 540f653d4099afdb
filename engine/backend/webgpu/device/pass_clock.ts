import type { DeviceLoss } from "./device_loss.ts";
import type { GpuMemory } from "./memory.ts";

/** Maximum passes in one query set, which holds at most 4,096 timestamps. */
const MOST_TIMED = 2048;

/** Start and end of a pass by the device's clock, in milliseconds from an arbitrary origin. */
export interface PassTime {
  readonly begin: number;
  readonly end: number;
}

/** Measures passes by the device's own clock, with a timestamp at the beginning and the end of each. */
export class PassClock {
  #passes = 0;

  private constructor(
    private readonly device: GPUDevice,
    private readonly loss: DeviceLoss,
    private readonly memory: GpuMemory,
    private readonly querySets: readonly GPUQuerySet[],
    /** Buffer that receives the resolved timestamps. */
    readonly resolved: GPUBuffer,
    private readonly back: GPUBuffer,
    /** Maximum number of passes. */
    readonly most: number,
  ) {}

  /** Creates a clock for at most `passes` passes. Throws GpuError if memory is short. */
  static async make(
    device: GPUDevice,
    loss: DeviceLoss,
    memory: GpuMemory,
    passes: number,
  ): Promise<PassClock> {
    const count = 2 * passes;
    const { QUERY_RESOLVE, COPY_SRC, MAP_READ, COPY_DST } = GPUBufferUsage;
    const resolved = await memory.buffer("timestamps", 8 * count, QUERY_RESOLVE | COPY_SRC);
    const back = await memory.buffer(
      "the buffer for reading timestamps back",
      8 * count,
      MAP_READ | COPY_DST,
    );
    const querySets = Array.from({ length: Math.ceil(passes / MOST_TIMED) }, (_, i) => {
      const left = passes - i * MOST_TIMED;
      return device.createQuerySet({ type: "timestamp", count: 2 * Math.min(left, MOST_TIMED) });
    });
    return new PassClock(device, loss, memory, querySets, resolved, back, passes);
  }

  /** Number of bytes of the timestamps recorded so far. */
  get bytes(): number {
    return 16 * this.#passes;
  }

  get mostBytes(): number {
    return 16 * this.most;
  }

  /** Forgets the times of all passes. */
  restart(): void {
    this.#passes = 0;
  }

  /** Returns the timestamps to write in the next pass. */
  next(): GPUComputePassTimestampWrites {
    const pass = this.#passes++;
    const querySet = this.querySets[Math.floor(pass / MOST_TIMED)];
    const at = 2 * (pass % MOST_TIMED);
    return { querySet, beginningOfPassWriteIndex: at, endOfPassWriteIndex: at + 1 };
  }

  /** Records a copy of all timestamps so far into `resolved`. */
  resolve(encoder: GPUCommandEncoder): void {
    for (const [i, querySet] of this.querySets.entries()) {
      const first = 2 * i * MOST_TIMED;
      const stamps = Math.min(querySet.count, 2 * this.#passes - first);
      if (stamps > 0) encoder.resolveQuerySet(querySet, 0, stamps, this.resolved, 8 * first);
    }
  }

  /** Returns the times of the passes so far, after the submitted work is done. */
  async read(): Promise<PassTime[]> {
    const { device, resolved, back, bytes } = this;
    const encoder = device.createCommandEncoder();
    this.resolve(encoder);
    encoder.copyBufferToBuffer(resolved, 0, back, 0, bytes);
    device.queue.submit([encoder.finish()]);
    await this.loss.or(back.mapAsync(GPUMapMode.READ));
    return passTimes(new Uint32Array(back.getMappedRange(0, bytes).slice(0)));
  }

  free(): void {
    for (const querySet of this.querySets) querySet.destroy();
    this.memory.free(this.resolved);
    this.memory.free(this.back);
  }
}

/** Converts timestamps (nanoseconds, two words each) into pass times. */
export function passTimes(words: Uint32Array): PassTime[] {
  const at = (i: number) => (words[i + 1] * 2 ** 32 + words[i]) / 1e6;
  return Array.from({ length: words.length / 4 }, (_, i) => ({ begin: at(4 * i), end: at(4 * i + 2) }));
}
