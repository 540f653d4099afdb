import { assertEquals } from "@std/assert";
import { fromFileUrl } from "@std/path";
import { synthesize, type SynthOptions } from "../../testing/synth/synth.ts";
import { buildPlan } from "../architectures/registry.ts";
import { parseGguf } from "../gguf/reader.ts";
import type { GgufFile } from "../gguf/types.ts";
import { printPlan } from "./print.ts";
import {
  type SmallHybrid,
  type SmallLfm2,
  type SmallMambaHybrid,
  smallModel,
  type SmallTransformer,
} from "./testing.ts";

/*
 * Compiled plans of each architecture, as text. If a change leaves these files alone, no graph changed. To
 * update them on purpose, run `UPDATE_SNAPSHOTS=1 deno test -P=test engine/plan`.
 */
const MODELS: Readonly<Record<string, SmallTransformer | SmallHybrid | SmallLfm2 | SmallMambaHybrid>> = {
  "llama-q4_0": { architecture: "llama", type: "Q4_0", output: true },
  "llama-f16-tied": { architecture: "llama", type: "F16" },
  "llama-mixed": {
    architecture: "llama",
    type: "Q4_K",
    types: { attn_v: "Q6_K", ffn_down: "F16", token_embd: "Q6_K" },
  },
  "qwen2-q8_0": { architecture: "qwen2", type: "Q8_0", biases: true },
  "qwen3-bf16": { architecture: "qwen3", type: "BF16", headNorms: true, output: true },
  "qwen3-mxfp4": { architecture: "qwen3", type: "MXFP4", headNorms: true, types: { token_embd: "Q8_0" } },
  "qwen3moe-q4_0": { architecture: "qwen3moe", type: "Q4_0", headNorms: true, output: true },
  "qwen3moe-f16": { architecture: "qwen3moe", type: "F16", headNorms: true, types: { ffn_up_exps: "Q8_0" } },
  "qwen35-q8_0": { architecture: "qwen35", type: "Q8_0" },
  "qwen35-f16": { architecture: "qwen35", type: "F16" },
  "lfm2-q8_0": { architecture: "lfm2", type: "Q8_0" },
  "lfm2-f16": { architecture: "lfm2", type: "F16" },
  "lfm2moe-q4_0": { architecture: "lfm2moe", type: "Q4_0" },
  "granitehybrid-f16": { architecture: "granitehybrid", type: "F16" },
  "falcon-h1-q8_0": { architecture: "falcon-h1", type: "Q8_0" },
  "nemotron_h-q8_0": { architecture: "nemotron_h", type: "Q8_0" },
};

/** Further models, in the shapes of the synthetic test models. */
const SYNTHETIC: Readonly<Record<string, Pick<SynthOptions, "architecture" | "types" | "drafts">>> = {
  "qwen35-drafts-q8_0": { architecture: "qwen35", types: ["Q8_0"], drafts: 1 },
  "qwen35moe-q8_0": { architecture: "qwen35moe", types: ["Q8_0"] },
  "qwen3next-q8_0": { architecture: "qwen3next", types: ["Q8_0"] },
  "gpt-oss-mxfp4": { architecture: "gpt-oss", types: ["MXFP4"] },
  "gemma3-q8_0": { architecture: "gemma3", types: ["Q8_0"] },
  "gemma-embedding-q8_0": { architecture: "gemma-embedding", types: ["Q8_0"] },
};

const FILES: readonly (readonly [name: string, () => GgufFile])[] = [
  ...Object.entries(MODELS).map(([name, model]) => [name, () => smallModel(model)] as const),
  ...Object.entries(SYNTHETIC).map(([name, model]) =>
    [name, () => parseGguf(synthesize({ ...model, seed: 1, layers: 2 }))] as const
  ),
];

for (const [name, file] of FILES) {
  Deno.test(`plan: ${name} matches its snapshot`, async () => {
    const path = fromFileUrl(new URL(`snapshots/${name}.txt`, import.meta.url));
    const drafts = name.includes("-drafts-");
    const text = printPlan(buildPlan(file(), undefined, undefined, { drafts }));
    if (Deno.env.get("UPDATE_SNAPSHOTS")) await Deno.writeTextFile(path, text);
    assertEquals(text, await Deno.readTextFile(path));
  });
}
