import { assert, assertEquals, assertRejects } from "@std/assert";
import { CpuBackend } from "../engine/backend/cpu/cpu.ts";
import { loadEngine, type MeasuredModel, measureModel } from "../engine/load/load.ts";
import { loadReloadingEngine } from "../engine/load/load_reloading.ts";
import { totalOf } from "../engine/load/memory_error.ts";
import type { LoadOptions } from "../engine/load/options.ts";
import { EngineError, type Models } from "../engine/mod.ts";
import { TEST_BACKEND } from "../testing/kernel_model.ts";
import { synthesize } from "../testing/synth/synth.ts";
import { identityOf, modelOf } from "./model.ts";
import { openPool, type PoolOptions } from "./pool.ts";

const OWN = 131_072;
/** Number of tokens that the usual KV cache holds. */
const USUAL = 4 * 4096;
const LOAD = { threads: 1, kvShare: 1 };

async function withFiles(names: readonly string[], test: (folder: string, paths: string[]) => Promise<void>) {
  const folder = await Deno.makeTempDir();
  try {
    const bytes = synthesize({ architecture: "qwen3", types: ["Q8_0"], layers: 1, seed: 3, context: OWN });
    const paths = names.map((name) => `${folder}/${name}.gguf`);
    for (const path of paths) await Deno.writeFile(path, bytes);
    await test(folder, paths);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

const bytesOf = ({ memory }: MeasuredModel) => totalOf(memory);
const measure = (model: string, options: Partial<LoadOptions> = {}) =>
  measureModel({ ...LOAD, ...options, model });

async function withPool(options: Partial<PoolOptions>, test: (pool: Models) => Promise<void>): Promise<void> {
  const quiet = { reloads: false, note: () => {}, describe: () => {} };
  const pool = await openPool({ files: [], aliases: () => [], load: LOAD, ...quiet, ...options });
  try {
    await test(pool);
  } finally {
    await pool.close();
  }
}

/** Loads the models one after the other and returns their contexts. None may be unloaded for another one. */
async function contextsOf(pool: Models): Promise<number[]> {
  const ids = pool.list().map(({ id }) => id);
  for (const id of ids) await pool.load(id);
  return ids.map((id) => pool.find(id)!.engine!.model.contextLength);
}

Deno.test("default context: two models whose usual memory fits the budget both stay loaded", async () => {
  await withFiles(["a", "b"], async (_, files) => {
    const least = bytesOf(await measure(files[0], { spareBytes: 0 }));
    for (const [spare, longest] of [[0, USUAL], [8e6, USUAL + 16_384], [1e9, OWN]]) {
      await withPool({ files, memoryBytes: 2 * least + spare }, async (pool) => {
        const contexts = await contextsOf(pool);
        assertEquals(contexts[0], contexts[1]);
        assert(contexts[0] >= USUAL && contexts[0] <= longest, `${contexts}`);
        assertEquals(contexts[0] > USUAL, spare > 0);
      });
    }
  });
});

Deno.test("default context: with a models folder, a model takes no memory that other models may need later", async () => {
  await withFiles(["a"], async (folder) => {
    await withPool({ folder }, async (pool) => assertEquals(await contextsOf(pool), [USUAL]));
  });
});

Deno.test({
  name:
    "default context: a model answers a prompt beyond 4,096 tokens, and a refusal names ctx if memory limits it",
  ignore: TEST_BACKEND === "wasm",
  async fn() {
    await withFiles(["a"], async (_, [model]) => {
      const least = bytesOf(await measure(model, { parallel: 1, spareBytes: 0 }));
      const { engine, cut } = await loadEngine({ ...LOAD, parallel: 1, model, freeBytes: least + 2e6 });
      const { contextLength } = engine.model;
      assert(contextLength > 5000 && contextLength < 20_000, `${contextLength}`);
      assertEquals(cut?.own, OWN);
      const ask = (length: number) =>
        Array.fromAsync(engine.submit({ prompt: Array(length).fill(65), maxTokens: 1, ignoreEos: true }));
      assertEquals((await ask(5000)).filter(({ type }) => type === "token").length, 1);
      const error = await assertRejects(() => ask(contextLength), EngineError);
      assertEquals(
        error.message,
        `The prompt has ${contextLength} tokens, but the context holds ${contextLength}, with at least one for the ` +
          `answer: shorten the prompt; the model can hold ${OWN} tokens with a higher value of ctx`,
      );
      await engine.close();
    });
  },
});

Deno.test("default context: neither a batch's identity nor a draft model's memory depends on the free memory", async () => {
  await withFiles(["a"], async (_, [model]) => {
    const identities = [];
    for (const more of [{}, { spareBytes: 0 }, { contextLength: 4096 }]) {
      const loaded = await loadEngine({ ...LOAD, backend: TEST_BACKEND, model, ...more });
      await using opened = modelOf(loaded);
      identities.push(await identityOf(opened));
    }
    assertEquals(identities[0]["context length"], 4096);
    assertEquals(identities[1], identities[0]);
    assertEquals(identities[2], identities[0]);
    const usual = await measure(model, { draft: model, spareBytes: 0 });
    assertEquals(bytesOf(usual), bytesOf(await measure(model, { draft: model, contextLength: 4096 })));
  });
});

Deno.test("default context: backends that allocate the whole KV cache keep its usual size", async () => {
  await withFiles(["a"], async (_, [model]) => {
    for (const backend of ["webgpu", "auto", "wasm"] as const) {
      const { contextLength, memory } = await measure(model, { backend });
      assertEquals(contextLength, USUAL, backend);
      assertEquals(memory.kv, (await measure(model, { backend, contextLength: 4096 })).memory.kv, backend);
    }
  });
});

Deno.test({
  name: "default context: an engine that failed is loaded again with the same context and memory",
  ignore: TEST_BACKEND === "wasm",
  async fn() {
    await withFiles(["a"], async (_, [model]) => {
      const size = { threads: 1, parallel: 2, model };
      const freeBytes = bytesOf(await measureModel({ ...size, spareBytes: 0 })) + 2e6;
      const loaded = await loadReloadingEngine({ ...size, freeBytes }, { note: () => {} });
      const { engine, memory } = loaded;
      const { contextLength } = engine.model;
      assert(contextLength > 8192 && contextLength < OWN, `${contextLength}`);
      const { step } = CpuBackend.prototype;
      CpuBackend.prototype.step = () => Promise.reject(new Error("injected"));
      const ready = Promise.withResolvers<void>();
      engine.onState((state) => state === "ready" && ready.resolve());
      try {
        await assertRejects(() => Array.fromAsync(engine.submit({ prompt: [65], maxTokens: 1 })));
      } finally {
        CpuBackend.prototype.step = step;
      }
      await ready.promise;
      assertEquals([engine.model.contextLength, loaded.memory], [contextLength, memory]);
      await engine.close();
    });
  },
});
