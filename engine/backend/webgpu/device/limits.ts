import type { Gpu } from "./gpu.ts";
import type { GpuMemory } from "./memory.ts";

/** Bytes that are copied: more than caches hold. */
const COPY_BYTES = 128 * 2 ** 20;
const COPIES = 4;
const SAMPLES = 5;

/** What a GPU copies within its memory at best: 10^9 bytes a second, those read and those written. */
export async function copyBandwidth({ device, loss }: Gpu, memory: GpuMemory): Promise<number> {
  const size = Math.min(COPY_BYTES, device.limits.maxStorageBufferBindingSize);
  const from = await memory.storage("a copy's source", size);
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
      // The difference leaves out what submitting and waiting take.
      const [few, many] = [await seconds(1), await seconds(1 + COPIES)];
      if (many > few) best = Math.max(best, 2 * COPIES * size / (many - few));
    }
    return best / 1e9;
  } finally {
    memory.free(from);
    memory.free(to);
  }
}
