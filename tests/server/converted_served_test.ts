/** Checkpoints in their published format, converted by the command and served. */
import { assert, assertEquals } from "@std/assert";
import { join } from "@std/path";
import { runJson, withFolder } from "../../testing/commands.ts";
import { type LiveServer, withLiveServer } from "../../testing/live_server.ts";
import { writePublished } from "../convert/published/write.ts";
import { PUBLISHED } from "../convert/published/registry.ts";
import { fullTier } from "../../testing/tier.ts";

/** Runs a server with the converted model. */
async function servedFrom(name: string, ask: (server: LiveServer) => Promise<void>): Promise<void> {
  await withFolder(async (folder) => {
    await writePublished(folder, PUBLISHED[name]);
    const model = join(folder, "out.gguf");
    const { tensors } = await runJson("convert", folder, "--out", model, "--quantize", "q8_0");
    assert(tensors.length > 0);
    await withLiveServer(["--model", model, "--ctx", "256", "--threads", "1"], ask);
  });
}

for (const name of ["Gemma 4 with experts", "Ministral 3"]) {
  fullTier.test(`converted ${name}: answers a prompt the same way twice in Q8_0`, () =>
    servedFrom(name, async (server) => {
      const ask = () =>
        server.post("/v1/completions", { prompt: "a", max_tokens: 6, temperature: 0, ignore_eos: true });
      const first = await ask();
      assertEquals(first.usage?.completion_tokens, 6, JSON.stringify(first));
      assertEquals((await ask()).choices, first.choices);
    }));
}

for (const name of ["XLM-RoBERTa", "ModernBERT", "Nomic's", "EmbeddingGemma", "EuroBERT"]) {
  fullTier.test(`converted ${name}: returns equal unit vectors for equal texts in Q8_0`, () =>
    servedFrom(name, async (server) => {
      const { data } = await server.post("/v1/embeddings", { input: ["ab c", "abc", "ab c"] });
      const [first, other, again] = data.map(({ embedding }: { embedding: number[] }) => embedding);
      assertEquals([first.length, again], [256, first]);
      assert(Math.abs(Math.hypot(...first) - 1) < 1e-5);
      assert(Math.hypot(...first.map((x: number, i: number) => x - other[i])) > 1e-3);
    }));
}
