/** A model in several files: served, in a batch, and with a prompt cache. */
import { assertEquals } from "@std/assert";
import { batch, inFolder, readLines } from "../batch/commands.ts";
import { withLiveServer } from "../../testing/live_server.ts";
import { splitGguf, writeShards } from "../../testing/split_gguf.ts";

const WHOLE = new URL("../../models/demo.gguf", import.meta.url).pathname;
const PROMPT = Array.from({ length: 100 }, (_, i) => 60 + i * 7 % 150);
const ASKED = { prompt: PROMPT, max_tokens: 8, temperature: 0, ignore_eos: true };
const LINE = { custom_id: "a", method: "POST", url: "/v1/completions", body: { model: "demo", ...ASKED } };

interface Completion {
  readonly model: string;
  readonly choices: readonly { readonly text: string }[];
  readonly usage: { readonly prompt_tokens_details?: { readonly cached_tokens: number } };
}

Deno.test("shards: a batch and restarted servers use prompts that the single file stored", async () => {
  await inFolder([JSON.stringify(LINE)], async (path) => {
    const shards = await writeShards(path("."), "demo", splitGguf(await Deno.readFile(WHOLE), 3));
    const size = ["--ctx", "256", "--threads", "1"];
    const ofDisk = ["--cache-disk", path("prompts"), "--cache-disk-eager"];
    const served = async (model: string, more: string[] = []): Promise<Completion> => {
      let answer: Completion | undefined;
      await withLiveServer(["--model", model, ...size, ...more], async (server) => {
        answer = await server.post("/v1/completions", ASKED);
      }, path("."));
      return answer!;
    };
    const whole = await served(WHOLE, ofDisk);

    const run = [
      "run",
      path("in.jsonl"),
      "--out",
      path("out.jsonl"),
      "--model",
      shards[2],
      ...size,
      ...ofDisk,
    ];
    const { code, stderr } = await batch(run).output();
    assertEquals(code, 0, new TextDecoder().decode(stderr));
    const [{ response: { body } }] = await readLines<{ response: { body: Completion } }>(path("out.jsonl"));
    const again = await served(shards[1], ofDisk);
    for (const { model, choices, usage } of [body, again]) {
      assertEquals([model, choices], ["demo", whole.choices]);
      assertEquals(usage.prompt_tokens_details?.cached_tokens, 96);
    }
  });
});
