/** The prompt cache in real commands: `serve`, `batch prefill` and `cache`, as tasks with their permissions. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { join } from "@std/path";
import { root, run, runJson, task, withFolder } from "../../testing/commands.ts";
import { type LiveServer, runLiveServer, withLiveServer } from "../../testing/live_server.ts";
import { answer, open, text, writeModels } from "../models/prompt_cache_models.ts";
import { fullTier } from "../../testing/tier.ts";

const full = (tokens: number) => Math.floor((tokens - 1) / 32) * 32;

interface Completion {
  readonly choices: readonly { readonly text: string }[];
  readonly usage: { readonly prompt_tokens_details: { readonly cached_tokens: number } };
}

function ask(server: LiveServer, prompt: readonly number[]): Promise<Completion> {
  return server.post("/v1/completions", { prompt, max_tokens: 8, temperature: 0, ignore_eos: true });
}

/** A server with this model and a prompt cache in the folder, which it may write. */
function served(
  folder: string,
  model: string,
  more: string[],
  test: (server: LiveServer, kill: () => void) => Promise<void>,
) {
  const size = ["--ctx", "512", "--threads", "1"];
  const args = ["--model", join(folder, model), ...size, "--cache-disk", join(folder, "prompts"), ...more];
  return withLiveServer(args, test, folder);
}

for (const model of ["qwen3.gguf", "qwen35.gguf"]) {
  fullTier.test(`serve --cache-disk: a restarted server answers a known prompt from the disk with ${model}`, () =>
    withFolder(async (folder) => {
      await writeModels(folder);
      const prompt = text(333, 5);
      let first: Completion | undefined;
      await served(folder, model, [], async (server) => {
        first = await ask(server, prompt);
        assertEquals(first.usage.prompt_tokens_details.cached_tokens, 0);
        await ask(server, prompt); // the prompt's second use
      });
      await served(folder, model, [], async (server) => {
        const again = await ask(server, prompt);
        assertEquals(again.choices, first!.choices);
        assertEquals(again.usage.prompt_tokens_details.cached_tokens, full(333));
        assertEquals(await server.metric("compy_disk_cache_hits_total"), 1);
        assertEquals(await server.metric("compy_disk_cached_prompt_tokens_total"), full(333));
        assert(await server.metric("compy_disk_cache_bytes") > 0);
        assertEquals((await runJson("cache", "list", join(folder, "prompts"))).in_use, true);
        const { code, stderr } = await run(["cache", "wipe", join(folder, "prompts")]);
        assertEquals(code, 1);
        assertStringIncludes(stderr, "a server or a job uses it; stop that first");
      });
      const listed = await runJson("cache", "list", join(folder, "prompts"));
      assert(
        listed.parts >= 10 && listed.bytes > 0 && listed.oldest <= listed.newest,
        JSON.stringify(listed),
      );
      assertEquals((await runJson("cache", "wipe", join(folder, "prompts"))).parts, listed.parts);
      assertEquals([...Deno.readDirSync(folder)].some(({ name }) => name === "prompts"), false);
      assertEquals((await run(["cache", "list", join(folder, "prompts")])).code, 1);
    }));
}

fullTier.test("serve --cache-disk: a reloaded model answers from the disk on a server with several models", () =>
  withFolder(async (folder) => {
    await writeModels(folder);
    const prompt = text(250, 6);
    const ask = (server: LiveServer, model: string): Promise<Completion> =>
      server.post("/v1/completions", { model, prompt, max_tokens: 8, temperature: 0, ignore_eos: true });
    const models = ["qwen3", "qwen35"].flatMap((name) => ["--model", join(folder, `${name}.gguf`)]);
    const cache = ["--cache-disk", join(folder, "prompts"), "--cache-disk-eager"];
    const args = [...models, ...cache, "--ctx", "512", "--threads", "1"];
    const { code, complaints } = await runLiveServer(["main.ts", "serve"], args, async (server) => {
      const before = [];
      for (const model of ["qwen3", "qwen35"]) before.push((await ask(server, model)).choices);
      await server.post("/models/unload", { model: "qwen3" });
      await server.post("/models/unload", { model: "qwen35" });
      for (const [i, model] of ["qwen3", "qwen35"].entries()) {
        const { choices, usage } = await ask(server, model);
        assertEquals([choices, usage.prompt_tokens_details.cached_tokens], [before[i], full(250)]);
      }
    }, folder);
    assertEquals(code, 0);
    for (const line of complaints.trimEnd().split("\n")) assertStringIncludes(line, "loaded in");
  }));

fullTier.test("batch prefill: questions about each document are answered from the disk after repeated kills", () =>
  withFolder(async (folder) => {
    await writeModels(folder);
    const documents = Array.from({ length: 12 }, (_, i) => text(300 + i, 20 + i));
    const lines = documents.map((prompt, i) => ({
      custom_id: `d${i}`,
      method: "POST",
      url: "/v1/completions",
      body: { model: "qwen35", prompt, max_tokens: 50 },
    }));
    await Deno.writeTextFile(join(folder, "in.jsonl"), lines.map((line) => JSON.stringify(line)).join("\n"));
    const at = (name: string) => join(folder, name);
    const prefill = ["batch", "prefill", at("in.jsonl"), "--cache-disk", at("prompts")];
    prefill.push("--model", at("qwen35.gguf"), "--ctx", "512", "--threads", "1", "--parallel", "2");
    let kills = 0;
    for (; kills < 3; kills++) {
      const args = ["run", "-q", "-P=batch", "main.ts", ...prefill, "--json"];
      const options = { args, cwd: root, stdout: "piped", stderr: "null" } as const;
      const child = new Deno.Command(Deno.execPath(), options).spawn();
      for await (const part of child.stdout.pipeThrough(new TextDecoderStream())) {
        if (part.includes("progress") || part.includes("started")) child.kill("SIGKILL");
      }
      assertEquals((await child.status).signal, "SIGKILL");
    }
    const { code, stderr } = await run(prefill);
    assertEquals(code, 0, stderr);
    const answers = (await Deno.readTextFile(join(folder, "in.prefilled.jsonl"))).trimEnd().split("\n");
    assertEquals(answers.length, documents.length);
    const ids = new Set<string>();
    for (const [i, line] of answers.entries()) {
      const { custom_id, response: { body } } = JSON.parse(line);
      assertEquals([custom_id, body.choices[0].text], [`d${i}`, ""]);
      assertEquals(body.usage.prompt_tokens_details.stored_tokens, full(300 + i));
      ids.add(body.usage.prompt_tokens_details.stored_in);
    }
    assertEquals(ids.size, 1);
    const plain = await open(join(folder, "qwen35.gguf"));
    await served(folder, "qwen35.gguf", [], async (server) => {
      for (const [i, document] of documents.entries()) {
        const question = [...document, ...text(20, 90 + i)];
        const { choices, usage } = await ask(server, question);
        assertEquals(usage.prompt_tokens_details.cached_tokens, full(300 + i));
        const { tokens } = await answer(plain, question);
        assertEquals(choices[0].text, plain.tokenizer.decode(tokens));
      }
    });
    await plain.close();

    assertStringIncludes((await run(prefill)).stderr, "This job is done already");
    const elsewhere = prefill.map((word) => word === at("prompts") ? at("other") : word);
    assertEquals((await run(["cache", "wipe", at("prompts")])).code, 0);
    for (const [args, where] of [[prefill, "prompts"], [elsewhere, "other"]] as const) {
      const { code, stderr } = await run(args);
      assertEquals(code, 1, stderr);
      assertStringIncludes(stderr, `is done, and its prompts are not in "${at(where)}"`);
    }
  }));

fullTier.test("serve: a batch line with max_tokens 0 reports stored tokens, or only prefills without --cache-disk", () =>
  withFolder(async (folder) => {
    await writeModels(folder);
    const body = { model: "qwen35", prompt: text(200, 1), max_tokens: 0 };
    const line = JSON.stringify({ custom_id: "d", method: "POST", url: "/v1/completions", body });
    const details = async ({ client }: LiveServer) => {
      const file = await client.files.create({ file: new File([line], "in.jsonl"), purpose: "batch" });
      const endpoint = "/v1/completions";
      let batch = await client.batches.create({ input_file_id: file.id, endpoint, completion_window: "24h" });
      while (batch.status !== "completed") {
        await new Promise((resolve) => setTimeout(resolve, 20));
        batch = await client.batches.retrieve(batch.id);
      }
      const output = JSON.parse(await (await client.files.content(batch.output_file_id!)).text());
      return output.response.body.usage.prompt_tokens_details;
    };
    await served(folder, "qwen35.gguf", [], async (server) => {
      const { stored_tokens, stored_in, cached_tokens } = await details(server);
      assertEquals([stored_tokens, cached_tokens], [192, 0]);
      assert(/^[0-9a-f]{16}$/.test(stored_in), stored_in);
    });
    const args = ["--model", join(folder, "qwen35.gguf"), "--ctx", "512", "--threads", "1"];
    await withLiveServer(args, async (server) => {
      assertEquals(await details(server), { cached_tokens: 0 });
    }, folder);
  }));

fullTier.test("--cache-disk: unusable folders are refused with advice, and wrong usage exits with 2", () =>
  withFolder(async (folder) => {
    const cases: [string[], number, string][] = [
      [["serve", "--cache-disk", join(folder, "x")], 1, "this task may write to .compy only"],
      [["serve", "--cache-disk", ".compy/x", "--cache-disk-mb", "0"], 2, "cache-disk-mb"],
      [["batch", "prefill", "in.jsonl"], 2, "--cache-disk is missing"],
      [["batch", "prefill", "--cache-disk", folder], 2, "IN.jsonl is missing"],
      [["cache", "look", folder], 2, 'Invalid verb "look": must be list or wipe'],
      [["cache", "list"], 2, "DIR is missing"],
    ];
    for (const [args, exit, said] of cases) {
      const { code, stderr } = await run(args);
      assertEquals(code, exit, stderr);
      assertStringIncludes(stderr, said);
    }
    await Deno.writeTextFile(join(folder, "file"), "");
    const onFile = ["batch", "run", "in.jsonl", "--out", "out.jsonl", "--cache-disk", join(folder, "file")];
    const { code, stderr } = await run(onFile);
    assertEquals(code, 1, stderr);
    assertStringIncludes(stderr, "Cannot keep prompts in");
    for (const verb of [["cache", "--help"], ["cache", "list", "--help"], ["batch", "prefill", "--help"]]) {
      const { code, stdout } = await run(verb);
      assertEquals(code, 0);
      assertStringIncludes(stdout, "Usage: ");
    }
  }));

fullTier.test("batch prefill: is refused while a server uses the folder", () =>
  withFolder(async (folder) => {
    await writeModels(folder);
    await Deno.writeTextFile(join(folder, "in.jsonl"), "");
    await served(folder, "qwen3.gguf", [], async () => {
      const args = ["batch", "prefill", join(folder, "in.jsonl"), "--cache-disk", join(folder, "prompts")];
      const child = task(args);
      const { code, stderr } = await child.output();
      assertEquals(code, 1);
      assertStringIncludes(
        new TextDecoder().decode(stderr),
        'send the lines to the server as a batch with "max_tokens": 0',
      );
    });
  }));
