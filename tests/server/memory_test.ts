import { assert, assertEquals } from "@std/assert";
import { join } from "@std/path";
import { measureMemory } from "./memory_scenario.ts";
import { synthesize } from "../../testing/synth/synth.ts";
import { fullTier } from "../../testing/tier.ts";

/* `deno task memory FILE` measures any model. */

for (const architecture of ["qwen3", "lfm2"] as const) {
  fullTier.test(`resident memory: ${architecture} takes little more than the sizes of its file, KV cache and states`, async () => {
    const folder = await Deno.makeTempDir({ prefix: "compy-test-" });
    try {
      const model = join(folder, "model.gguf");
      await Deno.writeFile(model, synthesize({ architecture, types: ["Q8_0"], seed: 1, vocabulary: 20_000 }));
      const use = await measureMemory({ model, tokens: 1510, sequences: 2 });
      assert(use.taken <= use.allowed, JSON.stringify(use));
      const blocks = 2 * 48 * 32; // in tokens
      assertEquals(use.kv, blocks * use.kvOfAll / (2 * 1518));
    } finally {
      await Deno.remove(folder, { recursive: true });
    }
  });
}
