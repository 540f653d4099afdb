import { assert, assertEquals, assertRejects } from "@std/assert";
import { execute } from "../routes/execute.ts";
import { RANK_TEMPLATE, withTextModel } from "../testing/text_model.ts";
import { chat } from "./chat.ts";
import { embed, rerank } from "./embed.ts";
import { CompyError } from "./errors.ts";

const TEXTS = ["a fox in the snow", "a hare", "\ud800 a stone"];

const codeOf = async (promise: () => Promise<unknown>, words: string) =>
  (await assertRejects(promise, CompyError, words)).code;

Deno.test("embed: returns the server's vectors bit for bit, for texts and token ids", async () => {
  await withTextModel({ pooling: 1 }, { architecture: "bert", contextLength: undefined }, async (engine) => {
    const { vectors, usage } = await embed(engine, TEXTS, { dimensions: 16 });
    const body = { input: TEXTS, dimensions: 16 };
    const served = await execute(engine, { url: "/v1/embeddings", body });
    const { data, usage: counted } = served.body as {
      data: { embedding: number[] }[];
      usage: { prompt_tokens: number };
    };
    assertEquals(vectors.map((vector) => Array.from(vector)), data.map(({ embedding }) => embedding));
    assertEquals(usage.promptTokens, counted.prompt_tokens);
    const ids = TEXTS.map((text) => engine.encodePrompt(text.toWellFormed()));
    assertEquals((await embed(engine, ids, { dimensions: 16 })).vectors, vectors);
    assertEquals((await embed(engine, [], {})).vectors, []);
    assertEquals(
      await codeOf(() => chat(engine, "Hi", {}).answer(), "generates no text: use embed()"),
      "not_supported",
    );
    assertEquals(await codeOf(() => embed(engine, [1 as never], {}), "Invalid texts[0]"), "invalid_request");
    assertEquals(await codeOf(() => embed(engine, [[]], {}), "Invalid texts[0]"), "invalid_request");
    assertEquals(
      await codeOf(() => embed(engine, ["x".repeat(9000)], {}), "shorten it"),
      "context_length_exceeded",
    );
  });
});

Deno.test("rerank: ranks documents like the server, best first", async () => {
  await withTextModel({ pooling: 4, labels: 1, template: RANK_TEMPLATE }, {}, async (engine) => {
    const { results, usage } = await rerank(engine, "snow", TEXTS, {});
    const served = await execute(engine, { url: "/v1/rerank", body: { query: "snow", documents: TEXTS } });
    const body = served.body as {
      results: { index: number; relevance_score: number }[];
      usage: { prompt_tokens: number };
    };
    assertEquals(
      results.map(({ index, score }) => [index, score]),
      body.results.map((result) => [result.index, result.relevance_score]),
    );
    assertEquals(usage.promptTokens, body.usage.prompt_tokens);
    assertEquals((await rerank(engine, "snow", TEXTS, { top: 1 })).results, results.slice(0, 1));
    assert(results.every(({ score }) => score >= 0 && score <= 1));
    assertEquals(await codeOf(() => embed(engine, TEXTS, {}), "use rerank()"), "not_supported");
    assertEquals(
      await codeOf(() => rerank(engine, "a", [1 as never], {}), "Invalid documents[0]"),
      "invalid_request",
    );
  });
});
