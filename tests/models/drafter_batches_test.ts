/** Drafters in their own files with batches, a resumed batch and LoRA adapters: drafts do not change answers. */
import { assert, assertEquals, assertNotEquals } from "@std/assert";
import { loadModel, type LoadOptions, runBatch } from "../../mod.ts";
import { fullTier } from "../../testing/tier.ts";
import { type Case, repeating, withFiles } from "./drafter_files.ts";
import { synthAdapter } from "./lora_files.ts";

const LINES = 16;

/** Requests for answers of 48 tokens; half of the requests are greedy. */
function line(i: number): string {
  const sampling = i % 2 === 0 ? { temperature: 0 } : { temperature: 0.7, seed: i };
  const prompt = [40 + i, 41 + i, 50, 43 + i];
  const body = { prompt, max_tokens: 48, ignore_eos: true, logprobs: 1, ...sampling };
  return JSON.stringify({ custom_id: `q${i}`, method: "POST", url: "/v1/completions", body });
}

interface Answers {
  readonly choices: readonly unknown[];
  readonly accepted: number;
}

async function answersIn(path: string): Promise<Answers> {
  const bodies = (await Deno.readTextFile(path)).trim().split("\n").map((line) => JSON.parse(line));
  let accepted = 0;
  const choices = bodies.map(({ custom_id, response: { status_code, body } }) => {
    accepted += body.usage.completion_tokens_details?.accepted_prediction_tokens ?? 0;
    return [custom_id, status_code, body.choices];
  });
  return { choices, accepted };
}

/** Runs a batch in `folder`. With `stopAfter`, stops the batch after this number of answers and resumes it. */
async function run(
  folder: string,
  name: string,
  path: string,
  options: LoadOptions,
  stopAfter?: number,
): Promise<Answers> {
  await using model = await loadModel(path, { threads: 1, parallel: 4, ctx: 128, ...options });
  const files = { input: `${folder}/in.jsonl`, output: `${folder}/${name}.jsonl` };
  if (stopAfter !== undefined) {
    const stop = new AbortController();
    const stopped = await runBatch(model, {
      ...files,
      parallel: 4,
      onProgress: ({ completed }) => completed >= stopAfter && stop.abort(),
      signal: stop.signal,
    });
    const { completed } = stopped.counts;
    assert(stopped.state === "stopped" && completed < LINES, `${completed} of ${LINES}`);
  }
  assertEquals((await runBatch(model, files)).counts.completed, LINES);
  return await answersIn(files.output);
}

const CASES: readonly Case[] = ["llama", "gemma4", "llama with DFlash"];

for (const name of CASES) {
  fullTier.test(`drafters: ${name}'s drafts change no answer of a batch, also after a stop and with an adapter`, async () => {
    const { model, drafter } = repeating(name);
    // The adapter changes little, so the model still repeats tokens.
    const adapter = synthAdapter(model, { seed: 2, rank: 4, alpha: 40 });
    await withFiles(model, drafter, async (path, draft) => {
      const folder = path.replace(/\/[^/]*$/, "");
      await Deno.writeFile(`${folder}/adapter.gguf`, adapter);
      await Deno.writeTextFile(
        `${folder}/in.jsonl`,
        Array.from({ length: LINES }, (_, i) => line(i)).join("\n"),
      );
      const drafts = { draft, speculate: "draft" } as const;
      const lora = [`${folder}/adapter.gguf`];
      const plain = await run(folder, "plain", path, { speculate: "off" });
      const drafted = await run(folder, "drafted", path, drafts, 5);
      assertEquals(drafted.choices, plain.choices);
      const adapted = await run(folder, "adapted", path, { speculate: "off", lora });
      const both = await run(folder, "both", path, { ...drafts, lora }, 5);
      assertEquals(both.choices, adapted.choices);
      assertNotEquals(adapted.choices, plain.choices);
      assert(
        plain.accepted === 0 && drafted.accepted > 0 && both.accepted > 0,
        `${drafted.accepted}, ${both.accepted}`,
      );
    });
  });
}
