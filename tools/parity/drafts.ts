/**
 * Writes tests/models/draft_parity_expected.json (`deno task parity:drafts`): the exact results of drafting layers,
 * computed by exact/. README.md in this folder lists the required programs.
 */
import { join } from "@std/path";
import {
  ASSISTANT_MODELS,
  DFLASH_MODELS,
  DRAFT_MODELS,
  DRAFT_PROMPTS,
  DRAFT_STEPS,
  DRAFT_TABLE_URL,
  EAGLE3_MODELS,
} from "../../tests/models/draft_cases.ts";
import { digest, packStep, prompt, TOP } from "../../tests/models/parity_cases.ts";
import { synthesize } from "../../testing/synth/synth.ts";
import { EXACT, run } from "./programs.ts";

const folder = await Deno.makeTempDir({ prefix: "compy-parity-" });
try {
  const table: Record<string, { sha256: string; cases: string[][] }> = {};
  for (
    const { name, options, drafter } of [
      ...DRAFT_MODELS,
      ...EAGLE3_MODELS,
      ...ASSISTANT_MODELS,
      ...DFLASH_MODELS,
    ]
  ) {
    const bytes = synthesize(options);
    const path = join(folder, `${name}.gguf`);
    await Deno.writeFile(path, bytes);
    const drafterPath = join(folder, `${name}-drafter.gguf`);
    if (drafter) await Deno.writeFile(drafterPath, drafter.make(bytes));
    const from = drafter ? ["--drafter", drafterPath] : ["--draft"];
    const args = [EXACT, ...from, "--steps", `${DRAFT_STEPS}`, "--top", `${TOP}`, path];
    const lines = await run("python3", args, folder, JSON.stringify(DRAFT_PROMPTS.map(prompt)));
    const cases = lines.trimEnd().split("\n").map((line) =>
      (JSON.parse(line).steps as { top: [number, number][] }[]).map(({ top }) =>
        packStep({ ids: top.map(([id]) => id), logprobs: top.map(([, p]) => p) })
      )
    );
    table[name] = { sha256: await digest(bytes), cases };
  }
  await Deno.writeTextFile(DRAFT_TABLE_URL, JSON.stringify(table, undefined, 2) + "\n");
} finally {
  await Deno.remove(folder, { recursive: true });
}
