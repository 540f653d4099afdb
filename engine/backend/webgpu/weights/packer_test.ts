import { assert, assertEquals } from "@std/assert";
import { Packer } from "./packer.ts";
import { pack, type PackRequest } from "./packing.ts";

/** Returns rows of Q4_K with different bytes everywhere. */
function rowsOf(rows: number, columns = 1024): PackRequest {
  const bytes = new Uint8Array(rows * columns / 256 * 144).map((_, i) => (i * 31 + (i >> 8)) & 0x3f);
  return { type: "Q4_K", bytes, rows, columns };
}

/** Returns the longest time for which this thread was blocked. */
async function longestGap(work: () => Promise<unknown>): Promise<number> {
  let [last, longest] = [performance.now(), 0];
  const look = () => {
    const now = performance.now();
    longest = Math.max(longest, now - last);
    last = now;
  };
  const timer = setInterval(look, 1);
  await work();
  look();
  clearInterval(timer);
  return longest;
}

Deno.test("packer: a worker packs the same bytes as this thread, without blocking this thread", async () => {
  using packer = new Packer();
  await packer.pack(rowsOf(1)); // the worker starts
  const large = rowsOf(12_000);
  const start = performance.now();
  const expected = pack(large);
  const takes = performance.now() - start;
  let found: unknown;
  const gap = await longestGap(async () => found = await packer.pack(large));
  assertEquals(found, expected);
  assert(gap < Math.max(50, takes / 2), `this thread stood still for ${gap} ms; packing takes ${takes}`);
});

Deno.test("packer: packs on this thread when no worker can be started", async () => {
  using packer = new Packer(new URL("file:///nonexistent/worker.ts"));
  const few = rowsOf(4);
  for (let i = 0; i < 3; i++) assertEquals(await packer.pack(few), pack(few));
});

Deno.test("packer: reports a NaN scale from the worker", async () => {
  using packer = new Packer();
  const bytes = new Uint8Array(2 * 4 * 17);
  bytes[17 * 6] = 0xff;
  const { planes, nan } = await packer.pack({ type: "MXFP4", bytes, rows: 2, columns: 128 });
  assertEquals([planes.length, nan], [0, [1, 64]]);
});
