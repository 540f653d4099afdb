/** Images in a running server: batches, stored responses, and requests that are given up. */
import { assert, assertEquals } from "@std/assert";
import OpenAI from "openai";
import { withLiveServer } from "../../../testing/live_server.ts";
import { fullTier } from "../../../testing/tier.ts";
import { withFiles } from "./files.ts";
import { png } from "./pictures.ts";

const LONGEST_MS = 60_000;

/** Returns the lines of an ended batch's output or error file. */
async function lines(client: OpenAI, file: string | null | undefined) {
  const text = file ? await (await client.files.content(file)).text() : "";
  return text.trimEnd().split("\n").filter((line) => line !== "").map((line) => JSON.parse(line));
}

fullTier.test("images: a server answers batches and continues stored responses with images", async () => {
  await withFiles({ tower: "qwen3vl", type: "Q8_0", seed: 6 }, async ({ model }) => {
    const data = await Deno.makeTempDir({ prefix: "images-" });
    try {
      await withLiveServer(["--model", model, "--ctx", "512"], async ({ client }) => {
        const image = `data:image/png;base64,${(await png(96, 64, 1)).toBase64()}`;
        const bodyOf = (url: string) => ({
          model: "model",
          messages: [{
            role: "user" as const,
            content: [{ type: "image_url" as const, image_url: { url } }, {
              type: "text" as const,
              text: "What?",
            }],
          }],
          max_tokens: 6,
          temperature: 0,
        });
        const alone = await client.chat.completions.create(bodyOf(image));
        const text = [image, "data:image/png;base64,AAAA", "file:/etc/passwd", image].map((url, i) =>
          JSON.stringify({
            custom_id: `${i}`,
            method: "POST",
            url: "/v1/chat/completions",
            body: bodyOf(url),
          })
        ).join("\n");
        const file = await client.files.create({ file: new File([text], "in.jsonl"), purpose: "batch" });
        const asked = {
          input_file_id: file.id,
          endpoint: "/v1/chat/completions",
          completion_window: "24h",
        } as const;
        let batch = await client.batches.create(asked);
        const until = Date.now() + LONGEST_MS;
        while (batch.status !== "completed" && Date.now() < until) {
          await new Promise((resolve) => setTimeout(resolve, 100));
          batch = await client.batches.retrieve(batch.id);
        }
        const answers = await lines(client, batch.output_file_id);
        assertEquals(
          answers.map(({ custom_id, response }) => [custom_id, response.body.choices[0].message.content]),
          [["0", alone.choices[0].message.content], ["3", alone.choices[0].message.content]],
        );
        const errors = await lines(client, batch.error_file_id);
        assertEquals(
          errors.map((
            { custom_id, response },
          ) => [custom_id, response.status_code, response.body.error.code]),
          [["1", 400, "invalid_image"], ["2", 400, "unsupported_image_url"]],
        );

        const settings = { model: "model", temperature: 0, max_output_tokens: 4 };
        const content = [{ type: "input_image" as const, image_url: image, detail: "auto" as const }];
        const first = await client.responses.create({ ...settings, input: [{ role: "user", content }] });
        const next = await client.responses.create({
          ...settings,
          input: "And?",
          previous_response_id: first.id,
        });
        assert(next.usage!.input_tokens > first.usage!.input_tokens + 4, "the image is in the history");
        const items = await client.responses.inputItems.list(next.id, { order: "asc" });
        assertEquals(JSON.stringify(items.data[0]).includes(image), true);
      }, data);
    } finally {
      await Deno.remove(data, { recursive: true });
    }
  });
});
