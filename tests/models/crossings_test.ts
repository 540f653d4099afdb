/**
 * Features with separate tests, here combined: prompt cache, drafts, preemption and restarts, over layers with windows, shared caches,
 * experts, convolutions and LongRoPE. Every answer must equal the answer alone.
 */
import { assert, assertEquals } from "@std/assert";
import { join } from "@std/path";
import { loadEngine } from "../../engine/load/load.ts";
import type { KvType } from "../../engine/mod.ts";
import { compareCrowd } from "./preemption.ts";
import { bytesOfContext } from "./preemption_scenario.ts";
import { answer, open, text } from "./prompt_cache_models.ts";
import { type Architecture, synthesize } from "../../testing/synth/synth.ts";
import { firstTier, fullTier } from "../../testing/tier.ts";

const CONTEXT = 256;
const BYTES = 1e8;
const CROWD = { requests: 24, company: 16, seed: 1 };

async function inFolder(architecture: Architecture, test: (model: string, prompts: string) => Promise<void>) {
  const folder = await Deno.makeTempDir({ prefix: "compy-test-" });
  try {
    const model = join(folder, "model.gguf");
    await Deno.writeFile(model, synthesize({ architecture, seed: 3, types: ["Q8_0"] }));
    await test(model, join(folder, "prompts"));
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

const CASES: readonly (readonly [Architecture, KvType])[] = [
  ["gemma4", "q8_0"],
  ["gpt-oss", "f16"],
  ["lfm2moe", "q4_0"],
  ["phi3-long", "f16"],
];
for (const [architecture, kvType] of CASES) {
  const tier = architecture === "phi3-long" ? firstTier : fullTier;
  tier.test(`${architecture} in ${kvType}: answers equal those alone with preemption, drafts, prompt cache and restart`, () =>
    inFolder(architecture, async (model, folder) => {
      const size = { model, kvType, contextLength: CONTEXT, parallel: 12, threads: 1, queue: CROWD.company };
      const kvBytes = await bytesOfContext(model, kvType, CONTEXT);
      const { engine: alone } = await loadEngine({ ...size, speculate: "off" });
      for (const eager of [true, false]) {
        const promptCache = { folder, bytes: BYTES, eager };
        const { engine } = await loadEngine({ ...size, kvBytes, promptCache });
        await compareCrowd(alone, engine, CROWD);
        const { disk } = engine.stats();
        assert(eager || disk!.hits > 0, "nothing came from the disk");
        await engine.close();
      }
      await alone.close();
    }));
}

Deno.test("phi3-long: prompts stored with one context window's angles are not found with another's", () =>
  inFolder("phi3-long", async (model, folder) => {
    const prompt = text(60, 1);
    const asked = async (contextLength: number, kept: boolean) => {
      const promptCache = kept ? { folder, bytes: BYTES, eager: true } : undefined;
      const engine = await open(model, promptCache, { contextLength });
      const { logprobs, cached } = await answer(engine, prompt, 3);
      await engine.close();
      return { logprobs, cached };
    };
    const [short, long] = [await asked(64, false), await asked(1024, false)];
    assert(short.logprobs[0] !== long.logprobs[0]); // the original context window has 64 tokens
    assertEquals(await asked(64, true), short);
    assertEquals(await asked(1024, true), long);
    assertEquals(await asked(64, true), { ...short, cached: 32 });
    assertEquals(await asked(512, true), { ...long, cached: 32 });
  }));
