/** Answers about images by seeded models: near float64, and the same alone and beside other requests. */
import { assert, assertEquals, assertRejects } from "@std/assert";
import { EngineError } from "../../../engine/api/errors.ts";
import type { Engine } from "../../../engine/api/engine.ts";
import type { GenerateRequest, PromptImage } from "../../../engine/api/request.ts";
import { loadEngine } from "../../../engine/load/load.ts";
import {
  DEEP,
  type Files,
  picture,
  prepared,
  synthesizeVision,
  type VisionOptions,
  withFiles,
} from "./files.ts";
import { exactDecoder, exactTower, type Part, Tensors } from "./exact.ts";

async function withModel(options: VisionOptions, test: (engine: Engine, files: Files) => Promise<void>) {
  await withFiles(options, async (files) => {
    const { engine } = await loadEngine({
      model: files.model,
      backend: "cpu",
      threads: 2,
      contextLength: 512,
    });
    try {
      await test(engine, files);
    } finally {
      await engine.close();
    }
  });
}

async function answer(engine: Engine, request: GenerateRequest) {
  const tokens: { token: number; logprob: number }[] = [];
  let cached = 0;
  for await (const event of engine.submit({ sampling: { temperature: 0 }, logprobs: 0, ...request })) {
    if (event.type === "token") tokens.push({ token: event.token, logprob: event.logprob! });
    if (event.type === "finish") cached = event.usage.cachedTokens;
  }
  return { tokens, cached };
}

const TEXT = [5, 9, 33, 71, 8, 120, 44];

/** A prompt of text, an image, text, another image and text, for the engine and for the exact pass. */
function conversation(pad: number, images: readonly PromptImage[], rows: readonly Float64Array[][][]) {
  const prompt = [...TEXT, pad, ...TEXT.toReversed(), pad, ...TEXT];
  let next = 0;
  const parts = prompt.flatMap((token): Part[] => {
    if (token !== pad) return [{ token }];
    const image = next++;
    const { columns } = images[image];
    return rows[image][0].map((_, i) => ({
      image,
      place: [Math.floor(i / columns), i % columns],
      rows: rows[image].map((part) => part[i]),
    }));
  });
  return { prompt, parts };
}

const padOf = ({ tokenizer }: Engine) => tokenizer.encode("<|image_pad|>", { parseSpecial: true })[0];

Deno.test("vision: qwen3vl's answers to two images are near float64", async () => {
  await withModel({ architecture: "qwen3vl", type: "F32", seed: 4 }, async (engine, files) => {
    const pictures = [picture("one", 96, 64), picture("two", 64, 64)];
    const images = await Promise.all(pictures.map((image) => prepared(image, files)));
    const [tower, decoder] = [await Tensors.open(files.tower), await Tensors.open(files.model)];
    const rows = pictures.map((image) => exactTower(tower, image, DEEP.qwen3vl));
    const { prompt, parts } = conversation(padOf(engine), images, rows);
    const { tokens } = await answer(engine, { prompt, images, maxTokens: 2 });
    const all = [...parts];
    for (const { token, logprob } of tokens) {
      const exact = exactDecoder(decoder, all);
      assert(Math.abs(exact[token] - logprob) < 0.003, `${exact[token]} ${logprob}`);
      all.push({ token });
    }
  });
});

for (const architecture of ["qwen3vl", "qwen35"] as const) {
  Deno.test(`vision: ${architecture} gives the same answers alone and beside other requests, and shares prefixes only between equal images`, async () => {
    await withModel({ architecture, type: "Q8_0", seed: 5 }, async (engine, files) => {
      const pad = padOf(engine);
      const [one, two] = await Promise.all([
        prepared(picture("a", 96, 64), files),
        prepared(picture("b", 96, 64), files),
      ]);
      const prompt = [...TEXT, pad, ...Array.from({ length: 60 }, (_, i) => i + 20)];
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
  });
}

Deno.test("vision: prompts with images are not stored on disk, because names on disk do not tell images apart", async () => {
  await withFiles({ architecture: "qwen3vl", type: "Q8_0", seed: 5 }, async (files) => {
    const folder = await Deno.makeTempDir();
    const promptCache = { folder, bytes: 1e8, eager: true };
    const load = { model: files.model, backend: "cpu", threads: 2, contextLength: 512, promptCache } as const;
    const image = await prepared(picture("a", 256, 256), files);
    const engines = [(await loadEngine(load)).engine];
    try {
      const pad = padOf(engines[0]);
      const text = Array.from({ length: 64 }, (_, i) => i + 20);
      await answer(engines[0], { prompt: [pad, ...text], images: [image], maxTokens: 2 });
      await answer(engines[0], { prompt: text, maxTokens: 2 });
      await engines[0].close();
      engines.push((await loadEngine(load)).engine);
      const pads = Array<number>(image.rows * image.columns).fill(pad);
      const found = [[...pads, ...text], text].map((prompt) => answer(engines[1], { prompt, maxTokens: 2 }));
      assertEquals((await Promise.all(found)).map(({ cached }) => cached > 0), [false, true]);
    } finally {
      for (const engine of engines) await engine.close();
      await Deno.remove(folder, { recursive: true });
    }
  });
});

Deno.test("vision: refuses a prompt whose image tokens do not match the images in number", async () => {
  await withModel({ architecture: "qwen3vl", type: "Q8_0", seed: 5 }, async (engine, files) => {
    const image = await prepared(picture("a", 64, 64), files);
    for (const prompt of [[1, 2], [padOf(engine), padOf(engine)]]) {
      const error = await assertRejects(() => answer(engine, { prompt, images: [image] }), EngineError);
      assertEquals(error.code, "invalid_request");
    }
  });
});

Deno.test("vision: an unsuitable tower is left out, or refused if the options name that tower", async () => {
  await withFiles({ architecture: "qwen3vl", type: "Q8_0", seed: 5 }, async ({ model, tower }) => {
    await Deno.writeFile(tower, synthesizeVision({ architecture: "qwen35", type: "Q8_0", seed: 5 }).tower);
    const warnings: string[] = [];
    const load = { model, backend: "cpu", warn: (message: string) => warnings.push(message) } as const;
    const { engine } = await loadEngine(load);
    assertEquals([engine.model.images, warnings.length], [false, 1]);
    await assertRejects(() => engine.readImage(new Uint8Array(8)), EngineError, "reads text only");
    await engine.close();
    await assertRejects(() => loadEngine({ ...load, mmproj: tower }), EngineError, "deep layers");
  });
});
