/** Images in the library's `chat` and `generate`, by a seeded model. */
import { assert, assertEquals, assertRejects } from "@std/assert";
import { runBatch } from "../../../lib/batch/batch.ts";
import { CompyError, type ErrorCode } from "../../../lib/errors.ts";
import { loadModel, type Model } from "../../../lib/model.ts";
import { withFiles } from "./files.ts";
import { png } from "./pictures.ts";

const OPTIONS = { maxTokens: 4, temperature: 0 };

async function withModel(tower: boolean, test: (model: Model) => Promise<void>): Promise<void> {
  await withFiles(
    { tower: "qwen3vl", type: "Q8_0", seed: 6 },
    async ({ model: file, tower: beside }) => {
      if (!tower) await Deno.remove(beside);
      await using model = await loadModel(file, { backend: "cpu", threads: 2, ctx: 512, parallel: 1 });
      await test(model);
    },
  );
}

async function refusal(promise: Promise<unknown>): Promise<[ErrorCode, string]> {
  const { code, message } = await assertRejects(() => promise, CompyError);
  return [code, message];
}

Deno.test("library: chat and generate answer about images, from bytes and from a Blob", async () => {
  await withModel(true, async (model) => {
    assert(model.info.images);
    const bytes = await png(320, 256, 1);
    const before = bytes.slice();
    const content = "What is this?";
    const plain = await model.chat(content, OPTIONS).answer();
    const one = await model.chat([{ role: "user", content, images: [bytes] }], OPTIONS).answer();
    assertEquals(one.usage.promptTokens - plain.usage.promptTokens, 320 / 32 * 256 / 32 + 2);
    assertEquals(bytes, before, "the caller keeps the bytes");
    const blob = await model.chat([{ role: "user", content, images: [new Blob([bytes])] }], OPTIONS).answer();
    assertEquals(blob.text, one.text);
    const prompt = `<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>${content}<|im_end|>\n` +
      "<|im_start|>assistant\n";
    const generated = await model.generate(prompt, { ...OPTIONS, images: [bytes] }).answer();
    assertEquals([generated.text, generated.usage.promptTokens], [one.text, one.usage.promptTokens]);
    const none = await model.chat(
      [{ role: "user", content: "", images: [bytes, new Blob([bytes])] }],
      OPTIONS,
    ).answer();
    assertEquals(none.finishReason, "length");
  });
});

Deno.test("library: batches answer about images of a folder, in lines and in a table's column", async () => {
  await withModel(true, async (model) => {
    const folder = await Deno.makeTempDir({ prefix: "library-images-" });
    try {
      const bytes = await png(64, 64, 1);
      await Deno.writeFile(`${folder}/a.png`, bytes);
      const content = [{ type: "image_url", image_url: { url: "file:a.png" } }, { type: "text", text: "?" }];
      const body = { messages: [{ role: "user", content }], max_tokens: 4, temperature: 0 };
      const line = { custom_id: "a", method: "POST", url: "/v1/chat/completions", body };
      const [input, output] = [`${folder}/in.jsonl`, `${folder}/out.jsonl`];
      await Deno.writeTextFile(input, JSON.stringify(line));
      assertEquals((await runBatch(model, { input, output, images: folder })).counts.completed, 1);
      const answered = JSON.parse(await Deno.readTextFile(output)).response.body.choices[0].message.content;
      const { text } = await model.chat([{ role: "user", content: "?", images: [bytes] }], OPTIONS).answer();
      assertEquals(answered, text);
      await Deno.writeTextFile(`${folder}/in.csv`, "file\na.png\n");
      const table = { prompt: "?", image: "file", maxTokens: 4, outputFormat: "jsonl" as const };
      await runBatch(model, {
        input: `${folder}/in.csv`,
        output: `${folder}/rows.jsonl`,
        images: folder,
        table,
      });
      assertEquals(JSON.parse(await Deno.readTextFile(`${folder}/rows.jsonl`)).answer, text);
      const other = runBatch(model, { input, output, images: `${folder}/in.csv` });
      assertEquals((await refusal(other))[0], "invalid_request");
    } finally {
      await Deno.remove(folder, { recursive: true });
    }
  });
});

Deno.test("library: refuses files that are not images, prompts without image tokens, and models without a tower", async () => {
  await withModel(true, async (model) => {
    const bytes = await png(64, 64, 1);
    const asked = (image: unknown) =>
      model.chat([{ role: "user", content: "?", images: [image as Blob] }], OPTIONS).answer();
    assertEquals(await refusal(asked("hen.png")), [
      "invalid_request",
      'Invalid images: must be an array of Uint8Array or Blob (got "hen.png")',
    ]);
    assertEquals(await refusal(asked(new Uint8Array(9))), [
      "invalid_request",
      "Cannot read the image: it must be a PNG, JPEG, WebP or GIF image",
    ]);
    assertEquals(await refusal(model.generate("a", { ...OPTIONS, images: [bytes] }).answer()), [
      "invalid_request",
      "The prompt has places for 0 images, but the request has 1",
    ]);
    const option = model.chat("a", { images: [bytes] } as object).answer();
    assertEquals((await refusal(option))[0], "invalid_request");
    const signal = AbortSignal.abort(new Error("left"));
    const left = model.chat([{ role: "user", content: "?", images: [bytes] }], { signal }).answer();
    await assertRejects(() => left, Error, "left");
  });
  await withModel(false, async (model) => {
    assert(!model.info.images);
    const asked = model.chat([{ role: "user", content: "?", images: [await png(64, 64, 1)] }], OPTIONS)
      .answer();
    assertEquals(await refusal(asked), ["not_supported", "This model takes no images: it reads text only"]);
  });
});
