import { assert, assertEquals, assertMatch, assertRejects } from "@std/assert";
import { join } from "@std/path";
import OpenAI from "openai";
import { CpuBackend } from "../../engine/backend/cpu/cpu.ts";
import { loadReloadingEngine } from "../../engine/load/load_reloading.ts";
import { chatLine, createBatch, linesOf, upload, waitFor } from "../../routes/testing_batches.ts";
import { gpuTest } from "../../testing/gpu.ts";
import { type LiveServer, runLiveServer, type ServerEnd } from "../../testing/live_server.ts";
import { fullTier } from "../../testing/tier.ts";

/* Engine failures of a server process on the demo model. */

const model = "demo";
const messages = [{ role: "user" as const, content: "Tell me a story" }];
const request = { model, temperature: 0, max_tokens: 60, messages };

async function inFolder<T>(test: (folder: string) => Promise<T>): Promise<T> {
  const folder = await Deno.makeTempDir({ prefix: "failure-" });
  try {
    return await test(folder);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

/** A server; `fail` makes this many of its next steps fail. */
function failing(
  args: readonly string[],
  test: (server: LiveServer, fail: (steps: number) => void) => Promise<void>,
): Promise<ServerEnd> {
  return inFolder((folder) => {
    const control = join(folder, "failures");
    let failures = 0;
    const fail = (steps: number) => {
      // The server reads the file before each step, so replace it atomically.
      Deno.writeTextFileSync(`${control}.new`, JSON.stringify({ now: failures += steps, at: [] }));
      Deno.renameSync(`${control}.new`, control);
    };
    fail(0);
    return runLiveServer(
      ["tests/kernels/failing_backend.ts", control, "serve"],
      args,
      (server) => test(server, fail),
      folder,
    );
  });
}

const status = async ({ url }: LiveServer, path: string) => {
  const response = await fetch(url + path);
  await response.body?.cancel();
  return response.status;
};

async function ready(server: LiveServer): Promise<void> {
  for (const end = performance.now() + 20_000; await status(server, "/ready") !== 200;) {
    assert(performance.now() < end, "not ready after 20 s");
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

const withoutStacks = (text: string) => text.replaceAll(/^ +at .*\n/gm, "");

const textOf = async ({ client }: LiveServer) =>
  (await client.chat.completions.create(request)).choices[0].message.content;

Deno.test("server: a failed engine is reloaded, streams end with an error, and a batch loses nothing", async () => {
  const lines = Array.from(
    { length: 40 },
    (_, n) => chatLine(`q${n}`, { max_tokens: 8 + n, temperature: 0 }),
  );
  const { code, complaints } = await failing([], async (server, fail) => {
    const { client } = server;
    const before = await textOf(server);
    const batch = await createBatch(client, await upload(client, lines));
    for (let failures = 0; failures < 2; failures++) {
      const stream = await client.chat.completions.create({ ...request, stream: true });
      const chunks = stream[Symbol.asyncIterator]();
      await chunks.next();
      fail(1);
      const rest = async () => {
        while (!(await chunks.next()).done);
      };
      const error = await assertRejects(rest, OpenAI.APIError);
      assertMatch(error.message, /The engine has failed/);
      await ready(server);
    }
    assertEquals(await textOf(server), before);
    const { output_file_id, request_counts } = await waitFor(client, batch.id, "completed");
    assertEquals(request_counts, { total: 40, completed: 40, failed: 0 });
    const answers = await linesOf(client, output_file_id);
    assertEquals(answers.map(({ custom_id }) => custom_id), lines.map((_, n) => `q${n}`));
  });
  assertEquals(code, 0);
  // The log shows the same stack once a minute.
  const stack =
    "EngineError: The engine has failed: injected by a test\n  Caused by Error: injected by a test\n";
  const told = (n: number) =>
    `The engine has failed: injected by a test; loading it again (${n} of at most 3 times in 10 minutes)\n` +
    `${n === 1 ? stack : ""}The engine is ready again\n`;
  assertEquals(withoutStacks(complaints), told(1) + told(2));
});

fullTier.test("server: stops with exit code 1 and a reason with --on-failure exit", async () => {
  const { code, complaints } = await failing(["--on-failure", "exit"], async (server, fail) => {
    fail(1);
    const { error } = await server.post("/v1/chat/completions", request);
    assertEquals(error.code, "engine_failed");
  });
  assertEquals(code, 1);
  assertEquals(
    withoutStacks(complaints),
    "Error: The engine has failed: injected by a test; the server stops\n" +
      "EngineError: The engine has failed: injected by a test\n  Caused by Error: injected by a test\n",
  );
});

fullTier.test("server: stops when its engine keeps failing", async () => {
  const { code, complaints } = await failing([], async (server, fail) => {
    fail(4);
    for (let failures = 0; failures < 4; failures++) {
      const { error } = await server.post("/v1/chat/completions", request);
      assertEquals(error.code, "engine_failed");
      if (failures < 3) await ready(server);
    }
  });
  assertEquals(code, 1);
  assertMatch(
    complaints,
    /it was loaded again 3 times in 10 minutes and is not loaded again; the server stops\n/,
  );
});

/** `batch run` over this many lines, with failures at these steps. */
async function batchRun(folder: string, count: number, at: number[]) {
  const [control, input, output] = ["failures", "in.jsonl", "out.jsonl"].map((name) => join(folder, name));
  await Deno.writeTextFile(control, JSON.stringify({ now: 0, at }));
  const lines = Array.from(
    { length: count },
    (_, n) => chatLine(`q${n}`, { max_tokens: 8 + n % 9, temperature: 0 }),
  );
  await Deno.writeTextFile(input, lines.join("\n"));
  const command = [
    "tests/kernels/failing_backend.ts",
    control,
    "batch",
    "run",
    input,
    "--out",
    output,
    "--parallel",
    "4",
  ];
  const { code, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["run", "-q", "-P=batch", ...command],
    env: { NO_COLOR: "1" },
  }).output();
  const read = (path: string) => Deno.readTextFile(path).catch(() => "");
  const answers = (await read(output)).trimEnd().split("\n").filter(Boolean).map((line) => JSON.parse(line));
  return {
    code,
    stderr: new TextDecoder().decode(stderr),
    answers: answers.map(({ custom_id, response }) => [custom_id, response.body.choices[0].message.content]),
    errors: await read(join(folder, "out.errors.jsonl")),
  };
}

fullTier.test("batch run: answers stay the same when a failed engine is reloaded", async () => {
  const whole = await inFolder((folder) => batchRun(folder, 40, []));
  assertEquals([whole.code, whole.answers.length, whole.errors], [0, 40, ""]);
  const run = await inFolder((folder) => batchRun(folder, 40, [5, 60]));
  assertEquals([run.code, run.errors], [0, ""]);
  assertEquals(run.answers, whole.answers);
  assertEquals(run.stderr.match(/loading it again/g)?.length, 2);
});

fullTier.test("batch run: stops when the engine keeps failing, and resumes later", async () => {
  await inFolder(async (folder) => {
    const stopped = await batchRun(folder, 40, [20, 40, 42, 44]);
    assertEquals(stopped.code, 1);
    assertMatch(stopped.stderr, /it was loaded again 3 times in 10 minutes and is not loaded again/);
    const resumed = await batchRun(folder, 40, []);
    assertEquals([resumed.code, resumed.answers.length, resumed.errors], [0, 40, ""]);
  });
});

gpuTest("server: reopens a lost device and gives the same answer", async () => {
  const { code, complaints } = await failing(["--backend", "webgpu"], async (server, fail) => {
    const before = await textOf(server);
    const health = async () => await (await fetch(server.url + "/health")).json();
    assertEquals(await health(), { status: "ok" });
    fail(1);
    const { error } = await server.post("/v1/chat/completions", request);
    assertEquals(error.code, "device_lost");
    await ready(server);
    assertEquals(await textOf(server), before);
    assertEquals(await health(), { status: "ok", device_losses: 1 });
    assertEquals(await server.metric("compy_device_losses_total"), 1);
  });
  assertEquals(code, 0);
  assertMatch(
    complaints,
    /^The GPU was lost .+; loading it again \(1 of at most 3 times in 10 minutes\)\n/,
  );
});

gpuTest(
  "lost device: a stream of several constrained answers ends with its error, and the batch beside it loses no line",
  async () => {
    const asked = {
      model,
      messages,
      n: 3,
      seed: 7,
      max_tokens: 12,
      response_format: {
        type: "json_schema" as const,
        json_schema: { name: "list", schema: { type: "array", items: { type: "integer" }, minItems: 4 } },
      },
    };
    const lines = Array.from(
      { length: 6 },
      (_, n) => chatLine(`q${n}`, { max_tokens: 6, temperature: 0, n: 2 }),
    );
    const { code } = await failing(["--backend", "webgpu"], async (server, fail) => {
      const { client } = server;
      const before = (await client.chat.completions.create(asked)).choices;
      const batch = await createBatch(client, await upload(client, lines));
      const stream = await client.chat.completions.create({ ...asked, stream: true });
      const chunks = stream[Symbol.asyncIterator]();
      await chunks.next();
      fail(1);
      const rest = async () => {
        while (!(await chunks.next()).done);
      };
      const error = await assertRejects(rest, OpenAI.APIError);
      assertEquals(error.code, "device_lost");
      await ready(server);
      assertEquals((await client.chat.completions.create(asked)).choices, before);
      const { output_file_id, request_counts } = await waitFor(client, batch.id, "completed");
      assertEquals(request_counts, { total: 6, completed: 6, failed: 0 });
      const answers = await linesOf(client, output_file_id);
      assertEquals(answers.map(({ custom_id }) => custom_id), lines.map((_, n) => `q${n}`));
    });
    assertEquals(code, 0);
  },
);

Deno.test("server: does not reload a changed model file after a failure", async () => {
  await inFolder(async (folder) => {
    const path = join(folder, "demo.gguf");
    await Deno.copyFile("models/demo.gguf", path);
    const told: string[] = [];
    const second = Promise.withResolvers<void>();
    const { engine } = await loadReloadingEngine({ model: path, threads: 1 }, {
      note: (text) => {
        if (told.push(text) === 2) second.resolve();
      },
    });
    const step = CpuBackend.prototype.step;
    CpuBackend.prototype.step = () => Promise.reject(new Error("injected"));
    try {
      await Deno.writeFile(path, (await Deno.readFile(path)).fill(0, 1000, 2000));
      await assertRejects(() => Array.fromAsync(engine.submit({ prompt: [1] })));
      await second.promise;
    } finally {
      CpuBackend.prototype.step = step;
    }
    assertEquals(engine.state, "loading");
    assert(
      told[1].startsWith(
        `Cannot load ${path} again: the file has changed since it was loaded first; loading`,
      ),
      told[1],
    );
    await engine.close();
  });
});
