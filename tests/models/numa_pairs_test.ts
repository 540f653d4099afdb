/** Engines on two NUMA nodes with adapters, images and a prompt store give the same answers as one engine. */
import { assertEquals, assertNotEquals } from "@std/assert";
import { loadOnNodes } from "../../engine/load/load_nodes.ts";
import type { LoadOptions } from "../../engine/load/options.ts";
import type { Engine } from "../../engine/mod.ts";
import { synthesize } from "../../testing/synth/synth.ts";
import { synthAdapter } from "./lora_files.ts";
import { answer, markOf, TEXT } from "./vision/answering.ts";
import { picture, prepared, withFiles } from "./vision/files.ts";

const PROMPT = Array.from({ length: 130 }, (_, i) => (i * 37) % 250);
const LOAD = { backend: "cpu", threads: 2, contextLength: 256, parallel: 4, speculate: "off" } as const;
const NODES = "0/0";

type Options = Omit<LoadOptions, keyof typeof LOAD>;

/** Loads the model in one engine (`off`), or in one engine per node. Closes the engines after `run`. */
async function on<T>(numa: "off" | typeof NODES, options: Options, run: (engine: Engine) => Promise<T>) {
  const { engine, nodes } = await loadOnNodes({ ...LOAD, ...options, numa });
  try {
    assertEquals(nodes, numa === NODES ? 2 : undefined);
    return await run(engine);
  } finally {
    await engine.close();
  }
}

async function withFolder(run: (folder: string) => Promise<void>) {
  const folder = await Deno.makeTempDir({ prefix: "compy-numa-" });
  try {
    await run(folder);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

/** Writes a seeded model. */
async function writeModel(path: string): Promise<Uint8Array> {
  const model = synthesize({ architecture: "llama", seed: 3, types: ["Q8_0"] });
  await Deno.writeFile(path, model);
  return model;
}

Deno.test("numa: each node gives the same answers as one engine, with and without a LoRA adapter", async () => {
  await withFolder(async (folder) => {
    const [model, adapter] = [`${folder}/model.gguf`, `${folder}/adapter.gguf`];
    await Deno.writeFile(adapter, synthAdapter(await writeModel(model), { seed: 1, rank: 4 }));
    const options = { model, lora: [`${adapter}=0`] };
    // The adapter has scale 0 unless a request sets it.
    const request = (scale?: number) => ({
      prompt: PROMPT,
      maxTokens: 6,
      ignoreEos: true,
      ...scale !== undefined && { adapters: [{ id: 0, scale }] },
    });
    const ask = (engine: Engine, scale?: number) => answer(engine, request(scale));
    const [plain, adapted] = await on(
      "off",
      options,
      async (engine) => [(await ask(engine)).tokens, (await ask(engine, 1)).tokens],
    );
    assertNotEquals(adapted, plain);
    await on(NODES, options, async (engine) => {
      const scales = [undefined, 1, 1, undefined];
      const answers = await Promise.all(scales.map((scale) => ask(engine, scale)));
      assertEquals(answers.map(({ tokens }) => tokens), [plain, adapted, adapted, plain]);
    });
  });
});

Deno.test("numa: each node gives the same answers about images as one engine", async () => {
  await withFiles({ tower: "qwen3vl", type: "Q8_0", seed: 5 }, async (files) => {
    const images = await Promise.all(["a", "b"].map((seed) => prepared(picture(seed, 96, 64), files)));
    const ask = async (engine: Engine, image: number) => {
      const prompt = [...TEXT, markOf(engine, "qwen3vl"), ...TEXT];
      return (await answer(engine, { prompt, images: [images[image]], maxTokens: 4 })).tokens;
    };
    const options = { model: files.model };
    const [one, two] = await on(
      "off",
      options,
      async (engine) => [await ask(engine, 0), await ask(engine, 1)],
    );
    assertNotEquals(one, two);
    const crowd = await on(NODES, options, (engine) => Promise.all([0, 1, 1, 0].map((i) => ask(engine, i))));
    assertEquals(crowd, [one, two, two, one]);
  });
});

Deno.test("numa: the nodes share a prompt store, and a full store changes no answer", async () => {
  await withFolder(async (folder) => {
    const model = `${folder}/model.gguf`;
    await writeModel(model);
    const ask = (engine: Engine) => answer(engine, { prompt: PROMPT, maxTokens: 4, ignoreEos: true });
    const store = (name: string, bytes: number): Options => (
      { model, promptCache: { folder: `${folder}/${name}`, bytes, eager: true } }
    );
    const { tokens } = await on("off", { model }, ask);
    const [roomy, full] = [store("roomy", 1e8), store("full", 1)];
    for (const options of [roomy, full]) {
      const answers = await on(
        NODES,
        options,
        (engine) => Promise.all([ask(engine), ask(engine), ask(engine)]),
      );
      assertEquals(answers.map(({ tokens }) => tokens), [tokens, tokens, tokens]);
    }
    const hits = (options: Options) =>
      on(NODES, options, async (engine) => {
        assertEquals((await ask(engine)).tokens, tokens);
        return engine.stats().disk?.hits;
      });
    assertEquals([await hits(roomy), await hits(full)], [1, 0], "after a restart");
  });
});
