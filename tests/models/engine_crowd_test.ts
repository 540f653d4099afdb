import { assertEquals } from "@std/assert";
import { fromFileUrl } from "@std/path";
import { KV_TYPES } from "../../engine/mod.ts";
import { answersOf } from "./engine_crowd.ts";
import { instructionSets } from "../../testing/kernel_model.ts";
import { synthesize } from "../../testing/synth/synth.ts";
import { firstTier, fullTier } from "../../testing/tier.ts";

/* The whole engine on small models: concurrent requests and caching must not change a bit of an answer. */

const DEMO_MODEL = fromFileUrl(new URL("../../models/demo.gguf", import.meta.url));
for (const [i, isa] of instructionSets().entries()) {
  const tier = i === 0 ? firstTier : fullTier;
  tier.test(`${isa}: answers are bit-identical alone, concurrent, cached, on 1, 2 or 3 threads, and on two nodes`, async () => {
    const one = await answersOf(DEMO_MODEL, { isa, threads: 1 });
    assertEquals(await answersOf(DEMO_MODEL, { isa, threads: 2 }), one);
    assertEquals(await answersOf(DEMO_MODEL, { isa, threads: 3 }), one);
    assertEquals(await answersOf(DEMO_MODEL, { isa, threads: 2, numa: "0/0" }), one);
  });
}

// The common beginning is long enough for shared attention during decode.
for (const kvType of KV_TYPES.slice(1)) {
  fullTier.test(`KV cache in ${kvType}: answers are bit-identical alone, concurrent, cached, and on 1 or 2 threads`, async () => {
    for (const isa of instructionSets()) {
      const one = await answersOf(DEMO_MODEL, { isa, threads: 1, kvType, common: 140 });
      assertEquals(await answersOf(DEMO_MODEL, { isa, threads: 2, kvType, common: 140 }), one);
    }
  });
}

for (const architecture of ["qwen35", "lfm2", "lfm2moe"] as const) {
  Deno.test(`${architecture}: answers are bit-identical with prefixes from snapshots`, async () => {
    const model = await Deno.makeTempFile({ prefix: "compy-test-", suffix: ".gguf" });
    try {
      await Deno.writeFile(model, synthesize({ architecture, seed: 3, types: ["Q8_0"] }));
      const [isa] = instructionSets();
      for (const kvType of architecture === "lfm2moe" ? ["f16"] as const : KV_TYPES) {
        const one = await answersOf(model, { isa, kvType, threads: 1 });
        assertEquals(await answersOf(model, { isa, kvType, threads: 2 }), one);
      }
    } finally {
      await Deno.remove(model);
    }
  });
}
