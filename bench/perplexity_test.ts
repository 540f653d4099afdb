import { assert, assertAlmostEquals, assertEquals, assertRejects, assertThrows } from "@std/assert";
import { loadEngine } from "../engine/load/load.ts";
import { withTextModel } from "../testing/text_model.ts";
import { chunksOf } from "./chunks.ts";
import { measurePerplexity } from "./perplexity.ts";

const MODEL = new URL("../models/demo.gguf", import.meta.url).pathname;
const TEXT = "Once upon a time, a small crow lived at the edge of the forest. She was kind. ".repeat(12);
const OPTIONS = { model: MODEL, text: TEXT, chunkTokens: 64, backend: "cpu", threads: 2 } as const;

Deno.test("perplexity: BOS replaces the first token of each chunk if the model wants it", () => {
  const tokenizer = (special: number[]) => ({
    bosToken: 1,
    encode: (text: string) => [...special, ...Array.from(text, Number)],
  });
  const rows = (special: number[], chunks?: number) =>
    chunksOf(tokenizer(special), { text: "23456789\n", chunkTokens: 4, chunks }).map((chunk) => [...chunk]);
  assertEquals(rows([]), [[2, 3, 4, 5], [6, 7, 8, 9]]);
  assertEquals(rows([1]), [[1, 2, 3, 4], [1, 6, 7, 8]]);
  assertEquals(rows([], 1), [[2, 3, 4, 5]]);
  assertThrows(
    () => chunksOf(tokenizer([]), { text: "23", chunkTokens: 4 }),
    Error,
    "The text has 2 tokens, fewer than a chunk of 4 (--ctx)",
  );
});

Deno.test("perplexity: scores the second half of each chunk as the engine scores prompts", async () => {
  const report = await measurePerplexity({ ...OPTIONS, chunks: 2 });
  assertEquals([report.chunks, report.tokens], [2, 62]);
  const { engine } = await loadEngine({ model: MODEL, backend: "cpu", threads: 2, contextLength: 64 });
  const nlls: number[] = [];
  for (const chunk of chunksOf(engine.tokenizer, { text: TEXT, chunkTokens: 64, chunks: 2 })) {
    const request = { prompt: [...chunk], maxTokens: 0, promptLogprobs: true, logprobs: 0 };
    for await (const event of engine.submit(request)) {
      if (event.type === "prompt") nlls.push(...event.logprobs.slice(33).map(({ logprob }) => -logprob!));
    }
  }
  await engine.close();
  assertEquals(nlls.length, report.tokens);
  assertEquals(report.nll.value, nlls.reduce((sum, nll) => sum + nll, 0) / nlls.length);
});

Deno.test("perplexity: a model does not diverge from itself; its KV cache in q8_0 diverges a little", async () => {
  const against = { ...OPTIONS, against: MODEL, chunks: 2 };
  const same = (await measurePerplexity(against)).against!;
  assertAlmostEquals(same.divergence.value, 0, 1e-12);
  assertEquals(same.sameTop.value, 1);
  const { perplexity, against: other } = await measurePerplexity({ ...against, kvType: "q8_0" });
  assert(other!.divergence.value > 1e-7 && other!.divergence.value < 0.01, `${other!.divergence.value}`);
  assertAlmostEquals(Math.log(perplexity.value / other!.perplexity.value), other!.logRatio.value, 1e-9);
});

Deno.test("perplexity: after an interruption the report covers the complete chunks", async () => {
  const abort = new AbortController();
  const { chunks, wanted, perplexity } = await measurePerplexity({
    ...OPTIONS,
    signal: abort.signal,
    onChunk: () => abort.abort(),
  });
  assertEquals(chunks, 1);
  assert(wanted > 1);
  assertEquals(perplexity, (await measurePerplexity({ ...OPTIONS, chunks: 1 })).perplexity);
});

Deno.test("perplexity: refuses another tokenizer and chunks beyond the model's context", async () => {
  await assertRejects(
    () => measurePerplexity({ ...OPTIONS, chunkTokens: 1024 }),
    Error,
    "Cannot compute chunks of 1024 tokens (--ctx): the model's context holds 512",
  );
  await withTextModel({}, {}, async (_engine, against) => {
    await assertRejects(
      () => measurePerplexity({ ...OPTIONS, against }),
      Error,
      "Cannot compare demo with texts: their tokenizers differ",
    );
  });
});
