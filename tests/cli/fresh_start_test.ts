import { assert, assertEquals, assertMatch } from "@std/assert";
import { delay } from "@std/async/delay.js";
import { join } from "@std/path";
import { linesOf } from "../../ffi/cargo.ts";
import { GRAMMARS, KERNELS } from "../../ffi/names.ts";
import { type FreshCheckout, freshCheckout } from "./fresh_checkout.ts";
import { fullTier } from "../../testing/tier.ts";

/* Commands in a checkout without builds: they start in WebAssembly, and `serve` builds while it answers. */

const ANSWER = "My name is compy. I am a very small language model.";
const FORM = { type: "object", properties: { yes: { type: "boolean" } }, required: ["yes"] };

interface Started {
  readonly child: Deno.ChildProcess;
  /** Resolves when either output contains this text. */
  said(pattern: RegExp): Promise<RegExpMatchArray>;
  readonly text: () => string;
}

function start(checkout: FreshCheckout, permissions: string, args: readonly string[]): Started {
  const child = new Deno.Command(Deno.execPath(), {
    args: ["run", "-q", `-P=${permissions}`, "main.ts", ...args],
    cwd: checkout.path,
    env: { ...checkout.env, NO_COLOR: "1", XDG_RUNTIME_DIR: "/tmp" },
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
  let text = "";
  let changed = Promise.withResolvers<void>();
  const read = async (stream: ReadableStream<Uint8Array<ArrayBuffer>>) => {
    for await (const line of linesOf(stream)) {
      text += `${line}\n`;
      changed.resolve();
      changed = Promise.withResolvers();
    }
  };
  const ended = Promise.all([read(child.stdout), read(child.stderr)]);
  const said = async (pattern: RegExp) => {
    const end = AbortSignal.timeout(60_000);
    for (;;) {
      const found = pattern.exec(text);
      if (found) return found;
      if (end.aborted) throw new Error(`Not said: ${pattern}\n${text}`);
      await Promise.race([changed.promise, ended.then(() => delay(100)), delay(1000)]);
    }
  };
  return { child, said, text: () => text };
}

/** A server of the checkout, stopped at the end. */
async function serve(
  checkout: FreshCheckout,
  args: readonly string[],
  test: (url: string, server: Started) => Promise<void>,
): Promise<string> {
  const server = start(checkout, "serve", ["serve", "--port", "0", ...args]);
  try {
    const [, url] = await server.said(/listening on (\S+)/);
    await test(url, server);
    server.child.kill("SIGTERM");
    assertEquals((await server.child.status).code, 0, server.text());
  } finally {
    try {
      server.child.kill("SIGKILL");
    } catch { /* it has ended */ }
    await server.child.status;
  }
  return server.text();
}

// deno-lint-ignore no-explicit-any -- shapes are what the tests are about
async function post(url: string, body: unknown): Promise<any> {
  const init = typeof body === "object" && !(body instanceof FormData)
    ? { body: JSON.stringify(body), headers: { "content-type": "application/json" } }
    : { body: body as FormData };
  return await (await fetch(url, { method: "POST", ...init })).json();
}

async function ask(url: string, more: Record<string, unknown> = {}): Promise<string> {
  const messages = [{ role: "user", content: "Who are you?" }];
  const { choices, error } = await post(`${url}/v1/chat/completions`, { messages, temperature: 0, ...more });
  return choices?.[0].message.content ?? JSON.stringify(error);
}

/** Returns the processes that still run. An ended process stays a zombie until its parent waits for it. */
async function running(processes: readonly number[]): Promise<number[]> {
  const states = await Promise.all(processes.map(async (id) => {
    const status = await Deno.readTextFile(`/proc/${id}/status`).catch(() => "State:\tZ");
    return /^State:\t[ZX]/m.test(status) ? [] : [id];
  }));
  return states.flat();
}

fullTier.test("fresh checkout: serve answers in WebAssembly, builds, and switches to native; constraints and batches wait", async () => {
  await using checkout = await freshCheckout();
  const said = await serve(checkout, ["--data", join(checkout.path, ".compy")], async (url, server) => {
    await server.said(/wasm: wasm-simd128/);
    assertEquals(await ask(url), ANSWER);

    const line = { messages: [{ role: "user", content: "Who are you?" }], temperature: 0 };
    const form = new FormData();
    form.set("purpose", "batch");
    const request = { custom_id: "a", method: "POST", url: "/v1/chat/completions", body: line };
    form.set("file", new File([JSON.stringify(request)], "in.jsonl"));
    const { id: input_file_id } = await post(`${url}/v1/files`, form);
    const batch = await post(`${url}/v1/batches`, {
      input_file_id,
      endpoint: "/v1/chat/completions",
      completion_window: "24h",
    });
    const statusOf = async () => (await (await fetch(`${url}/v1/batches/${batch.id}`)).json()).status;
    const response_format = { type: "json_schema", json_schema: { name: "yes", schema: FORM } };
    const formed = ask(url, { response_format, max_tokens: 20 });
    await server.said(/A request with a schema or grammar waits/);
    assertEquals(await statusOf(), "validating");

    await checkout.finish(KERNELS);
    await server.said(/Built the kernels in \d+ s\n(.*\n)*demo: .*, \d+ threads;/);
    assertEquals(await ask(url), ANSWER);
    for (let i = 0; i < 100 && await statusOf() !== "completed"; i++) await delay(100);
    assertEquals(await statusOf(), "completed");
    const metrics = await (await fetch(`${url}/metrics`)).text();
    const prompts = Number(/^compy_prompt_tokens_total\S* (\d+)/m.exec(metrics)?.[1]);
    assertEquals(prompts % 3, 0, metrics); // over both engines: three times the same prompt
    assert(prompts > 0);

    await checkout.finish(GRAMMARS);
    assertMatch(await formed, /^\{\s*"yes"/);
  });
  assertMatch(said, /Building the kernels/);
});

fullTier.test("fresh checkout: a server of several models switches them to native, loads later ones natively, and ends the build when it stops", async () => {
  await using checkout = await freshCheckout();
  const other = join(checkout.path, "other.gguf");
  await Deno.copyFile(join(checkout.path, "models/demo.gguf"), other);
  const models = ["--model", join(checkout.path, "models/demo.gguf"), "--model", other];
  const said = await serve(checkout, ["--data", "none", ...models], async (url, server) => {
    assertEquals(await ask(url, { model: "demo" }), ANSWER);
    await server.said(/demo: .* wasm: wasm-simd128/);
    await checkout.finish(KERNELS);
    await server.said(/demo: .*, \d+ threads;/);
    assertEquals(await ask(url, { model: "other" }), ANSWER);
    await server.said(/other: .*, \d+ threads;/);
    await server.said(/Building the grammar library/);
  });
  assert(!/other: .* wasm/.test(said), said);
  const processes = await checkout.processes();
  assert(processes.length >= 2);
  for (let i = 0; i < 50 && (await running(processes)).length > 0; i++) await delay(20);
  assertEquals(await running(processes), []);
});

fullTier.test("fresh checkout: serve logs a failed build's last lines and continues", async () => {
  await using checkout = await freshCheckout();
  await serve(checkout, ["--data", "none"], async (url, server) => {
    await checkout.finish(KERNELS, "error: linker `cc` not found\n");
    await server.said(/Cannot build the kernels: error: linker `cc` not found\n/);
    await server.said(/The server continues in WebAssembly/);
    await checkout.finish(GRAMMARS, "error: no space left on device\n");
    await server.said(/Cannot build the grammar library: error: no space left/);
    assertEquals(await ask(url), ANSWER);
    const response_format = { type: "json_schema", json_schema: { name: "yes", schema: FORM } };
    assertMatch(await ask(url, { response_format }), /need the native grammar library/);
  });
});

fullTier.test("fresh checkout: batch run builds first, or computes in WebAssembly without cargo", async () => {
  await using checkout = await freshCheckout({ cargo: false });
  const input = join(checkout.path, "in.jsonl");
  const body = { messages: [{ role: "user", content: "Who are you?" }], temperature: 0 };
  await Deno.writeTextFile(
    input,
    JSON.stringify({ custom_id: "a", method: "POST", url: "/v1/chat/completions", body }),
  );
  const output = join(checkout.path, "out.jsonl");
  const batch = start(checkout, "batch", ["batch", "run", input, "--out", output]);
  assertEquals((await batch.child.status).code, 0, batch.text());
  await batch.said(/cargo is not on the PATH: install Rust .* https:\/\/rustup\.rs/);
  assertMatch(await Deno.readTextFile(output), new RegExp(ANSWER));
});

fullTier.test("fresh checkout: batch run stops without answers when its build is interrupted", async () => {
  await using checkout = await freshCheckout();
  const input = join(checkout.path, "in.txt");
  await Deno.writeTextFile(input, "Hello\n");
  const args = ["batch", "run", input, "--max-tokens", "5", "--out", join(checkout.path, "out.jsonl")];
  const batch = start(checkout, "batch", args);
  await batch.said(/Building the kernels/);
  while ((await checkout.processes()).length === 0) await delay(20);
  batch.child.kill("SIGINT");
  assertEquals((await batch.child.status).code, 1, batch.text());
  const [cargo, compiler] = await checkout.processes();
  assertEquals(await running([cargo]), []);
  Deno.kill(compiler, "SIGKILL"); // a terminal's Ctrl-C would also reach it
});

fullTier.test("fresh checkout: generate computes in WebAssembly and explains how to get native kernels", async () => {
  await using checkout = await freshCheckout();
  const generate = start(checkout, "compute", ["generate", "--chat", "Who are you?", "--temperature", "0"]);
  assertEquals((await generate.child.status).code, 0, generate.text());
  const lines = generate.text().split("\n").filter((line) => /WebAssembly/.test(line));
  assertEquals(lines.length, 1);
  assertMatch(lines[0], /deno task .*build/);
  assertMatch(generate.text(), new RegExp(ANSWER));
});
