/** The prompt cache with the kernels: a restarted engine must answer bit-identically to one without a cache. */
import { assert, assertEquals, assertRejects } from "@std/assert";
import { join } from "@std/path";
import { loadEngine } from "../../engine/load/load.ts";
import { KV_TYPES } from "../../engine/mod.ts";
import { instructionSets } from "../../testing/kernel_model.ts";
import { killOften } from "./prompt_cache_scenario.ts";
import { answer, open, openAll, PROMPTS, text, writeModels } from "./prompt_cache_models.ts";
import { testSeed } from "../../testing/random.ts";
import { everyNth, fullTier } from "../../testing/tier.ts";

const BYTES = 1e9;

async function withModels(test: (models: string, folder: string) => Promise<void>): Promise<void> {
  const models = await Deno.makeTempDir({ prefix: "compy-test-" });
  try {
    await writeModels(models);
    await test(models, join(models, "prompts"));
  } finally {
    await Deno.remove(models, { recursive: true });
  }
}

for (const kvType of everyNth(3, KV_TYPES)) {
  Deno.test(`prompt cache: two restarted models in ${kvType} answer bit-identically from one folder`, () =>
    withModels(async (models, folder) => {
      const prompts = PROMPTS.slice(0, 6);
      const plain = await openAll(models, undefined, kvType);
      const expected = [];
      for (const engine of plain) {
        for (const prompt of prompts) expected.push(await answer(engine, prompt));
        await engine.close();
      }
      for (const run of ["first", "second"]) {
        const engines = await openAll(models, { folder, bytes: BYTES, eager: true }, kvType);
        for (const [i, { tokens, logprobs, cached }] of expected.entries()) {
          const prompt = prompts[i % prompts.length];
          const found = await answer(engines[Math.floor(i / prompts.length)], prompt);
          assertEquals([found.tokens, found.logprobs], [tokens, logprobs]);
          if (run === "second") assertEquals(found.cached, Math.floor((prompt.length - 1) / 32) * 32);
          assert(found.cached >= cached);
        }
        for (const engine of engines) await engine.close();
      }
    }));
}

Deno.test("prompt cache: another KV type or instruction set misses; a renamed model file hits", () =>
  withModels(async (models, folder) => {
    const prompt = text(200, 1);
    const promptCache = { folder, bytes: BYTES, eager: true };
    const model = join(models, "qwen35.gguf");
    const cachedBy = async (path: string, more = {}) => {
      const engine = await open(path, promptCache, more);
      const { cached } = await answer(engine, prompt);
      await engine.close();
      return cached;
    };
    assertEquals(await cachedBy(model), 0);
    for (const kvType of ["q8_0", "q4_0"]) assertEquals(await cachedBy(model, { kvType }), 0);
    for (const isa of instructionSets().slice(1, 3)) assertEquals(await cachedBy(model, { isa }), 0);
    await Deno.rename(model, join(models, "renamed.gguf"));
    assertEquals(await cachedBy(join(models, "renamed.gguf"), { threads: 2 }), 192);
  }));

Deno.test("prompt cache: a backend that cannot copy its cache is refused before loading", () =>
  withModels(async (models, folder) => {
    const promptCache = { folder, bytes: BYTES };
    await assertRejects(
      () => loadEngine({ model: join(models, "qwen3.gguf"), backend: "webgpu", promptCache }),
      Error,
      "Prompts are kept on a disk with the CPU backend only: leave out promptCache, or compute with",
    );
  }));

fullTier.test("prompt cache: kill -9 during writes causes no wrong answer, failed start or excess size", async () => {
  const { answers, hits } = await killOften(6, testSeed(), 900);
  assert(answers > 0 && hits > 0, `${answers} answers, ${hits} from the disk`);
});
