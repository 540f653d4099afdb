/** Runs seeded vision models and collects their answers. */
import type { Engine } from "../../../engine/api/engine.ts";
import type { GenerateRequest } from "../../../engine/api/request.ts";
import { loadEngine } from "../../../engine/load/load.ts";
import { firstTier, fullTier } from "../../../testing/tier.ts";
import { type Files, type TowerName, TOWERS, type VisionOptions, withFiles } from "./files.ts";

export async function withModel(
  options: VisionOptions,
  test: (engine: Engine, files: Files) => Promise<void>,
  contextLength = 512,
) {
  await withFiles(options, async (files) => {
    const { engine } = await loadEngine({
      model: files.model,
      backend: "cpu",
      threads: 2,
      contextLength,
    });
    try {
      await test(engine, files);
    } finally {
      await engine.close();
    }
  });
}

export async function answer(engine: Engine, request: GenerateRequest) {
  const tokens: { token: number; logprob: number }[] = [];
  let cached = 0;
  for await (const event of engine.submit({ sampling: { temperature: 0 }, logprobs: 0, ...request })) {
    if (event.type === "token") tokens.push({ token: event.token, logprob: event.logprob! });
    if (event.type === "finish") cached = event.usage.cachedTokens;
  }
  return { tokens, cached };
}

export const TEXT = [5, 9, 33, 71, 8, 120, 44];

/** Returns the token that stands for an image in prompts. */
export function markOf({ tokenizer }: Engine, tower: TowerName): number {
  return tokenizer.encode(TOWERS[tower].mark, { parseSpecial: true })[0];
}

/** The first tier leaves out towers whose decoder is like another tower's. */
export const tierOf = (tower: TowerName) =>
  ["idefics3", "pixtral", "gemma4_31b"].includes(tower) ? fullTier : firstTier;
