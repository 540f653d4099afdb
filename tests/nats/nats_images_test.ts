import { assert, assertEquals } from "@std/assert";
import { openImageFolder, withImages } from "../../lib/batch/image_folder.ts";
import { lineEngine } from "../../lib/batch/lines.ts";
import type { LineEngine } from "../../jobs/setup.ts";
import { withModel } from "../models/vision/answering.ts";
import { png } from "../models/vision/pictures.ts";
import { fullTier } from "../../testing/tier.ts";
import { Bench, MODEL, never } from "./nats_bench.ts";
import { natsServerPath } from "./nats_server.ts";

fullTier.test({
  name: "workers: answer lines with images as one process does, also from the coordinator's image folder",
  ignore: natsServerPath() === undefined,
  fn: async () => {
    await withModel({ tower: "qwen3vl", type: "Q8_0", seed: 6 }, async (engine) => {
      await using bench = await Bench.start();
      const folder = await Deno.makeTempDir({ prefix: "nats-images-" });
      try {
        const large = await png(1500, 900, 1, { kind: 0 });
        assert(large.length > 1_000_000, "several messages carry the file");
        await Deno.writeFile(`${folder}/large.png`, large);
        await Deno.writeTextFile(`${folder}/a.png`, "no image");
        const urls = [
          "file:large.png",
          "file:large.png",
          "file:a.png",
          "file:missing.png",
          "file:../a.png",
          `data:image/png;base64,${(await png(64, 64, 2)).toBase64()}`,
        ];
        const local: LineEngine = { ...lineEngine({ engine, identity: MODEL }), close: async () => {} };
        const coordinator = await bench.coordinator();
        const remote: LineEngine = { ...local, execute: coordinator.execute };
        await bench.worker("one", local.execute);
        await bench.worker("two", local.execute);
        const images = await openImageFolder(folder);
        const ask = async ({ execute }: LineEngine, url: string) => {
          const content = [{ type: "image_url", image_url: { url } }, {
            type: "text",
            text: "What is this?",
          }];
          const body = { messages: [{ role: "user", content }], max_tokens: 4, temperature: 0 };
          const line = { url: "/v1/chat/completions", body, priority: "batch" as const, signal: never };
          const { status, body: { choices, error } } = await execute(line);
          return { status, choices, error };
        };
        const all = async (line: LineEngine) => await Promise.all(urls.map((url) => ask(line, url)));
        const expected = await all(withImages(local, images));
        assertEquals(expected.map(({ status }) => status), [200, 200, 400, 400, 400, 200]);
        assertEquals(await all(withImages(remote, images)), expected);
        assertEquals(await all(remote), await all(local));
      } finally {
        await Deno.remove(folder, { recursive: true });
      }
    }, 2048);
  },
});
