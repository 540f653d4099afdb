/** Serving and batches on the WebAssembly kernels, as tasks with their permissions. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { delay } from "@std/async/delay.js";
import { join } from "@std/path";
import { run, task, withFolder } from "../../testing/commands.ts";
import { type LiveServer, withLiveServer } from "../../testing/live_server.ts";
import { text, writeModels } from "../models/prompt_cache_models.ts";
import { fullTier } from "../../testing/tier.ts";

const WASM = ["--backend", "wasm"];
const SCHEMA = {
  type: "object",
  properties: { n: { type: "integer" } },
  required: ["n"],
  additionalProperties: false,
};

fullTier.test("wasm: a server gives concurrent clients the same answers as alone, with schemas and disconnects", () =>
  withLiveServer([...WASM, "--threads", "2", "--parallel", "4"], async (server) => {
    const body = (i: number) => ({
      prompt: `The ${i}th dinosaur`,
      max_tokens: 24,
      temperature: i % 2,
      seed: i,
    });
    const alone: string[] = [];
    for (let i = 0; i < 4; i++) alone.push((await server.post("/v1/completions", body(i))).choices[0].text);
    const leaves = fetch(`${server.url}/v1/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ ...body(9), max_tokens: 500, stream: true, ignore_eos: true }),
      signal: AbortSignal.timeout(100),
    }).then((response) => response.text()).catch(() => "left");
    const crowd = await Promise.all(alone.map((_, i) => streamed(server, body(i))));
    assertEquals(crowd, alone);
    assertEquals(await leaves, "left");
    const formed = await server.post("/v1/completions", { ...body(1), max_tokens: 60, json_schema: SCHEMA });
    const [{ text, finish_reason }] = formed.choices;
    assert(finish_reason === "length" || Number.isInteger(JSON.parse(text).n), text);
    await server.idle();
  }));

async function streamed(server: LiveServer, body: Record<string, unknown>): Promise<string> {
  const parts = await server.client.completions.create({ model: "demo", ...body, stream: true } as never);
  let text = "";
  for await (const part of parts as unknown as AsyncIterable<{ choices: { text: string }[] }>) {
    text += part.choices[0]?.text ?? "";
  }
  return text;
}

for (const model of ["qwen3.gguf", "qwen35.gguf"]) {
  fullTier.test(`wasm: a restarted server answers a known prompt from the disk cache (${model})`, () =>
    withFolder(async (folder) => {
      await writeModels(folder);
      const prompt = text(333, 5);
      const cache = ["--cache-disk", join(folder, "prompts"), "--cache-disk-eager"];
      const args = [...WASM, "--model", join(folder, model), "--ctx", "512", "--threads", "1", ...cache];
      const ask = (server: LiveServer) =>
        server.post("/v1/completions", { prompt, max_tokens: 8, temperature: 0, ignore_eos: true });
      let first: { choices: unknown };
      await withLiveServer(args, async (server) => {
        first = await ask(server);
      }, folder);
      await withLiveServer(args, async (server) => {
        const { choices, usage } = await ask(server);
        assertEquals(choices, first.choices);
        assertEquals(usage.prompt_tokens_details.cached_tokens, 320);
      }, folder);
    }));
}

fullTier.test("wasm: a killed batch resumes with the answers of an undisturbed one, but not natively", () =>
  withFolder(async (folder) => {
    const line = (i: number) => ({
      custom_id: `${i}`,
      method: "POST",
      url: "/v1/completions",
      body: { prompt: `The ${i}th dinosaur`, max_tokens: 100, temperature: 1, seed: i, ignore_eos: true },
    });
    const input = join(folder, "in.jsonl");
    await Deno.writeTextFile(
      input,
      Array.from({ length: 40 }, (_, i) => JSON.stringify(line(i)) + "\n").join(""),
    );
    const job = (out: string) => ["batch", "run", input, "--out", join(folder, out), "--json"];
    assertEquals((await run([...job("whole.jsonl"), ...WASM])).code, 0);
    await killInMidst([...job("killed.jsonl"), ...WASM], join(folder, "killed.jsonl.journal"));
    const native = await run([...job("killed.jsonl"), "--backend", "cpu"]);
    assertEquals(native.code, 1);
    assertStringIncludes(native.stdout, "backend");
    const { code, stdout, stderr } = await run([...job("killed.jsonl"), ...WASM]);
    assertEquals(code, 0, stderr);
    assertStringIncludes(stdout, '"completed"');
    const texts = async (name: string) =>
      (await Deno.readTextFile(join(folder, name))).trimEnd().split("\n").map((line) => {
        const { custom_id, response } = JSON.parse(line);
        return [custom_id, response.body.choices[0].text];
      });
    assertEquals(await texts("killed.jsonl"), await texts("whole.jsonl"));
  }));

/** Runs a batch, and kills it when some answers are in the journal. */
async function killInMidst(args: readonly string[], journal: string): Promise<void> {
  const child = task(args);
  const ended = child.output();
  for (let size = 0; size < 10_000; await delay(5)) {
    size = await Deno.stat(journal).then(({ size }) => size, () => 0);
  }
  await new Deno.Command("pkill", { args: ["-KILL", "-f", journal.slice(0, -".journal".length)] }).output();
  await ended;
}
