import { assertEquals, assertRejects, assertThrows } from "@std/assert";
import { GpuError } from "../errors.ts";
import { type BufferMaker, GpuMemory } from "./memory.ts";

/** Returns a device with so many bytes. The device makes no real buffers. */
function smallDevice(bytes: number): BufferMaker {
  const scopes: (GPUError | null)[] = [];
  return {
    limits: { maxBufferSize: 1e9, maxStorageBufferBindingSize: 1e9 } as GPUSupportedLimits,
    pushErrorScope: () => void scopes.push(null) as undefined,
    popErrorScope: () => Promise.resolve(scopes.pop() ?? null),
    createBuffer: ({ size }) => {
      bytes -= size;
      if (bytes < 0) scopes[scopes.length - 2] = { message: "full" } as GPUError; // the outer scope: out of memory
      return { size, destroy: () => void (bytes += size) } as Partial<GPUBuffer> as GPUBuffer;
    },
  };
}

Deno.test("memory: an allocation that does not fit throws with sizes and advice; freed memory can be used again", async () => {
  const memory = new GpuMemory(smallDevice(3 << 20));
  const first = await memory.storage("weights", 2 << 20);
  const error = await assertRejects(() => memory.storage("more weights", 2 << 20), GpuError);
  assertEquals(
    error.message,
    "The GPU is out of memory: more weights takes 2.00 MiB, 2.00 MiB are held already. " +
      'Use a smaller model, lower ctx or parallel, or use backend: "cpu"',
  );
  memory.free(first);
  assertEquals(memory.bytes, 0);
  await memory.storage("more weights", 2 << 20);
  memory.freeAll();
  assertEquals(memory.bytes, 0);
});

Deno.test("memory: a constant leaves no buffer behind when the device is lost", () => {
  let alive = 0;
  const device: BufferMaker = {
    ...smallDevice(0),
    createBuffer: ({ size }) => {
      alive++;
      const getMappedRange = () => {
        throw new TypeError("the buffer is not mapped");
      };
      return { size, getMappedRange, destroy: () => void alive-- } as Partial<GPUBuffer> as GPUBuffer;
    },
  };
  const memory = new GpuMemory(device);
  assertThrows(() => memory.constant("the first workgroup", new Uint32Array(4)), TypeError, "not mapped");
  assertEquals([alive, memory.bytes], [0, 0]);
});
