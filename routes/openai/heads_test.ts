import { assert, assertAlmostEquals, assertEquals, assertStringIncludes } from "@std/assert";
import { createApp } from "../app.ts";
import { execute } from "../execute.ts";
import { withTextModel } from "../../testing/text_model.ts";
import { FakeEngine } from "../testing.ts";
import { withServer } from "../testing_server.ts";

/* Endpoints over the heads and embeddings of models: /v1/score, /v1/classify and /v1/moderations. */

type Answer = Record<string, unknown> & {
  data: Record<string, unknown>[];
  results: Record<string, unknown>[];
};

const rank = (size: number, labels?: readonly string[]) =>
  new FakeEngine({ pooled: { kind: "rank", size, labels } });

async function post(
  engine: FakeEngine,
  path: string,
  body: unknown,
): Promise<{ status: number; body: Answer }> {
  const response = await createApp(engine).request(`http://localhost${path}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  return { status: response.status, body: await response.json() };
}

async function refusal(engine: FakeEngine, path: string, body: unknown): Promise<string> {
  const { status, body: { error } } = await post(engine, path, body);
  assertEquals(status, 400, path);
  return (error as { message: string }).message;
}

const scoresOf = ({ data }: Answer) => data.map(({ score }) => score as number);

Deno.test("score: a ranking head scores each pair like /v1/rerank", async () => {
  const documents = ["a fox", "a stone", "a hare"];
  const { body } = await post(rank(2), "/v1/score", { model: "demo", text_1: "snow", text_2: documents });
  const ranked = await post(rank(2), "/v1/rerank", { model: "demo", query: "snow", documents });
  const expected = documents.map((_, i) =>
    ranked.body.results.find(({ index }) => index === i)!.relevance_score
  );
  assertEquals(scoresOf(body), expected as number[]);
  assertEquals(body.data.map(({ index, object }) => [index, object]), [[0, "score"], [1, "score"], [
    2,
    "score",
  ]]);
  assertEquals([body.object, body.model, body.usage], ["list", "demo", ranked.body.usage]);
  assert(/^score-[0-9a-f]{32}$/.test(body.id as string));
});

Deno.test("score: models without a head return the cosine of embeddings, and compute each text once", async () => {
  const engine = new FakeEngine();
  const texts = ["a fox", "a hare", "a fox"];
  const { body } = await post(engine, "/score", { text_1: "a fox", text_2: texts });
  const embedded = await post(engine, "/v1/embeddings", { input: ["a fox", "a hare"] });
  const [first, second] = embedded.body.data.map(({ embedding }) => embedding as number[]);
  const cosine = first.reduce((sum, x, i) => sum + x * second[i], 0);
  [1, cosine, 1].forEach((score, i) => assertAlmostEquals(scoresOf(body)[i], score, 1e-6));
  assertEquals(engine.embeds[0].inputs.length, 2);
});

Deno.test("score: pairs one text with many, on either side, or two lists of the same length", async () => {
  const engine = rank(1);
  const scores = async (text_1: string | string[], text_2: string | string[]) =>
    scoresOf((await post(engine, "/v1/score", { text_1, text_2 })).body);
  const pairs = await scores(["a", "b"], ["c", "d"]);
  assertEquals(pairs, [...await scores("a", "c"), ...await scores(["b"], ["d"])]);
  assertEquals((await scores(["a", "b"], "c"))[0], pairs[0]);
  assertEquals((await scores(["a"], ["c", "d"]))[0], pairs[0]);
  const message = await refusal(engine, "/v1/score", { text_1: ["a", "b"], text_2: ["c", "d", "e"] });
  assertStringIncludes(message, 'as many texts as "text_1"');
  assertStringIncludes(message, '(got 3 texts, and 2 in "text_1")');
  for (const text_2 of [[], [1], {}, [["a"]]]) await refusal(engine, "/v1/score", { text_1: "a", text_2 });
});

Deno.test("classify: answers with the most probable label and all probabilities", async () => {
  const labels = ["joy", "anger", "fear"];
  const { body } = await post(rank(3, labels), "/v1/classify", { model: "demo", input: ["a", "b"] });
  assertEquals([body.object, body.data.length, body.model], ["list", 2, "demo"]);
  for (const [i, row] of body.data.entries()) {
    const probs = row.probs as number[];
    assertAlmostEquals(probs.reduce((sum, p) => sum + p, 0), 1, 1e-9);
    assertEquals(row.label, labels[probs.indexOf(Math.max(...probs))]);
    assertEquals([row.index, row.num_classes, row.labels], [i, 3, labels]);
  }
  const one = await post(rank(1), "/classify", { input: "a" });
  const [{ label, probs }] = one.body.data as [{ label: string; probs: number[] }];
  assertEquals([label, probs.length], ["LABEL_0", 1]);
  assert(probs[0] > 0 && probs[0] < 1);
});

Deno.test("moderations: a harmless label makes labels exclude each other, and is not a category", async () => {
  const labels = ["Non-Toxic", "insult", "threat"];
  const inputs = Array.from({ length: 12 }, (_, i) => `text ${i}`);
  const { body } = await post(rank(3, labels), "/v1/moderations", { model: "demo", input: inputs });
  const classified = await post(rank(3, labels), "/v1/classify", { input: inputs });
  assert(/^modr-/.test(body.id as string));
  for (const [i, result] of body.results.entries()) {
    const [, insult, threat] = classified.body.data[i].probs as number[];
    assertEquals(result, {
      flagged: insult >= 0.5 || threat >= 0.5,
      categories: { insult: insult >= 0.5, threat: threat >= 0.5 },
      category_scores: { insult, threat },
      category_applied_input_types: { insult: ["text"], threat: ["text"] },
    });
  }
  assertEquals(new Set(body.results.map(({ flagged }) => flagged)).size, 2);
});

Deno.test("moderations: judges each label alone without a harmless label, and refuses images", async () => {
  const engine = rank(2, ["insult", "threat"]);
  const input = [{ type: "text", text: "a" }, { type: "text", text: "b" }];
  const { body } = await post(engine, "/v1/moderations", { input });
  const sums = body.results.map(({ category_scores: scores }) => {
    const { insult, threat } = scores as Record<string, number>;
    return insult + threat;
  });
  assert(sums.every((sum) => Math.abs(sum - 1) > 1e-3), `${sums}`);
  const image = [{ type: "image_url", image_url: { url: "data:" } }];
  assertStringIncludes(
    await refusal(engine, "/v1/moderations", { input: image }),
    'must be "text" (got "image_url")',
  );
});

Deno.test("heads: a model without a head gets a 400 that names the missing head, also in a batch line", async () => {
  const plain = new FakeEngine();
  for (const path of ["/v1/classify", "/classify", "/v1/moderations"]) {
    const message = await refusal(plain, path, { input: "a" });
    assertStringIncludes(
      message,
      'The model "demo" cannot classify: it has no ranking head (pooling_type rank',
    );
    const line = await execute(plain, { url: path, body: { model: "demo", input: "a" } });
    assertEquals([line.status, (line.body.error as { code: string }).code], [400, "not_supported"]);
  }
});

Deno.test("heads: batch lines run with their priority and tenant", async () => {
  const engine = rank(2, ["ok", "spam"]);
  const options = { priority: "batch", cacheSalt: "a" } as const;
  const bodies = {
    "/v1/score": { text_1: "a", text_2: "b" },
    "/v1/classify": { input: "a" },
    "/v1/moderations": { input: "a" },
  };
  for (const [url, body] of Object.entries(bodies)) {
    assertEquals(
      (await execute(engine, { url, body: { model: "demo", ...body }, ...options })).status,
      200,
      url,
    );
  }
  assertEquals(
    engine.embeds.map(({ priority, cacheSalt }) => [priority, cacheSalt]),
    Array(3).fill(["batch", "a"]),
  );
});

Deno.test("classify: returns the label names in the file", async () => {
  await withTextModel({ pooling: 4, labels: 3 }, {}, async (engine) => {
    const { status, body } = await execute(engine, {
      url: "/v1/classify",
      body: { input: "a fox in the snow" },
    });
    const [{ labels, probs }] = body.data as { labels: string[]; probs: number[] }[];
    assertEquals([status, labels, probs.length], [200, ["label 0", "label 1", "label 2"], 3]);
  });
});

Deno.test("moderations: OpenAI's client reads the answer", async () => {
  const labels = ["safe", "insult"];
  await withServer({ pooled: { kind: "rank", size: 2, labels } }, async ({ client }) => {
    const { id, model, results } = await client.moderations.create({ model: "demo", input: ["a", "b"] });
    assertEquals([id.startsWith("modr-"), model, results.length], [true, "demo", 2]);
    const [{ flagged, categories }] = results;
    assertEquals(Object.entries(categories), [["insult", flagged]]);
  });
});
