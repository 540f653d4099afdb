import type { DeviceLoss } from "./device_loss.ts";
import type { GpuMemory } from "./memory.ts";

/** Milliseconds of work from which waiting for an event, which is looked for every 10 ms or so, costs little. */
const LONG_MS = 50;
/** Milliseconds that reading may block this thread's other work, one call after the other, without a pause. */
const BLOCKED_MS = 10;
/** The share of the expected time that is left to other work; timers come some milliseconds late. */
const PAUSE = 0.75;
const TIMER_MS = 2;

/** Brings answers from the GPU. */
export class ReadBack {
  #buffer: GPUBuffer | undefined;
  /** Whether the buffer has been waited for. */
  #waited = false;
  #pausedAt = 0;

  constructor(
    private readonly memory: GpuMemory,
    private readonly synchronous: boolean,
    private readonly loss: DeviceLoss,
  ) {}

  /** Makes room for answers of `bytes`. */
  async reserve(bytes: number): Promise<void> {
    if (this.#buffer && this.#buffer.size >= bytes) return;
    if (this.#buffer) this.memory.free(this.#buffer);
    const usage = GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST;
    // Deno 2.9 ends the process where a buffer is read in one turn whose first mapping was not waited for.
    this.#waited = false;
    this.#buffer = await this.memory.buffer("answers on their way", bytes, usage);
  }

  /** Records a copy of the first `bytes` of a buffer, to the place `at`. */
  copy(encoder: GPUCommandEncoder, source: GPUBuffer, bytes: number, at = 0): void {
    encoder.copyBufferToBuffer(source, 0, this.#buffer!, at, bytes);
  }

  /**
   * The copy, once the work that was submitted is done, which is expected to take so many milliseconds. A short wait blocks, since the
   * event would come later by more than the wait; but only its last part, so that this thread can do other work meanwhile.
   */
  async read(bytes: number, expectedMs: number): Promise<Uint32Array<ArrayBuffer>> {
    const buffer = this.#buffer!;
    const blocks = this.synchronous && this.#waited && expectedMs < LONG_MS;
    if (blocks) await this.#pause(PAUSE * expectedMs - TIMER_MS);
    const mapped = buffer.mapAsync(GPUMapMode.READ, 0, bytes);
    if (blocks) mapped.catch(() => {}); // getMappedRange throws too
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
