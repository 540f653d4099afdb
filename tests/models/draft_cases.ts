/** Cases of the draft layer test, with the exact answers that `deno task parity:drafts` generated. */
import type { TensorType } from "../../engine/gguf/types.ts";
import type { Architecture, SynthOptions } from "../../testing/synth/synth.ts";

export interface DraftModel {
  /** The model's key in the table of exact answers. */
  readonly name: string;
  readonly options: SynthOptions;
}

/** Layers before the draft layer: of the hybrids three of Gated DeltaNet, one of attention. */
const LAYERS = 4;

const model = (architecture: Architecture, type: TensorType): DraftModel => ({
  name: `${architecture}-${type}`,
  options: { architecture, types: [type], seed: 1, layers: LAYERS, drafts: 1 },
});

export const DRAFT_MODELS: readonly DraftModel[] = [
  ...(["F32", "BF16", "Q8_0", "Q4_K"] as const).map((type) => model("qwen35", type)),
  ...(["qwen35moe", "qwen3next", "glm4moe", "deepseek2", "bailingmoe2", "hy_v3", "nemotron_h_moe"] as const)
    .map((architecture) => model(architecture, "F32")),
];

/** Number of prompt tokens in each case. The first draft follows the second token. */
export const DRAFT_PROMPTS: readonly number[] = [2, 9, 70, 300];
/** Number of consecutive draft tokens. */
export const DRAFT_STEPS = 3;

/** Table of exact answers: for each model its digest and, per prompt, the steps in the format of parity_cases.ts. */
export type DraftTable = Readonly<
  Record<string, { readonly sha256: string; readonly cases: readonly string[][] }>
>;

export const DRAFT_TABLE_URL = new URL("draft_parity_expected.json", import.meta.url);
