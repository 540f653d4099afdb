import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { join } from "@std/path";
import { VERSION } from "../../package.ts";
import { root, withFolder } from "../../testing/commands.ts";

/** Runs a program; undefined if it is not installed. */
async function tried(program: string, args: readonly string[]) {
  try {
    const { code, stdout, stderr } = await new Deno.Command(program, { args: [...args] }).output();
    const [out, err] = [stdout, stderr].map((bytes) => new TextDecoder().decode(bytes));
    return { code, text: out + err };
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw error;
  }
}

Deno.test("deploy/serve.ts: deno serve answers with a key, and SIGTERM lets a stream end", async () => {
  const listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const { port } = listener.addr;
  listener.close();
  const ffi = ["rust-kernels", "rust-grammar"].map((crate) => `${crate}/target/release`).join(",");
  const child = new Deno.Command(Deno.execPath(), {
    args: [
      ...["serve", "-q", "--no-check", "--host", "127.0.0.1", "--port", `${port}`, "--no-prompt"],
      ...["--allow-read", "--allow-env", "--allow-sys=systemMemoryInfo", `--allow-ffi=${ffi}`],
      "deploy/serve.ts",
    ],
    cwd: root,
    env: { COMPY_API_KEY: "k" },
    stdout: "null",
    stderr: "null",
  }).spawn();
  try {
    const url = `http://127.0.0.1:${port}`;
    const get = async (path: string, headers: HeadersInit = {}) => {
      const answer = await fetch(url + path, { headers });
      await answer.body?.cancel();
      return answer.status;
    };
    while (!await get("/health").catch(() => undefined)) await new Promise((done) => setTimeout(done, 100));
    assertEquals(await get("/health"), 200);
    assertEquals(await get("/ready"), 401);
    assertEquals(await get("/ready", { authorization: "Bearer k" }), 200);
    const answer = await fetch(`${url}/v1/completions`, {
      method: "POST",
      headers: { authorization: "Bearer k", "content-type": "application/json" },
      body: JSON.stringify({
        model: "demo",
        prompt: "Once",
        max_tokens: 300,
        stream: true,
        ignore_eos: true,
      }),
    });
    const events = answer.body!.pipeThrough(new TextDecoderStream())[Symbol.asyncIterator]();
    let text = (await events.next()).value ?? "";
    child.kill("SIGTERM");
    for (let next = await events.next(); !next.done; next = await events.next()) text += next.value;
    assertStringIncludes(text, `"finish_reason":"length"`);
    assertStringIncludes(text, "data: [DONE]");
    assertEquals((await child.status).code, 0);
  } finally {
    try {
      child.kill("SIGKILL");
    } catch {
      // The program has already ended.
    }
    await child.status;
  }
});

Deno.test("deploy/compy.service: is valid, with a systemd exposure score below 2 of 10", async () => {
  await withFolder(async (folder) => {
    // The program must exist in any unpacked release.
    const unit = join(folder, "compy.service");
    const text = await Deno.readTextFile(join(root, "deploy/compy.service"));
    await Deno.writeTextFile(unit, text.replace("ExecStart=/opt/compy/compy", "ExecStart=/bin/true"));
    const verified = await tried("systemd-analyze", ["verify", unit]);
    if (!verified) return; // systemd is missing
    // Messages about other units of the machine do not matter.
    assertEquals(verified.text.split("\n").filter((line) => line.includes("compy")), []);
    const exposed = await tried("systemd-analyze", ["security", "--offline=true", "--threshold=20", unit]);
    assertEquals(exposed!.code, 0, exposed!.text);
    assertMatch(exposed!.text, /Overall exposure level for compy\.service: [01]\.\d/);
  });
});

Deno.test("deploy/Caddyfile: is valid", async () => {
  const valid = await tried("caddy", [
    "validate",
    "--config",
    join(root, "deploy/Caddyfile"),
    "--adapter",
    "caddyfile",
  ]);
  if (valid) assertStringIncludes(valid.text, "Valid configuration");
});

Deno.test("deploy/monitoring: promtool accepts the scrape configuration and the alert rules [when it is installed]", async () => {
  const file = join(root, "deploy/monitoring/prometheus.yml");
  const checked = await tried("promtool", ["check", "config", "--syntax-only", file]);
  if (!checked) return;
  assertEquals(checked.code, 0, checked.text);
  const rules = await tried("promtool", ["check", "rules", join(root, "deploy/monitoring/alerts.yml")]);
  assertMatch(rules!.text, /SUCCESS: \d+ rules found/);
});

Deno.test("deploy/Dockerfile: starts the server like a release, with its version", async () => {
  const read = (name: string) => Deno.readTextFile(join(root, "deploy", name));
  const dockerfile = await read("Dockerfile");
  const launcher = await Deno.readTextFile(join(root, "tools/release/launcher.sh"));
  const started = /^ENTRYPOINT (\[.*\])$/m.exec(dockerfile)?.[1] ?? "[]";
  const words: string[] = JSON.parse(started);
  assertEquals(words.slice(-2), ["/opt/compy/js/main.js", "serve"]);
  for (const flag of words.filter((word) => /^--(no-prompt|config)$|^-q$/.test(word))) {
    assertStringIncludes(launcher, flag);
  }
  assert(words.includes("-P=serve"));
  for (const file of [dockerfile, await read("compose.yaml")]) {
    const versions = [...file.matchAll(/compy:(\d+\.\d+\.\d+)/g)].map(([, version]) => version);
    assertEquals(new Set(versions), new Set([VERSION]));
  }
});
