import { assert, assertEquals } from "@std/assert";
import { fromFileUrl, join } from "@std/path";
import { answer, openAll, PROMPTS, writeModels } from "./prompt_cache_models.ts";
import { Random } from "../../testing/random.ts";

/**
 * Kills processes that write the prompt cache (`deno task storms --only cache-kills`). Answers must be correct, starts
 * must succeed, and the folder must stay within its limit.
 */

/** The child's output for one answer. */
export interface Answered {
  readonly model: number;
  readonly prompt: number;
  readonly tokens: readonly number[];
  readonly cached: number;
  readonly hits: number;
}

const CHILD = fromFileUrl(new URL("prompt_cache_child.ts", import.meta.url));

/** Limit of the cache folder: a third of the size of all prompts. */
export const BOUND = 4_000_000;

/**
 * Kills a process this many times at different moments. Returns the number of answers, and of answers from the disk.
 */
export async function killOften(kills: number, seed: number, maxLifeMs = 1500) {
  const folder = await Deno.makeTempDir({ prefix: "compy-test-" });
  try {
    await writeModels(folder);
    const cache = join(folder, "prompts");
    const expected = await truth(folder);
    const random = new Random(seed);
    const sum = { answers: 0, hits: 0, mostBytes: 0 };
    for (let kill = 0; kill < kills; kill++) {
      const lines = await runAndKill(
        [folder, cache, String(BOUND), String(seed + kill)],
        random.below(maxLifeMs),
      );
      for (const { model, prompt, tokens } of lines) assertEquals(tokens, expected[model][prompt]);
      sum.answers += lines.length;
      sum.hits += [0, 1].reduce(
        (hits, model) =>
          hits + Math.max(0, ...lines.filter((line) => line.model === model).map((line) => line.hits)),
        0,
      );
      const bytes = bytesOf(cache);
      sum.mostBytes = Math.max(sum.mostBytes, bytes);
      assert(bytes <= BOUND, `after kill ${kill} the folder has ${bytes} bytes`);
    }
    return sum;
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

/** Returns the answers of engines without a prompt cache. */
async function truth(models: string): Promise<number[][][]> {
  const engines = await openAll(models);
  const all: number[][][] = [];
  for (const engine of engines) {
    const answers = [];
    for (const prompt of PROMPTS) answers.push((await answer(engine, prompt)).tokens);
    all.push(answers);
    await engine.close();
  }
  return all;
}

async function runAndKill(args: string[], lifeMs: number): Promise<Answered[]> {
  const run = ["run", "-q", "--no-check", "-P=test", CHILD, ...args];
  const child = new Deno.Command(Deno.execPath(), { args: run, stdout: "piped", stderr: "piped" }).spawn();
  const stderr = new Response(child.stderr).text();
  let text = "";
  let timer: number | undefined;
  for await (const part of child.stdout.pipeThrough(new TextDecoderStream())) {
    text += part;
    timer ??= setTimeout(() => child.kill("SIGKILL"), lifeMs) as unknown as number;
  }
  const { signal } = await child.status;
  assertEquals(signal, "SIGKILL", await stderr);
  assert(text.startsWith('"ready"'), `it did not start: ${await stderr}`);
  return text.split("\n").slice(1, -1).map((line) => JSON.parse(line));
}

/** Returns the bytes that the files of a folder occupy. */
export function bytesOf(folder: string): number {
  let sum = 0;
  for (const { name } of Deno.readDirSync(folder)) {
    if (name !== "prompts.secret") sum += Math.ceil(Deno.statSync(join(folder, name)).size / 4096) * 4096;
  }
  return sum;
}
