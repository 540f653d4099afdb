import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { join } from "@std/path";
import { TestHub } from "../../hub/testing_hub.ts";
import { testModel } from "../../hub/testing_models.ts";
import { root, run, task, withFolder } from "../../testing/commands.ts";
import { fullTier } from "../../testing/tier.ts";

interface Served {
  readonly url: string;
  readonly child: Deno.ChildProcess;
  /** Ends the server's process with a signal. Returns its output. */
  stop(signal: Deno.Signal): Promise<{ code: number; stderr: string }>;
}

async function serve(...args: string[]): Promise<Served> {
  const child = task(["serve", "--port", "0", "--data", "none", ...args]);
  const stderr = new Response(child.stderr).text();
  const reader = child.stdout.pipeThrough(new TextDecoderStream()).getReader();
  let printed = "";
  while (!printed.includes("\n")) {
    const { value, done } = await reader.read();
    if (done) throw new Error(`serve ended: ${await stderr}`);
    printed += value;
  }
  const url = /^listening on (http:\/\/127\.0\.0\.1:\d+)\n$/.exec(printed)?.[1];
  if (!url) throw new Error(`serve printed ${printed}`);
  return {
    url,
    child,
    async stop(signal) {
      child.kill(signal);
      child.kill(signal); // a terminal too sends Ctrl-C twice
      while (!(await reader.read()).done);
      return { code: (await child.status).code, stderr: await stderr };
    },
  };
}

function chat(url: string, body: Record<string, unknown>): Promise<Response> {
  const messages = [{ role: "user", content: "Tell me a story" }];
  const headers = { "content-type": "application/json" };
  const whole = JSON.stringify({ model: "demo", messages, ...body });
  return fetch(`${url}/v1/chat/completions`, { method: "POST", headers, body: whole });
}

Deno.test("cli: serve answers on its printed port until SIGTERM", async () => {
  const { url, stop } = await serve("--parallel", "2", "--ctx", "256");
  assertEquals(await (await fetch(`${url}/health`)).json(), { status: "ok" });
  const models = await (await fetch(`${url}/v1/models`)).json();
  assertEquals(models.data.map((m: { id: string }) => m.id), ["demo"]);
  const answer = await (await chat(url, { max_tokens: 8 })).json();
  assertEquals(answer.object, "chat.completion");
  assert(answer.usage.completion_tokens > 0);
  const taken = await run(["serve", "--port", new URL(url).port]);
  assertEquals(taken.code, 1);
  assertStringIncludes(taken.stderr, "the port is in use; choose another with --port");
  const { code, stderr } = await stop("SIGTERM");
  assertEquals(code, 0);
  assertMatch(stderr, /^demo: llama, 256 tokens of context, loaded in [^\n]*\n$/);
});

fullTier.test("cli: serve completes running streams on Ctrl-C, then stops", async () => {
  const { url, stop } = await serve();
  const response = await chat(url, { max_tokens: 64, stream: true, ignore_eos: true });
  const [stopped, text] = await Promise.all([stop("SIGINT"), response.text()]);
  assertEquals(stopped.code, 0, stopped.stderr);
  assert(text.trimEnd().endsWith("data: [DONE]"), text);
  assertEquals(text.split(`"finish_reason":"length"`).length, 2, text);
});

fullTier.test("cli: --chat-template replaces the file's template in serve, generate, chat and batches", async () => {
  await withFolder(async (folder) => {
    const [file, other, bad] = ["own", "other", "bad"].map((name) => join(folder, `${name}.jinja`));
    const source = "{{ messages[0].content }}";
    await Deno.writeTextFile(file, source);
    await Deno.writeTextFile(other, `${source} `);
    await Deno.writeTextFile(bad, "{{ 1 }}\n{% if %}");
    const { url, stop } = await serve("--chat-template", file);
    const props = await (await fetch(`${url}/props`)).json();
    assertEquals(props.chat_template, source);
    const messages = [{ role: "user", content: "Who are you?" }];
    const headers = { "content-type": "application/json" };
    const shown = await fetch(`${url}/apply-template`, {
      method: "POST",
      headers,
      body: JSON.stringify({ messages }),
    });
    assert((await shown.json()).prompt.endsWith("Who are you?"));
    assertEquals((await stop("SIGTERM")).code, 0);

    const plain = ["--temperature", "0", "-n", "4"];
    const continued = await run(["generate", "--prompt", "Who are you?", ...plain]);
    const replaced = await run(["generate", "Who are you?", "--chat-template", file, ...plain]);
    assertEquals([replaced.code, replaced.stdout], [0, continued.stdout], replaced.stderr);
    const chatted = await run(["chat", "Who are you?", "--chat-template", file, ...plain]);
    assertEquals(chatted.stdout.trim(), continued.stdout.trim());
    const { code, stderr } = await run(["chat", "Hi", "--chat-template", bad]);
    assertEquals(code, 1);
    assertStringIncludes(stderr, `Cannot parse the chat template "${bad}": line 2: `);

    const [input, output] = ["in", "out"].map((name) => join(folder, `${name}.jsonl`));
    const line = (id: string) => ({
      custom_id: id,
      method: "POST",
      url: "/v1/chat/completions",
      body: { model: "demo", messages, max_tokens: 2 },
    });
    await Deno.writeTextFile(input, ["a", "b"].map((id) => `${JSON.stringify(line(id))}\n`).join(""));
    const job = ["batch", "run", input, "--out", output];
    assertEquals((await run([...job, "--chat-template", file, "--limit", "1"])).code, 0);
    const resumed = await run([...job, "--chat-template", other]);
    assertEquals(resumed.code, 1);
    assertMatch(resumed.stderr, /chat template [0-9a-f]{16}… \(now [0-9a-f]{16}…\)/);
    assertEquals((await run([...job, "--chat-template", file])).code, 0);
  });
});

fullTier.test("cli: serve --allow-pull downloads into the folder of --models", async () => {
  const missing = await run(["serve", "--allow-pull"]);
  assertEquals(missing.code, 2);
  assertStringIncludes(missing.stderr, "--allow-pull needs --models");
  await using hub = new TestHub({
    repositories: { "me/Tiny-GGUF": { "Tiny-Q8_0.gguf": testModel(1, 300_000) } },
  });
  const args = ["--allow-pull", "--mirror", hub.endpoint, "--models"];
  await withFolder(async (folder) => {
    const refused = await run(["serve", ...args, folder]);
    assertEquals(refused.code, 1);
    assertStringIncludes(
      refused.stderr,
      `this task may not write to "${folder}". Allow it: deno run -P=serve --allow-net --allow-write=.compy,${folder} `,
    );
  });
  const folder = join(root, ".compy", `pulls-${crypto.randomUUID()}`);
  await Deno.mkdir(folder, { recursive: true });
  try {
    const { url, stop } = await serve(...args, folder);
    const model = "hf.co/me/Tiny-GGUF:Q8_0";
    const body = JSON.stringify({ model, stream: false });
    const headers = { "content-type": "application/json" };
    const pulled = await fetch(`${url}/api/pull`, { method: "POST", headers, body });
    assertEquals(await pulled.json(), { status: "success" });
    const { models } = await (await fetch(`${url}/api/tags`)).json();
    assertEquals(models.map(({ name }: { name: string }) => name), ["Tiny-Q8_0:latest", model]);
    assertEquals((await stop("SIGTERM")).code, 0);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

fullTier.test("cli: serve refuses a public address without a key", async () => {
  const { code, stderr } = await run(["serve", "--host", "0.0.0.0", "--port", "0", "--data", "none"]);
  assertEquals(code, 1);
  assertStringIncludes(stderr, "needs an API key");
});

fullTier.test("cli: serve reads its config file and prints the effective settings", async () => {
  await withFolder(async (folder) => {
    const file = join(folder, "compy.json");
    await Deno.writeTextFile(file, '{ "ctx": 128, "parallel": 2, "model": "/no/such.gguf" }');
    const shown = await run(["serve", "--config", file, "--parallel", "3", "--print-config", "--json"]);
    assertEquals(shown.code, 0, shown.stderr);
    const { ctx, parallel } = JSON.parse(shown.stdout);
    assertEquals(ctx, { value: 128, source: "config file" });
    assertEquals(parallel, { value: 3, source: "flag" });
    const served = await run(["serve", "--config", file, "--port", "0", "--data", "none"]);
    assertEquals([served.code, served.stdout], [1, ""]);
    assertStringIncludes(served.stderr, 'Cannot load a model from "/no/such.gguf"');
    await Deno.writeTextFile(file, '{ "ctx": 0 }');
    const wrong = await run(["serve", "--config", file]);
    assertEquals(wrong.code, 2);
    assertStringIncludes(wrong.stderr, `"ctx" in "${file}" must be a whole number from 1 to`);
  });
});

fullTier.test("cli: serve reports an unusable data folder before it loads the model", async () => {
  await withFolder(async (folder) => {
    const file = join(folder, "file");
    await Deno.writeTextFile(file, "");
    for (
      const [data, reason] of [
        [file, "something else of that name is there"],
        [join(file, "data"), "a part of its path is a file and not a folder"],
      ]
    ) {
      const args = [
        "run",
        "-q",
        "-P=serve",
        `--allow-write=${folder}`,
        "main.ts",
        "serve",
        "--port",
        "0",
        "--data",
        data,
      ];
      const { code, stderr } = await new Deno.Command(Deno.execPath(), { args, cwd: root }).output();
      assertEquals(
        [code, new TextDecoder().decode(stderr)],
        [
          1,
          `Error: Cannot keep files and batches in "${data}": ${reason}; choose another folder with --data, or serve ` +
          "without them: --data none\n",
        ],
      );
    }
  });
});
