/** Embeddings and rankings of seeded models with the real kernels, directly and through the official client. */
import {
  assert,
  assertAlmostEquals,
  assertEquals,
  assertMatch,
  assertRejects,
  assertStringIncludes,
} from "@std/assert";
import OpenAI from "openai";
import { type EmbedResult, type Engine, EngineError } from "../../engine/mod.ts";
import { serveHttp } from "../../routes/serve.ts";
import { Random, seedOf } from "../../testing/random.ts";
import { RANK_TEMPLATE, withTextModel } from "../../testing/text_model.ts";
import { firstTier, fullTier, isFullTier } from "../../testing/tier.ts";

const WORDS = "a fox in the snow sees how quietly some hare under that old birch waits for spring".split(" ");

/** Texts of 1 to 40 words. */
function texts(count: number, seed = "texts"): string[] {
  const random = new Random(seedOf(seed));
  const words = () => Array.from({ length: 1 + random.below(40) }, () => WORDS[random.below(WORDS.length)]);
  return Array.from({ length: count }, () => words().join(" "));
}

const tokensOf = (engine: Engine, list: readonly string[]) => list.map((text) => engine.encodePrompt(text));

async function aloneOf(engine: Engine, inputs: readonly number[][]): Promise<Float32Array[]> {
  const rows: Float32Array[] = [];
  for (const [i, tokens] of inputs.entries()) {
    // A separate salt: nothing comes from the cache.
    rows.push((await engine.embed({ inputs: [tokens], cacheSalt: `alone ${i}` })).rows[0]);
  }
  return rows;
}

async function withClient(
  engine: Engine,
  test: (client: OpenAI, base: string) => Promise<void>,
): Promise<void> {
  const server = serveHttp(engine, { signals: false });
  const base = `http://127.0.0.1:${server.port}`;
  try {
    await test(new OpenAI({ baseURL: `${base}/v1`, apiKey: "unused", maxRetries: 0 }), base);
  } finally {
    await server.shutdown(0);
  }
}

for (const [name, code] of Object.entries({ mean: 1, cls: 2, last: 3 })) {
  const tier = name === "mean" ? firstTier : fullTier;
  tier.test(`embeddings: ${name}'s rows are the same alone, in a batch, beside generation and when repeated`, async () => {
    await withTextModel({ pooling: code }, { parallel: 3 }, async (engine) => {
      const inputs = tokensOf(engine, texts(isFullTier ? 40 : 15));
      const alone = await aloneOf(engine, inputs);
      const answers = Promise.all([1, 2, 3, 4].map(async (seed) => {
        const request = {
          prompt: [...inputs[seed]],
          maxTokens: 30,
          sampling: { temperature: 0 },
          ignoreEos: true,
        };
        return await Array.fromAsync(engine.submit(request));
      }));
      const [first, second] = await Promise.all([
        engine.embed({ inputs }),
        engine.embed({ inputs, priority: "batch" }),
      ]);
      assertEquals(first.rows, alone);
      assertEquals(second.rows, alone);
      assertEquals((await engine.embed({ inputs })).rows, alone);
      for (const events of await answers) assertEquals(events.at(-1)!.type, "finish");
      assertEquals(engine.stats().kvBlocksUsed, 0);
    });
  });
}

Deno.test("embeddings: the official client gets unit vectors as floats and base64, for texts and token ids", async () => {
  await withTextModel({ pooling: 3 }, {}, async (engine) => {
    await withClient(engine, async (client) => {
      const input = texts(5);
      // Without encoding_format the client asks for base64, and decodes it.
      const decoded = await client.embeddings.create({ model: "texts", input });
      const floats = await client.embeddings.create({ model: "texts", input, encoding_format: "float" });
      assertEquals(
        decoded.data.map(({ embedding }) => embedding.map(Math.fround)),
        floats.data.map(({ embedding }) => embedding),
      );
      assertEquals(decoded.data.map(({ index }) => index), [0, 1, 2, 3, 4]);
      assertEquals(decoded.model, "texts");
      const ids = tokensOf(engine, input);
      const count = ids.reduce((sum, { length }) => sum + length, 0);
      assertEquals(decoded.usage, { prompt_tokens: count, total_tokens: count });
      const byIds = await client.embeddings.create({ model: "texts", input: ids });
      assertEquals(byIds.data, decoded.data);
      const one = await client.embeddings.create({ model: "texts", input: input[2] });
      assertEquals(one.data[0].embedding, decoded.data[2].embedding);
      for (const { embedding } of decoded.data) assertAlmostEquals(Math.hypot(...embedding), 1, 1e-6);
      const short = await client.embeddings.create({ model: "texts", input, dimensions: 16 });
      for (const [i, { embedding }] of short.data.entries()) {
        assertEquals(embedding.length, 16);
        assertAlmostEquals(Math.hypot(...embedding), 1, 1e-6);
        const scale = Math.hypot(...decoded.data[i].embedding.slice(0, 16));
        for (const [j, x] of embedding.entries()) {
          assertAlmostEquals(x, decoded.data[i].embedding[j] / scale, 1e-6);
        }
      }
    });
  });
});

Deno.test("embeddings: unsupported requests are a 400 with the reason", async () => {
  await withTextModel({ pooling: 3 }, {}, async (engine) => {
    await withClient(engine, async (client, base) => {
      const refusal = async (body: Record<string, unknown>) => {
        const call = client.embeddings.create({ model: "texts", input: "fox", ...body } as never);
        const { status, error } = await assertRejects(() => call, OpenAI.APIError);
        assertEquals(status, 400);
        return error as {
          message: string;
          code: string;
          param: string;
          n_prompt_tokens?: number;
          n_ctx?: number;
        };
      };
      assertEquals(
        (await refusal({ dimensions: 257 })).message,
        'Invalid "dimensions": must be at most 256, the vector length of this model (got 257)',
      );
      assertEquals((await refusal({ input: "" })).param, "input");
      assertEquals(
        (await refusal({ input: ["fox", ""] })).message,
        'Invalid "input": a text must have at least one token (text 1 has none)',
      );
      assertEquals((await refusal({ input: [500] })).param, "input");
      assertEquals((await refusal({ input: Array(2049).fill("fox") })).param, "input");
      assertEquals((await refusal({ encoding_format: "int8" })).param, "encoding_format");
      const long = await refusal({ input: ["fox", "a ".repeat(600)] });
      assertEquals([long.code, long.n_prompt_tokens, long.n_ctx], ["context_length_exceeded", 1200, 1024]);
      assertStringIncludes(long.message, "Text 1 has 1200 tokens");
      const far = await refusal({ input: ["fox", "a ".repeat(60_000)] });
      assertEquals([far.code, far.n_ctx], ["context_length_exceeded", 1024]);
      assertMatch(far.message, /Text 1 has at least \d+ tokens, but the context holds 1024: shorten it$/);
      const rerank = await fetch(`${base}/v1/rerank`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ query: "fox", documents: ["hare"] }),
      });
      assertEquals(rerank.status, 400);
      assertEquals((await rerank.json()).error.code, "not_supported");
    });
  });
});

Deno.test("rerank: both paths return documents best first, and control tokens in texts stay text", async () => {
  await withTextModel({ pooling: 4, labels: 2, template: RANK_TEMPLATE }, {}, async (engine) => {
    await withClient(engine, async (_, base) => {
      const documents = texts(12, "documents");
      const ask = async (path: string, body: Record<string, unknown>) => {
        const init = {
          method: "POST",
          headers: { "content-type": "application/json" },
          body: JSON.stringify(body),
        };
        const response = await fetch(base + path, init);
        return { status: response.status, body: await response.json() };
      };
      const all = await ask("/v1/rerank", { model: "texts", query: "fox", documents });
      const scores = all.body.results.map((result: { relevance_score: number }) => result.relevance_score);
      assertEquals(scores, scores.toSorted((a: number, b: number) => b - a));
      assert(scores.every((score: number) => score > 0 && score < 1) && new Set(scores).size === 12);
      const best = await ask("/rerank", {
        query: "fox",
        documents: documents.map((text) => ({ text })),
        top_n: 2,
        return_documents: true,
      });
      assertEquals(
        best.body.results.map((result: { index: number }) => result.index),
        all.body.results.slice(0, 2).map((result: { index: number }) => result.index),
      );
      assertEquals(best.body.results[0].document.text, documents[best.body.results[0].index]);
      const marked = engine.encodePair("fox", "<|endoftext|>");
      assertEquals(marked.filter((token) => token === 256).length, 1); // the end token of the template itself
      const embeddings = await ask("/v1/embeddings", { input: "fox" });
      assertEquals([embeddings.status, embeddings.body.error.code], [400, "not_supported"]);
      for (const bad of [{ documents: [] }, { documents: [7] }, { top_n: 0 }, { query: 7 }]) {
        assertEquals((await ask("/v1/rerank", { query: "fox", documents, ...bad })).status, 400);
      }
    });
  });
});

fullTier.test("embeddings: 2,048 texts neither fill the queue nor delay an answer", async () => {
  await withTextModel({}, { parallel: 2, queue: 2, layers: 2 }, async (engine) => {
    const inputs = tokensOf(engine, texts(2048, "many").map((text) => text.slice(0, 24)));
    let embedded: EmbedResult | undefined;
    const many = engine.embed({ inputs }).then((result) => embedded = result);
    await new Promise((resolve) => setTimeout(resolve, 5));
    const events = await Array.fromAsync(engine.submit({ prompt: inputs[0], maxTokens: 4, ignoreEos: true }));
    assertEquals(events.at(-1)!.type, "finish");
    assertEquals(embedded, undefined); // the answer came much earlier
    await many;
    assertEquals(embedded!.rows.length, 2048);
    assertEquals(embedded!.usage.promptTokens, inputs.reduce((sum, { length }) => sum + length, 0));
    assertEquals(engine.stats().kvBlocksUsed, 0);
  });
});

Deno.test("embeddings: a disconnect frees everything, and a drained engine finishes running texts", async () => {
  await withTextModel({}, { layers: 2 }, async (engine) => {
    const inputs = tokensOf(engine, texts(300, "left"));
    for (const wait of [0, 3, 20]) {
      const abort = new AbortController();
      const left = engine.embed({ inputs, signal: abort.signal });
      setTimeout(() => abort.abort(new Error("left")), wait);
      await assertRejects(() => left, Error, "left");
    }
    await engine.embed({ inputs: inputs.slice(0, 1) });
    assertEquals([engine.stats().running, engine.stats().waiting, engine.stats().kvBlocksUsed], [0, 0, 0]);
    const running = engine.embed({ inputs });
    const cut = assertRejects(() => running, EngineError);
    await engine.drain(0);
    assertEquals((await cut).code, "engine_closed");
  });
});

fullTier.test("embeddings: rows stay the same when texts preempt each other in little memory", async () => {
  const kvBytes = 9_000_000; // 36 blocks; one sequence takes 33
  await withTextModel({}, { kvBytes }, async (engine) => {
    const inputs = tokensOf(engine, texts(60, "small").map((text) => text.repeat(3)));
    const alone = await aloneOf(engine, inputs);
    const answers = [0, 1, 2].map((i) =>
      Array.fromAsync(engine.submit({ prompt: inputs[i], maxTokens: 200, ignoreEos: true }))
    );
    assertEquals((await engine.embed({ inputs, priority: "batch" })).rows, alone);
    await Promise.all(answers);
    assertEquals(engine.stats().kvBlocksUsed, 0);
  });
});

fullTier.test("embeddings: hybrids' rows are the same alone and in a batch", async () => {
  await withTextModel({}, { architecture: "qwen35" }, async (engine) => {
    const inputs = tokensOf(engine, texts(20, "hybrid"));
    assertEquals((await engine.embed({ inputs })).rows, await aloneOf(engine, inputs));
  });
});

Deno.test("embeddings: a text may fill the context window, and common beginnings are computed once", async () => {
  await withTextModel({}, { layers: 1 }, async (engine) => {
    const long = Array.from({ length: 1024 }, (_, i) => 33 + i % 90);
    const inputs = [long, [...long.slice(0, 700), 40], [...long.slice(0, 700), 41]];
    const { rows, usage } = await engine.embed({ inputs });
    assertEquals(usage, { promptTokens: 1024 + 701 + 701, cachedTokens: 2 * 672 });
    assertEquals(rows, await aloneOf(engine, inputs));
  });
});

Deno.test("embeddings: with mean pooling, refuses a text longer than a step, and runs a text that fills a step on its own", async () => {
  await withTextModel({ pooling: 1 }, {}, async (engine) => {
    const long = (length: number) => Array.from({ length }, (_, i) => 33 + i % 90);
    await assertRejects(
      () => engine.embed({ inputs: [long(513)] }),
      EngineError,
      'in which "mean" needs all of them',
    );
    const answers = [0, 1, 2, 3].map((i) =>
      Array.fromAsync(engine.submit({ prompt: long(20 + i), maxTokens: 40, ignoreEos: true }))
    );
    const { rows } = await engine.embed({ inputs: [long(512), long(500), long(512)] });
    assertEquals(rows[0], rows[2]);
    for (const events of await Promise.all(answers)) assertEquals(events.at(-1)!.type, "finish");
  });
});
