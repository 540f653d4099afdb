import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { delay } from "@std/async/delay.js";
import { join } from "@std/path";
import { root, run, withFolder } from "../../testing/commands.ts";
import { startSupervised } from "./supervised_server.ts";
import { fullTier } from "../../testing/tier.ts";

const SMALL = ["--parallel", "2", "--ctx", "256", "--data", "none"];

function stream(url: string, maxTokens: number, n = 1): Promise<Response> {
  return fetch(`${url}/v1/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({
      model: "demo",
      prompt: "a",
      max_tokens: maxTokens,
      n,
      stream: true,
      ignore_eos: true,
    }),
  });
}

/** Waits until the process is gone. */
async function gone(pid: number): Promise<void> {
  for (let i = 0; i < 500; i++) {
    if (!(await new Deno.Command("ps", { args: ["-p", `${pid}`] }).output()).success) return;
    await delay(20);
  }
  throw new Error(`${pid} is still there`);
}

fullTier.test("supervise: a killed server is restarted at the same port, and SIGTERM lets streams end", async () => {
  const server = await startSupervised(SMALL);
  for (let i = 0; i < 2; i++) {
    assert(await server.killChild() < 10_000);
    assertEquals((await fetch(`${server.url}/health`)).status, 200);
  }
  const open = await stream(server.url, 200);
  const [{ code, stderr }, text] = await Promise.all([server.end("SIGTERM"), open.text()]);
  assertEquals(code, 0, stderr);
  assertStringIncludes(text, `"finish_reason":"length"`);
  assert(text.trimEnd().endsWith("data: [DONE]"));
  assertEquals(stderr.match(/The server was killed by SIGKILL; starting it again/g)?.length, 2, stderr);
});

fullTier.test("supervise: a second Ctrl-C cancels running requests", async () => {
  const server = await startSupervised([...SMALL, "--speculate", "off"]);
  const open = await stream(server.url, 200, 100); // takes seconds, two at a time
  const reader = open.body!.pipeThrough(new TextDecoderStream()).getReader();
  await reader.read();
  const ended = server.end("SIGINT");
  await delay(300);
  Deno.kill(server.pid, "SIGINT");
  const start = performance.now();
  const { code, stderr } = await ended;
  assertEquals(code, 0, stderr);
  assert(performance.now() - start < 5000);
  let last = "";
  for (let part = await reader.read(); !part.done; part = await reader.read()) last = part.value;
  assertStringIncludes(last, "shutting_down");
});

fullTier.test("supervise: a server that was never ready is not restarted, and the supervisor exits with its code", async () => {
  const { code, stderr, stdout } = await run(["serve", "--supervise", "--model", "/no/such.gguf", ...SMALL]);
  assertEquals([code, stdout], [1, ""]);
  assertMatch(stderr, /^Error: Cannot load a model from "\/no\/such.gguf"[^\n]*\n$/);
  const wrong = await run(["serve", "--supervise", "--port", "70000"]);
  assertEquals(wrong.code, 2);
});

fullTier.test("supervise: a server stops when its supervisor is killed", async () => {
  const server = await startSupervised(SMALL);
  const child = (await server.child())!;
  await server.end("SIGKILL");
  await gone(child);
});

fullTier.test("supervise: a killed server is restarted at the same private socket", async () => {
  await withFolder(async (folder) => {
    const path = join(folder, "compy.sock");
    const permissions = [`--allow-net=127.0.0.1,unix:${path}`, `--allow-write=${folder}`];
    const server = await startSupervised(["--unix", path, ...SMALL], permissions);
    assertEquals(server.url, `unix:${path}`);
    for (let i = 0; i < 2; i++) {
      assertEquals((await Deno.lstat(path)).mode! & 0o777, 0o600);
      assertStringIncludes(await overSocket(path, "/health", "whatever.example"), '{"status":"ok"}');
      if (i === 0) await server.killChild();
    }
    const second = await serve(["--unix", path, ...SMALL], permissions);
    assertEquals(second.code, 1);
    assertStringIncludes(second.stderr, "another server listens there; choose another path with --unix");
    assertEquals((await server.end("SIGTERM")).code, 0);
    assertEquals([...Deno.readDirSync(folder)], []);
    await Deno.writeTextFile(path, "precious");
    const file = await serve(["--unix", path, ...SMALL], permissions);
    assertStringIncludes(file.stderr, "something other than a socket is there");
    assertEquals(await Deno.readTextFile(path), "precious");
  });
});

Deno.test("supervise: a restarted server gets the lock of its data folder, and a second server is refused before loading", async () => {
  await withFolder(async (folder) => {
    const permissions = [`--allow-write=${folder}`];
    const data = ["--data", folder];
    const server = await startSupervised(data, permissions);
    await server.killChild();
    const child = (await server.child())!;
    // Loading this model would fail.
    for (const model of [["--model", "/no/such.gguf"], ["--models", "/no/such/folder"]]) {
      const second = await serve(["--port", "0", ...model, ...data], permissions);
      assertEquals(second.code, 1);
      assertEquals(
        second.stderr,
        `Error: Cannot use "${folder}" for files and batches: another server uses it (process ${child}); stop that ` +
          "server, give another folder with --data, or serve without files and batches: --data none\n",
      );
    }
    assertEquals((await server.end("SIGTERM")).code, 0);
  });
});

/** The raw answer to GET, from a process that may connect to any socket. */
async function overSocket(path: string, target: string, host: string): Promise<string> {
  const request = `GET ${target} HTTP/1.1\\r\\nhost: ${host}\\r\\nconnection: close\\r\\n\\r\\n`;
  const code = `const connection = await Deno.connect({ transport: "unix", path: ${JSON.stringify(path)} });
    await connection.write(new TextEncoder().encode("${request}"));
    console.log(await new Response(connection.readable).text());`;
  const { stdout } = await new Deno.Command(Deno.execPath(), { args: ["eval", "-q", code] }).output();
  return new TextDecoder().decode(stdout);
}

/** Runs `serve` with more permissions to its end. */
async function serve(args: readonly string[], permissions: readonly string[]) {
  const all = ["run", "-q", "-P=serve", ...permissions, "main.ts", "serve", ...args];
  const { code, stderr } = await new Deno.Command(Deno.execPath(), { args: all, cwd: root }).output();
  return { code, stderr: new TextDecoder().decode(stderr) };
}
