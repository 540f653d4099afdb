/** What the test of layers that draft asks of the kernels, and the exact answers that `deno task parity:drafts` wrote down for it. */
import type { TensorType } from "../../engine/gguf/types.ts";
import type { SynthOptions } from "../../testing/synth/synth.ts";

export interface DraftModel {
  /** Its key in the table. */
  readonly name: string;
  readonly options: SynthOptions;
}

/** The hybrid's layers before the one that drafts: three of Gated DeltaNet, one of attention. */
const LAYERS = 4;

const model = (architecture: "qwen35" | "qwen35moe", type: TensorType): DraftModel => ({
  name: `${architecture}-${type}`,
  options: { architecture, types: [type], seed: 1, layers: LAYERS, drafts: 1 },
});

export const DRAFT_MODELS: readonly DraftModel[] = [
  ...(["F32", "BF16", "Q8_0", "Q4_K"] as const).map((type) => model("qwen35", type)),
  model("qwen35moe", "F32"),
];

/** Tokens of the prompts: no draft comes before the second. */
export const DRAFT_PROMPTS: readonly number[] = [2, 9, 70, 300];
/** Tokens that are drafted one after the other. */
export const DRAFT_STEPS = 3;

/** By model: its digest and, by prompt, the steps as parity_cases.ts packs them. */
export type DraftTable = Readonly<
  Record<string, { readonly sha256: string; readonly cases: readonly string[][] }>
>;

export const DRAFT_TABLE_URL = new URL("draft_parity_expected.json", import.meta.url);
