/**
 * Stores documents in the prompt cache by a job that is killed repeatedly. Then compares a server's time to first token
 * for questions about them with the time without the cache (`deno task cache:prefill`).
 */
import { assert, assertEquals } from "@std/assert";
import { fromFileUrl, join } from "@std/path";
import { campaignLine } from "../../testing/campaign.ts";
import { bytesOf } from "../models/prompt_cache_scenario.ts";
import { answer, open, text } from "../models/prompt_cache_models.ts";
import { Random } from "../../testing/random.ts";

const ROOT = fromFileUrl(new URL("../..", import.meta.url));
/** Number of documents to measure without the cache, which takes long. */
const ASKED_WITHOUT = 3;

export interface PrefillCampaign {
  readonly model: string;
  readonly documents: number;
  readonly tokens: number;
  readonly kills: number;
  readonly bytes: number;
}

/** Returns the medians of milliseconds to the first token, with the cache and without. */
async function prefillAndAsk({ model, documents, tokens, kills, bytes }: PrefillCampaign) {
  const folder = await Deno.makeTempDir({ prefix: "compy-test-" });
  try {
    const prompts = Array.from({ length: documents }, (_, i) => text(tokens, 1000 + i));
    const lines = prompts.map((prompt, i) => ({
      custom_id: `d${i}`,
      method: "POST",
      url: "/v1/completions",
      body: { prompt, max_tokens: 0 },
    }));
    await Deno.writeTextFile(join(folder, "in.jsonl"), lines.map((line) => JSON.stringify(line)).join("\n"));
    await runKilled(folder, { model, tokens, kills, bytes });
    const outputs = (await Deno.readTextFile(join(folder, "out.jsonl"))).trimEnd().split("\n");
    assertEquals(outputs.length, documents);
    for (const line of outputs) {
      const { stored_tokens } = JSON.parse(line).response.body.usage.prompt_tokens_details;
      assertEquals(stored_tokens, Math.floor(tokens / 32) * 32);
    }
    const questions = prompts.map((prompt, i) => [...prompt, ...text(20, 5000 + i)]);
    const size = { contextLength: tokens + 64, parallel: 1, threads: undefined };
    const cached = await open(model, { folder: join(folder, "prompts"), bytes }, size);
    const withCache = [];
    for (const question of questions) withCache.push(await answer(cached, question));
    for (const { cached } of withCache) assertEquals(cached, Math.floor(tokens / 32) * 32);
    await cached.close();
    const plain = await open(model, undefined, size);
    const without = [];
    for (const question of questions.slice(0, ASKED_WITHOUT)) without.push(await answer(plain, question));
    await plain.close();
    for (const [i, { tokens, logprobs }] of without.entries()) {
      assertEquals([withCache[i].tokens, withCache[i].logprobs], [tokens, logprobs]);
    }
    return { withMs: median(withCache), withoutMs: median(without), bytes: bytesOf(join(folder, "prompts")) };
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

/** Runs the job until it is done, and kills it `kills` times while it computes. */
async function runKilled(
  folder: string,
  { model, tokens, kills, bytes }: Omit<PrefillCampaign, "documents">,
) {
  const random = new Random(kills);
  for (let kill = 0; kill <= kills; kill++) {
    const files = [join(folder, "in.jsonl"), "--out", join(folder, "out.jsonl"), "--model", model];
    const cache = ["--cache-disk", join(folder, "prompts"), "--cache-disk-mb", String(bytes / 1e6)];
    const size = ["--ctx", String(tokens + 64), "--parallel", "2"];
    const args = [
      "run",
      "-q",
      "-P=batch",
      "main.ts",
      "batch",
      "prefill",
      ...files,
      ...cache,
      ...size,
      "--json",
    ];
    const options = { args, cwd: ROOT, stdout: "piped", stderr: "piped" } as const;
    const child = new Deno.Command(Deno.execPath(), options).spawn();
    const said = new Response(child.stderr).text();
    let timer: number | undefined;
    const began = performance.now();
    for await (const part of child.stdout.pipeThrough(new TextDecoderStream())) {
      if (kill === kills) continue;
      // Some kills come while a run computes its first documents, others when a document is done.
      const delay = part.includes('"progress"') ? 0 : (performance.now() - began) * random.below(2);
      if (kill % 2 === 0 || delay === 0) timer ??= setTimeout(() => child.kill("SIGKILL"), delay) as never;
    }
    const { code, signal } = await child.status;
    clearTimeout(timer);
    if (signal !== "SIGKILL") {
      assertEquals(code, 0, await said);
      assert(kill === kills, `done after ${kill} kills of ${kills}: give it more to do`);
    }
  }
}

function median(answers: readonly { firstMs: number }[]): number {
  return answers.map(({ firstMs }) => firstMs).sort((a, b) => a - b)[answers.length >> 1];
}

if (import.meta.main) {
  const { operands: [model], documents, tokens, kills } = campaignLine({
    task: "cache:prefill",
    does:
      "Read documents ahead by a job that is killed again and again, and time a server's first token about each.",
    operands: "MODEL.gguf",
    options: {
      documents: ["documents", 100],
      tokens: ["tokens of each", 4000],
      kills: ["kills of the job", 10],
    },
  });
  const { withMs, withoutMs, bytes } = await prefillAndAsk({ model, documents, tokens, kills, bytes: 1e11 });
  const told =
    `${documents} documents of ${tokens} tokens, ${kills} kills, ${
      (bytes / 1e6).toFixed(0)
    } MB: first token ` +
    `in ${withMs.toFixed(0)} ms, without the cache ${withoutMs.toFixed(0)} ms (${
      (withMs / withoutMs).toFixed(3)
    })\n`;
  await Deno.stdout.write(new TextEncoder().encode(told));
}
