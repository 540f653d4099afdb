/** Copies a text's KV blocks and states into another model, which must continue with the same bits. */
import { assertEquals, assertRejects } from "@std/assert";
import type { CacheParts } from "../../engine/backend/backend.ts";
import { KV_TYPES } from "../../engine/mod.ts";
import { KernelModel, shuffledBlocks } from "../../testing/kernel_model.ts";
import { HYBRID_LAYERS, mixedFile, mixedPlan, VOCABULARY } from "../../testing/mixed_model.ts";

const { bytes } = mixedFile(HYBRID_LAYERS);
const SIZE = { kvBlocks: 16, maxRows: 256, maxLogitRows: 4 };
/** Layer groups: one with full attention, two with windows. */
const GROUPS = 3;
const PROMPT = Array.from({ length: 160 }, (_, i) => (i * 37 + 11) % VOCABULARY);
const NEXT = { tokens: [7, 8, 9], cached: PROMPT.length, wanted: [{ candidates: 20 }] };

/** Returns the cache parts for copying: a block per layer group for the same tokens, and a state slot. */
function partsOf(table: Int32Array, slot: number): CacheParts {
  const groups = [...Array(GROUPS).keys()];
  const blocks = [...table].flatMap((b) => groups.map((group) => ({ group, block: b * GROUPS + group })));
  return { blocks, slots: [slot] };
}

for (const kvType of KV_TYPES) {
  Deno.test(`cache copy: a model continues bit-identically from copied ${kvType} blocks and states`, async () => {
    const open = () =>
      KernelModel.loadAs(mixedPlan(HYBRID_LAYERS), bytes, SIZE, { isa: "", threads: 1, kvType });
    using one = await open();
    using two = await open();
    const [from, to] = [shuffledBlocks(0, 6), shuffledBlocks(7, 6)];
    await one.step([{ tokens: PROMPT, blockTable: from, slot: 2 }]);
    const copy = await one.backend.abilities.copies!.readCache(partsOf(from, 2));
    await two.backend.abilities.copies!.writeCache(partsOf(to, 5), [
      copy.subarray(0, 100),
      copy.subarray(100),
    ]);
    assertEquals(
      await two.step([{ ...NEXT, blockTable: to, slot: 5 }]),
      await one.step([{ ...NEXT, blockTable: from, slot: 2 }]),
    );
  });
}

Deno.test("cache copy: a missing part is refused with a message", async () => {
  using model = await KernelModel.loadAs(mixedPlan(HYBRID_LAYERS), bytes, SIZE, { threads: 1 });
  const copies = model.backend.abilities.copies!;
  const [none, parts] = [[], { blocks: [{ group: 1, block: 16 * GROUPS }], slots: [] }];
  await assertRejects(
    () => copies.readCache(parts),
    Error,
    "A KV block must be below 48 (got 48)",
  );
  await assertRejects(
    () => copies.writeCache(parts, none),
    Error,
    "A KV block must be below 48",
  );
  const slots = { blocks: [], slots: [99] };
  await assertRejects(
    () => copies.readCache(slots),
    Error,
    "A slot of recurrent state must be below 32",
  );
  const block = { blocks: [{ group: 0, block: 0 }], slots: [] };
  await assertRejects(
    () => copies.writeCache(block, [new Uint8Array(3)]),
    Error,
    "(got 3)",
  );
});
