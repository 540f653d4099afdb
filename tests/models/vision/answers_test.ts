/** Answers about images by seeded models: the same alone and beside other requests. */
import { assert, assertEquals, assertRejects } from "@std/assert";
import { EngineError } from "../../../engine/api/errors.ts";
import type { PromptImage } from "../../../engine/api/request.ts";
import { loadEngine } from "../../../engine/load/load.ts";
import { firstTier, fullTier } from "../../../testing/tier.ts";
import { bytesOfContext } from "../preemption_scenario.ts";
import { answer, markOf, TEXT, tierOf, withModel } from "./answering.ts";
import { picture, prepared, synthesizeVision, type TowerName, TOWERS, withFiles } from "./files.ts";

for (const tower of Object.keys(TOWERS) as TowerName[]) {
  tierOf(tower).test(
    `vision: ${tower} gives the same answers alone and beside other requests, and shares prefixes only between equal images`,
    async () => {
      await withModel({ tower, type: "Q8_0", seed: 5 }, async (engine, files) => {
        const mark = markOf(engine, tower);
        const [one, two] = await Promise.all([
          prepared(picture("a", 96, 64), files),
          prepared(picture("b", 96, 64), files),
        ]);
        const prompt = [...TEXT, mark, ...Array.from({ length: 60 }, (_, i) => i + 20)];
        const ask = (image: PromptImage) => answer(engine, { prompt, images: [image], maxTokens: 6 });
        const [alone, other] = [await ask(one), await ask(two)];
        assertEquals([alone.cached, other.cached], [0, 0]);
        assert(JSON.stringify(alone.tokens) !== JSON.stringify(other.tokens), "images must matter");
        const text = answer(engine, { prompt: [...TEXT, ...TEXT], maxTokens: 6 });
        const crowd = await Promise.all([ask(two), ask(one), ask(two), text, ask(one)]);
        assertEquals(
          crowd.map(({ tokens }) => tokens).toSpliced(3, 1),
          [other, alone, other, alone].map((a) => a.tokens),
        );
        assert((await ask(one)).cached > 0);
      });
    },
  );
}

Deno.test("vision: gemma3's image is computed in one step wherever the steps of a prompt end", async () => {
  await withModel({ tower: "gemma3", type: "Q8_0", seed: 5 }, async (engine, files) => {
    const image = await prepared(picture("a", 112, 112), files);
    const words = (count: number) => Array.from({ length: count }, (_, i) => i % 200);
    // Alone, the first step of 512 rows would end within the image.
    const prompt = [...words(505), markOf(engine, "gemma3"), ...TEXT];
    const ask = (cacheSalt: string) => answer(engine, { prompt, images: [image], maxTokens: 4, cacheSalt });
    const alone = await ask("alone");
    const [, beside] = await Promise.all([
      answer(engine, { prompt: words(300), maxTokens: 8 }),
      ask("beside"),
    ]);
    assertEquals([alone.cached, beside.cached], [0, 0]);
    assertEquals(alone.tokens, beside.tokens);
  }, 1024);
});

for (const tower of Object.keys(TOWERS) as TowerName[]) {
  (tower === "qwen3vl" ? firstTier : fullTier).test(
    `vision: ${tower} finds prompts with the same images on disk after a restart, and answers in the same bits`,
    async () => {
      await withFiles({ tower, type: "Q8_0", seed: 5 }, async (files) => {
        const folder = await Deno.makeTempDir();
        const promptCache = { folder, bytes: 1e8, eager: true };
        const load = {
          model: files.model,
          backend: "cpu",
          threads: 2,
          contextLength: 512,
          promptCache,
        } as const;
        const [one, two] = await Promise.all(
          ["a", "b"].map((seed) => prepared(picture(seed, 128, 128), files)),
        );
        const text = Array.from({ length: 64 }, (_, i) => i + 20);
        /** Loads the model and answers about each image. Returns the answers, and whether the prompt was found. */
        const ask = async (images: PromptImage[]) => {
          const { engine } = await loadEngine(load);
          try {
            const answers = [];
            for (const image of images) {
              const prompt = [...TEXT, markOf(engine, tower), ...text];
              answers.push(await answer(engine, { prompt, images: [image], maxTokens: 4 }));
            }
            return [answers.map(({ tokens }) => tokens), answers.map(({ cached }) => cached > 0)];
          } finally {
            await engine.close();
          }
        };
        try {
          const [[first], found] = await ask([one]);
          assertEquals(found, [false]);
          const [[again, other], foundAgain] = await ask([one, two]);
          assertEquals([again, foundAgain], [first, [true, false]]);
          assert(JSON.stringify(other) !== JSON.stringify(first));
          await Deno.writeFile(files.tower, synthesizeVision({ tower, type: "Q8_0", seed: 6 }).tower);
          const [[changed], foundByOther] = await ask([one]);
          assertEquals(foundByOther, [false], "another tower has other rows");
          assert(JSON.stringify(changed) !== JSON.stringify(first));
        } finally {
          await Deno.remove(folder, { recursive: true });
        }
      });
    },
  );
}

for (const tower of ["qwen3vl", "qwen35"] as const) {
  fullTier.test(`vision: ${tower} answers as alone when KV memory runs out and requests with images are preempted`, async () => {
    await withFiles({ tower, type: "Q8_0", seed: 5 }, async (files) => {
      const kvBytes = await bytesOfContext(files.model, "f16", 192);
      const load = {
        model: files.model,
        backend: "cpu",
        threads: 2,
        contextLength: 192,
        parallel: 16,
      } as const;
      const { engine } = await loadEngine({ ...load, kvBytes });
      try {
        const images = await Promise.all(["a", "b"].map((seed) => prepared(picture(seed, 96, 64), files)));
        const prompt = [...TEXT, markOf(engine, tower), ...TEXT];
        const ask = (i: number) =>
          answer(engine, {
            prompt,
            images: [images[i % 2]],
            maxTokens: 100,
            ignoreEos: true,
            ...i < 2 ? {} : { sampling: { seed: i } },
          });
        const alone: unknown[] = [];
        for (let i = 0; i < 4; i++) alone.push((await ask(i)).tokens);
        assertEquals(engine.stats().preemptions, 0);
        const beside = await Promise.all(Array.from({ length: 16 }, (_, i) => ask(i % 4)));
        for (const [i, { tokens }] of beside.entries()) assertEquals(tokens, alone[i % 4]);
        assert(engine.stats().preemptions > 0);
      } finally {
        await engine.close();
      }
    });
  });
}

Deno.test("vision: refuses a prompt whose image tokens do not match the images in number", async () => {
  await withModel({ tower: "qwen3vl", type: "Q8_0", seed: 5 }, async (engine, files) => {
    const image = await prepared(picture("a", 64, 64), files);
    const mark = markOf(engine, "qwen3vl");
    for (const prompt of [[1, 2], [mark, mark]]) {
      const error = await assertRejects(() => answer(engine, { prompt, images: [image] }), EngineError);
      assertEquals(error.code, "invalid_request");
    }
  });
});

Deno.test("vision: an unsuitable tower is left out, or refused if the options name that tower", async () => {
  await withFiles({ tower: "qwen3vl", type: "Q8_0", seed: 5 }, async ({ model, tower }) => {
    await Deno.writeFile(tower, synthesizeVision({ tower: "qwen35", type: "Q8_0", seed: 5 }).tower);
    const warnings: string[] = [];
    const load = { model, backend: "cpu", warn: (message: string) => warnings.push(message) } as const;
    const { engine } = await loadEngine(load);
    assertEquals([engine.model.images, warnings.length], [false, 1]);
    await assertRejects(() => engine.readImage(new Uint8Array(8)), EngineError, "reads text only");
    await engine.close();
    await assertRejects(() => loadEngine({ ...load, mmproj: tower }), EngineError, "deep layers");
  });
});
