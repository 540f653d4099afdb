import type { DeviceLoss } from "./device_loss.ts";
import type { GpuMemory } from "./memory.ts";

/** Milliseconds of GPU work above which waiting for an event is cheap: the runtime polls events every 10 ms or so. */
const LONG_MS = 50;
/** Milliseconds for which consecutive GPU reads may block this thread without a pause. */
const BLOCKED_MS = 10;
/** Share of the expected GPU time for which this thread does other work. Timers fire some milliseconds late. */
const PAUSE = 0.75;
const TIMER_MS = 2;

/** Copies answers from the GPU to the host. */
export class ReadBack {
  #buffer: GPUBuffer | undefined;
  /** Whether the read-back buffer has been mapped with `await` before. */
  #waited = false;
  #pausedAt = 0;

  constructor(
    private readonly memory: GpuMemory,
    private readonly synchronous: boolean,
    private readonly loss: DeviceLoss,
  ) {}

  /** Grows the read-back buffer to hold answers of `bytes` bytes. */
  async reserve(bytes: number): Promise<void> {
    if (this.#buffer && this.#buffer.size >= bytes) return;
    if (this.#buffer) this.memory.free(this.#buffer);
    const usage = GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST;
    // Deno 2.9 aborts the process if the first mapping of a buffer is not awaited.
    this.#waited = false;
    this.#buffer = await this.memory.buffer("the buffer for reading answers back", bytes, usage);
  }

  /** Records a copy of the first `bytes` of a buffer to offset `at`. */
  copy(encoder: GPUCommandEncoder, source: GPUBuffer, bytes: number, at = 0): void {
    encoder.copyBufferToBuffer(source, 0, this.#buffer!, at, bytes);
  }

  /**
   * Returns the copied words after the submitted work is done, which is expected to take `expectedMs`. A short wait
   * blocks this thread, because the event would come late. In a long wait only the end blocks, so that other work can
   * run first.
   */
  async read(bytes: number, expectedMs: number): Promise<Uint32Array<ArrayBuffer>> {
    const buffer = this.#buffer!;
    const blocks = this.synchronous && this.#waited && expectedMs < LONG_MS;
    if (blocks) await this.#pause(PAUSE * expectedMs - TIMER_MS);
    const mapped = buffer.mapAsync(GPUMapMode.READ, 0, bytes);
    if (blocks) mapped.catch(() => {}); // getMappedRange throws the same failure
    else await this.loss.or(mapped);
    const words = new Uint32Array(buffer.getMappedRange(0, bytes).slice(0));
    buffer.unmap();
    if (!blocks) this.#pausedAt = performance.now();
    this.#waited = true;
    return words;
  }

  async #pause(ms: number): Promise<void> {
    if (ms <= 0 && performance.now() - this.#pausedAt < BLOCKED_MS) return;
    await new Promise((resolve) => setTimeout(resolve, Math.max(0, ms)));
    this.#pausedAt = performance.now();
  }
}
