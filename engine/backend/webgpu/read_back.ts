import type { GpuMemory } from "./memory.ts";

/** Milliseconds of a step from which waiting for an event, which is looked for every 10 ms or so, costs little. */
const LONG_STEP_MS = 50;

/** Brings answers from the GPU. */
export class ReadBack {
  #buffer: GPUBuffer | undefined;
  /** What reading took the last time; Infinity where the buffer has never been waited for. */
  #lastMs = Infinity;

  constructor(
    private readonly memory: GpuMemory,
    private readonly synchronous: boolean,
  ) {}

  /** Makes room for answers of `bytes`. */
  async reserve(bytes: number): Promise<void> {
    if (this.#buffer && this.#buffer.size >= bytes) return;
    if (this.#buffer) this.memory.free(this.#buffer);
    const usage = GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST;
    // Deno 2.9 ends the process where a buffer is read in one turn whose first mapping was not waited for.
    this.#lastMs = Infinity;
    this.#buffer = await this.memory.buffer("answers on their way", bytes, usage);
  }

  /** Records a copy of the first `bytes` of a buffer, to the place `at`. */
  copy(encoder: GPUCommandEncoder, source: GPUBuffer, bytes: number, at = 0): void {
    encoder.copyBufferToBuffer(source, 0, this.#buffer!, at, bytes);
  }

  /**
   * The copy, once the work that was submitted is done. A short wait blocks, since the event would come later by more
   * than the wait; a long one lets other work of this thread go on.
   */
  async read(bytes: number): Promise<Uint32Array<ArrayBuffer>> {
    const start = performance.now();
    const buffer = this.#buffer!;
    const mapped = buffer.mapAsync(GPUMapMode.READ, 0, bytes);
    if (this.synchronous && this.#lastMs < LONG_STEP_MS) mapped.catch(() => {}); // getMappedRange throws too
    else await mapped;
    const words = new Uint32Array(buffer.getMappedRange(0, bytes).slice(0));
    buffer.unmap();
    this.#lastMs = performance.now() - start;
    return words;
  }
}
