import type { Gpu } from "./gpu.ts";
import type { GpuMemory } from "./memory.ts";

/** Bytes to copy for a measurement: more than caches hold. */
const COPY_BYTES = 128 * 2 ** 20;
const COPIES = 4;
const SAMPLES = 5;

/**
 * Measures how fast a GPU copies within its memory, in 10^9 bytes a second. Bytes read and bytes written both
 * count.
 */
export async function copyBandwidth({ device, loss }: Gpu, memory: GpuMemory): Promise<number> {
  const size = Math.min(COPY_BYTES, device.limits.maxStorageBufferBindingSize);
  const from = await memory.storage("the source of a copy", size);
  const to = await memory.storage("a copy", size);
  const seconds = async (copies: number) => {
    const start = performance.now();
    const encoder = device.createCommandEncoder();
    for (let i = 0; i < copies; i++) encoder.copyBufferToBuffer(from, 0, to, 0, size);
    device.queue.submit([encoder.finish()]);
    await loss.or(device.queue.onSubmittedWorkDone());
    return (performance.now() - start) / 1000;
  };
  try {
    await seconds(1);
    let best = 0;
    for (let i = 0; i < SAMPLES; i++) {
      // The difference of the two times excludes submitting and waiting.
      const [few, many] = [await seconds(1), await seconds(1 + COPIES)];
      if (many > few) best = Math.max(best, 2 * COPIES * size / (many - few));
    }
    return best / 1e9;
  } finally {
    memory.free(from);
    memory.free(to);
  }
}
