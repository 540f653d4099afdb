/** Small models with caches of every kind, and prompts with common beginnings, for tests of the prompt cache. */
import { join } from "@std/path";
import { loadEngine } from "../../engine/load/load.ts";
import type { LoadOptions } from "../../engine/load/options.ts";
import type { Engine, KvType } from "../../engine/mod.ts";
import { TEST_BACKEND } from "../../testing/kernel_model.ts";
import { type Architecture, synthesize } from "../../testing/synth/synth.ts";

const ARCHITECTURES: readonly Architecture[] = ["qwen3", "qwen35", "lfm2", "granitehybrid", "gpt-oss"];

/** Prompts for the cache tests. Some share long prefixes. */
export const PROMPTS: readonly number[][] = Array.from({ length: 24 }, (_, i) => [
  ...text(70 + i % 3 * 90, i % 4),
  ...text(11 + i * 7 % 40, 100 + i),
]);

export function text(length: number, seed: number): number[] {
  return Array.from({ length }, (_, at) => (seed * 61 + at * at * 7 + at * 3) % 250);
}

/** Writes the models' files into a folder. */
export async function writeModels(folder: string): Promise<void> {
  for (const architecture of ARCHITECTURES) {
    const model = synthesize({ architecture, seed: 7, types: ["Q8_0"], layers: 4 });
    await Deno.writeFile(join(folder, `${architecture}.gguf`), model);
  }
}

/** The models of a folder, over one prompt cache folder. */
export function openAll(
  models: string,
  promptCache?: LoadOptions["promptCache"],
  kvType?: KvType,
): Promise<Engine[]> {
  return Promise.all(
    ARCHITECTURES.map((name) => open(join(models, `${name}.gguf`), promptCache, { kvType })),
  );
}

export async function open(
  model: string,
  promptCache?: LoadOptions["promptCache"],
  more: Partial<LoadOptions> = {},
): Promise<Engine> {
  const size = { contextLength: 512, parallel: 4, threads: 1 };
  return (await loadEngine({ model, backend: TEST_BACKEND, promptCache, ...size, ...more })).engine;
}

/** The greedy answer to a prompt, with its tokens' log-probabilities. */
export async function answer(engine: Engine, prompt: readonly number[], maxTokens = 8, cacheSalt?: string) {
  const [tokens, logprobs]: [number[], number[]] = [[], []];
  const sampling = { temperature: 0 };
  let cached = 0;
  let stored: number | undefined;
  const began = performance.now();
  let firstMs = 0;
  for await (
    const event of engine.submit({ prompt, maxTokens, sampling, logprobs: 0, ignoreEos: true, cacheSalt })
  ) {
    if (event.type === "token") {
      firstMs ||= performance.now() - began;
      tokens.push(event.token);
      logprobs.push(event.logprob!);
    } else if (event.type === "finish") {
      cached = event.usage.cachedTokens;
      stored = event.usage.stored?.tokens;
    }
  }
  return { tokens, logprobs, cached, stored, firstMs };
}
