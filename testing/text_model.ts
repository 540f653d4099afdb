import { loadEngine } from "../engine/load/load.ts";
import type { LoadOptions } from "../engine/load/options.ts";
import type { Engine } from "../engine/api/engine.ts";
import { TEST_BACKEND } from "./kernel_model.ts";
import { synthesize, type SynthOptions, type SynthTexts } from "./synth/synth.ts";

/** A seeded model's rerank template. */
export const RANK_TEMPLATE = "Judge.\n<Query>: {query}\n<Document>: {document}<|endoftext|>answer";

/** Runs `test` with the engine and file of a seeded text model, after `change`. */
export async function withTextModel(
  texts: SynthTexts,
  options:
    & Partial<LoadOptions>
    & Partial<Pick<SynthOptions, "architecture" | "types" | "layers" | "seed">>
    & { readonly change?: (bytes: Uint8Array<ArrayBuffer>) => void },
  test: (engine: Engine, path: string) => Promise<void>,
): Promise<void> {
  const { architecture = "qwen3", types = ["F32"], layers, seed = 5, change, ...load } = options;
  const folder = await Deno.makeTempDir();
  try {
    const path = `${folder}/texts.gguf`;
    const bytes = synthesize({ architecture, types, layers, seed, texts });
    change?.(bytes);
    await Deno.writeFile(path, bytes);
    const { engine } = await loadEngine({
      backend: TEST_BACKEND,
      threads: 2,
      contextLength: 1024,
      ...load,
      model: path,
    });
    try {
      await test(engine, path);
    } finally {
      await engine.close();
    }
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}
