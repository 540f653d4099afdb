/** MiniMax M3's attention to chosen blocks of tokens. The seeded model chooses 2 blocks of 32 tokens. */
import { assert, assertEquals, assertNotEquals } from "@std/assert";
import { readPlan } from "../../engine/architectures/registry.ts";
import { KV_TYPES } from "../../engine/backend/backend.ts";
import { changed } from "../../engine/gguf/testing_changes.ts";
import type { GgufFile } from "../../engine/gguf/types.ts";
import { ANSWER, bits, LIMITS, mixedModel, PROMPT } from "./determinism.ts";
import { type CpuModelOptions, KernelModel } from "../../testing/kernel_model.ts";
import { fullTier } from "../../testing/tier.ts";

const THRESHOLD = 2 * 32;
const BYTES = mixedModel("minimax-m3", ["Q8_0", "F16"]);

/** Loads the model with other values of the indexer's keys. */
function withIndexer(numbers: Readonly<Record<string, number | undefined>>, options: CpuModelOptions = {}) {
  const build = (file: GgufFile) => {
    const keys = Object.entries(numbers);
    return readPlan(
      keys.reduce((f, [name, value]) => changed(f, { key: [`attention.indexer.${name}`, value] }), file),
    );
  };
  return KernelModel.loadAs(build, BYTES, LIMITS, { threads: 2, ...options });
}

Deno.test("block attention: has the bits of dense attention for rows up to the threshold", async () => {
  using sparse = await withIndexer({});
  using dense = await withIndexer({ top_k: 64 });
  const short = { prompt: THRESHOLD - ANSWER, chunk: 40 };
  assertEquals(await bits(sparse, short), await bits(dense, short));
  const long = { prompt: THRESHOLD + 1, chunk: 40 };
  assertNotEquals((await bits(sparse, long)).at(-1), (await bits(dense, long)).at(-1));
});

// With blocks of 128 tokens, kernels skip whole chunks. The rows of a tile decide which chunks.
const SHAPES = [{}, { block_size: 128, top_k: 1 }, { block_size: 20, top_k: 3, local_blocks: 2 }];

for (const [i, numbers] of SHAPES.entries()) {
  const what = Object.entries(numbers).map(([name, value]) => `${name} ${value}`).join(", ") ||
    "as in the file";
  Deno.test(`block attention, ${what}: chunked prefill and other sequences change no bit beyond the threshold`, async () => {
    const kvType = KV_TYPES[i];
    using model = await withIndexer(numbers, { kvType });
    const whole = await bits(model, { chunk: PROMPT });
    assertEquals(whole.length, 1 + ANSWER);
    assert(PROMPT > 3 * THRESHOLD);
    assertEquals(await bits(model, { chunk: 27, others: 7, range: 4 }), whole, kvType);
  });
}

for (const kvType of KV_TYPES) {
  fullTier.test(`block attention: chunked prefill and other sequences change no bit with ${kvType}`, async () => {
    for (const numbers of SHAPES) {
      using model = await withIndexer(numbers, { kvType });
      const whole = await bits(model, { chunk: PROMPT });
      for (const way of [{ chunk: 1 }, { chunk: 64, others: 7, range: 2 }]) {
        assertEquals(await bits(model, way), whole, JSON.stringify(numbers));
      }
    }
  });
}
