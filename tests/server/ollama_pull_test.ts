import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { Ollama, type ProgressResponse } from "ollama";
import { type HubOptions, Pulls } from "../../cli/serve/pulls.ts";
import { TestHub, type TestHubOptions } from "../../hub/testing_hub.ts";
import { sha256, testModel } from "../../hub/testing_models.ts";
import { openPool } from "../../lib/pool.ts";
import { digestOf, KeyRing, serveHttp, type ServeOptions } from "../../lib/serving.ts";

/* /api/pull through Ollama's unmodified client, against the hub that the tests of pull use. */

const MODEL = testModel(1, 600_000);
const OTHER = testModel(2, 300_000);
const REPO = "me/Tiny-GGUF";
const NAME = `hf.co/${REPO}:Q8_0`;
const PACE = { baseMs: 2, capMs: 20, attempts: 3, totalMs: 2000, stallMs: 400 };
const LOAD = { contextLength: 64, parallel: 1, threads: 1 };

interface World {
  readonly hub: TestHub;
  readonly client: Ollama;
  readonly base: string;
  readonly folder: string;
  /** Returns the names that the folder offers now. */
  names(): Promise<string[]>;
}

async function withPulls(
  test: (world: World) => Promise<void>,
  { hub: hubOptions, pulls: options, server: serverOptions }: {
    readonly hub?: Partial<TestHubOptions>;
    readonly pulls?: Partial<HubOptions>;
    readonly server?: ServeOptions;
  } = {},
): Promise<void> {
  const folder = await Deno.makeTempDir({ prefix: "pulls-" });
  const files = { "Tiny-Q8_0.gguf": MODEL, "Tiny-Q4_K_M.gguf": OTHER };
  await using hub = new TestHub({ repositories: { [REPO]: files }, ...hubOptions });
  const settings = { endpoint: hub.endpoint, pace: PACE, freeMemory: 1e9, ...options };
  const pulls = await Pulls.open(folder, settings, () => pool.rescan());
  const pool = await openPool({
    files: [],
    folder,
    aliases: () => [],
    alsoNamed: (id) => pulls.namesOf(id),
    load: LOAD,
    reloads: false,
    note: () => {},
    describe: () => {},
  });
  const errors: unknown[] = [];
  const onError = (error: unknown) => errors.push(error);
  const server = serveHttp(pool, { signals: false, onError, pulls, ...serverOptions });
  const base = `http://127.0.0.1:${server.port}`;
  const client = new Ollama({ host: base });
  const names = async () => (await client.list()).models.map(({ name }) => name);
  try {
    await test({ hub, client, base, folder, names });
    assertEquals(errors, []);
  } finally {
    await server.shutdown(0);
    await pulls.close();
    await pool.close();
    await Deno.remove(folder, { recursive: true });
  }
}

async function until(condition: () => boolean): Promise<void> {
  for (const end = performance.now() + 5000; !condition();) {
    if (performance.now() > end) throw new Error("It did not happen within five seconds");
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

Deno.test("Ollama pull: streams its progress, and the model answers under the pulled name", async () => {
  await withPulls(async ({ client, names }) => {
    assertEquals(await names(), []);
    const rows = await Array.fromAsync(await client.pull({ model: NAME, stream: true }));
    assertEquals(rows[0], { status: "pulling manifest" } as ProgressResponse);
    assertEquals(rows.at(-1), { status: "success" } as ProgressResponse);
    const digest = `sha256:${sha256(MODEL)}`;
    const loading = rows.filter((row) => row.digest !== undefined);
    for (const { status, digest: given, total } of loading) {
      assertEquals([status, given, total], [`pulling ${sha256(MODEL).slice(0, 12)}`, digest, MODEL.length]);
    }
    assertEquals(rows.at(-2), { status: "verifying sha256 digest" } as ProgressResponse);
    const amounts = loading.map(({ completed }) => completed);
    assert(amounts.length > 0);
    assertEquals(amounts, amounts.toSorted((a, b) => a - b));
    assertEquals(await names(), ["Tiny-Q8_0:latest", NAME]);
    for (const model of [NAME, "Tiny-Q8_0"]) {
      const { prompt_eval_count } = await client.generate({
        model,
        prompt: "the",
        raw: true,
        options: { num_predict: 2 },
      });
      assertEquals(prompt_eval_count, 1, model);
    }
    // A second request for the same model downloads nothing.
    assertEquals(await client.pull({ model: NAME }), { status: "success" } as ProgressResponse);
  });
});

Deno.test("Ollama pull: takes Q4_K_M of several models, as Ollama does", async () => {
  await withPulls(async ({ client, names }) => {
    await client.pull({ model: `huggingface.co/${REPO}:latest` });
    assertEquals(await names(), [
      "Tiny-Q4_K_M:latest",
      `hf.co/${REPO}:latest`,
      `huggingface.co/${REPO}:latest`,
    ]);
  });
});

Deno.test("Ollama pull: requests for one model share a download, and other models wait", async () => {
  await withPulls(async ({ hub, client, names }) => {
    hub.most = 100_000;
    const first = Array.fromAsync(await client.pull({ model: NAME, stream: true }));
    await until(() => hub.sent >= hub.most);
    const second = client.pull({ model: NAME });
    const third = client.pull({ model: `hf.co/${REPO}:Q4_K_M` });
    await new Promise((resolve) => setTimeout(resolve, 50));
    hub.most = Infinity;
    assertEquals((await first).at(-1)?.status, "success");
    assertEquals([(await second).status, (await third).status], ["success", "success"]);
    assertEquals(hub.sent, MODEL.length + OTHER.length);
    assertEquals((await names()).length, 4);
  });
});

Deno.test("Ollama pull: a client that disconnects stops the download, and the next one resumes it", async () => {
  await withPulls(async ({ hub, client, names }) => {
    hub.most = 200_000;
    const stream = await client.pull({ model: NAME, stream: true });
    const reading = Array.fromAsync(stream);
    await until(() => hub.sent >= hub.most);
    stream.abort();
    await assertRejects(() => reading);
    const requests = hub.requests.length;
    hub.most = Infinity;
    await new Promise((resolve) => setTimeout(resolve, 200));
    assertEquals(await names(), []);
    assertEquals(hub.requests.length, requests);
    const before = hub.sent;
    assertEquals((await client.pull({ model: NAME })).status, "success");
    assert(hub.sent - before <= MODEL.length, "kept bytes are not downloaded again");
  });
});

Deno.test("Ollama pull: failures are error rows in a stream, and statuses without one", async () => {
  const full = { pulls: { freeSpace: () => Promise.resolve(1e6) } };
  await withPulls(async ({ client, base, folder }) => {
    const stream = await client.pull({ model: NAME, stream: true });
    const { message } = await assertRejects(() => Array.fromAsync(stream), Error);
    assertStringIncludes(
      message,
      "Not enough space in the server's folder of models: 0.6 MB are still to come",
    );
    const ask = async (body: unknown) => {
      const init = {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(body),
      };
      const response = await fetch(`${base}/api/pull`, init);
      const text = await response.text();
      assert(!text.includes(folder) && !text.includes("--"), text);
      const { error, code, param } = JSON.parse(text.trim().split("\n").at(-1)!);
      return [response.status, code, param, error];
    };
    const cases: [model: string, status: number, code: string][] = [
      [NAME, 507, "pull_disk"],
      ["hf.co/me/None-GGUF", 404, "pull_not_found"],
      [`hf.co/${REPO}:Q2_K`, 404, "pull_not_found"],
      ["hf.co/me/../etc", 400, "pull_source"],
      ["llama3.2", 400, "invalid_value"],
      ["https://example.org/model.gguf", 400, "invalid_value"],
      ["http://127.0.0.1:22/x", 400, "invalid_value"],
    ];
    for (const [model, status, code] of cases) {
      const answer = await ask({ model, stream: false });
      assertEquals(answer.slice(0, 3), [status, code, "model"], `${model}: ${answer}`);
      assertEquals((await ask({ name: model })).slice(0, 2), [200, code]);
    }
    assertEquals((await ask({})).slice(0, 2), [400, "missing_required_parameter"]);
  }, full);
});

Deno.test("Ollama pull: is refused unless the server and the key allow it", async () => {
  await withPulls(async ({ client }) => {
    const { message } = await assertRejects(() => client.pull({ model: NAME }), Error);
    assertStringIncludes(message, "the server setting allowPull allows it");
  }, { server: { pulls: undefined } });
  const named = [["ann", true], ["bob", undefined]] as const;
  const apiKeys = new KeyRing(
    ["operator"],
    named.map(([name, mayPull]) => ({ name, digest: digestOf(name), mayPull })),
  );
  await withPulls(async ({ base }) => {
    const clientOf = (key: string) => new Ollama({ host: base, headers: { authorization: `Bearer ${key}` } });
    await assertRejects(
      () => clientOf("bob").pull({ model: NAME }),
      Error,
      'The API key "bob" may not download models',
    );
    for (const key of ["ann", "operator"]) {
      assertEquals((await clientOf(key).pull({ model: NAME })).status, "success");
    }
  }, { server: { apiKeys } });
});
