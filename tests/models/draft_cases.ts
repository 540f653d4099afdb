/** Cases of the draft layer test, with the exact answers that `deno task parity:drafts` generated. */
import type { TensorType } from "../../engine/gguf/types.ts";
import { type DflashOptions, synthesizeDflash } from "../../testing/synth/drafters/dflash.ts";
import { type Eagle3Options, synthesizeEagle3 } from "../../testing/synth/drafters/eagle3.ts";
import { synthesizeGemma4Assistant } from "../../testing/synth/drafters/gemma4_assistant.ts";
import type { Architecture, SynthOptions } from "../../testing/synth/synth.ts";

export interface DraftModel {
  /** The model's key in the table of exact answers. */
  readonly name: string;
  readonly options: SynthOptions;
  /** A drafter in another file, used instead of the model's own draft layer. */
  readonly drafter?: DrafterCase;
}

export interface DrafterCase {
  /** Returns the bytes of the drafter's file for a model's file. */
  readonly make: (model: Uint8Array) => Uint8Array<ArrayBuffer>;
  /** The drafter's own vocabulary, as token ids of the model. */
  readonly tokens?: readonly number[];
  /** Whether all tokens of a draft have the position of the first one, and attend to the tokens before it. */
  readonly onePosition?: boolean;
  /** The mask token of a drafter that drafts all tokens in one pass. */
  readonly mask?: number;
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

/** Returns a model without a draft layer, and its EAGLE-3 drafter. */
const drafted = (
  name: string,
  architecture: Architecture,
  drafter: Omit<Eagle3Options, "seed">,
): DraftModel => ({
  name: `eagle3-${name}`,
  options: { architecture, types: [drafter.type], seed: 1, layers: LAYERS },
  drafter: { tokens: drafter.tokens, make: (model) => synthesizeEagle3(model, { ...drafter, seed: 1 }) },
});

/**
 * The drafters differ in their norms and in the tensors that they share with the model. Layer 4 means the last layer's
 * output.
 */
export const EAGLE3_MODELS: readonly DraftModel[] = [
  drafted("llama-F32", "llama", {
    type: "F32",
    layers: [1, 2, LAYERS],
    tokens: Array.from({ length: 200 }, (_, i) => 2 * i + 1),
  }),
  drafted("qwen35-Q8_0", "qwen35", {
    type: "Q8_0",
    layers: [0, 2, 3],
    columns: 128,
    normBeforeResidual: true,
    normBeforeFc: true,
  }),
  drafted("qwen3moe-F32", "qwen3moe", { type: "F32", layers: [1, 2, 3], sharesOutput: true }),
  ...(["gemma4", "falcon-h1", "lfm2", "afmoe", "nemotron_h"] as const).map((architecture) => (
    drafted(`${architecture}-F32`, architecture, { type: "F32", layers: [1, 3, LAYERS] })
  )),
];

/** Returns a model of Gemma 4 and its drafter. */
const assisted = (architecture: Architecture, type: TensorType): DraftModel => ({
  name: `assistant-${architecture}-${type}`,
  options: { architecture, types: [type], seed: 1 },
  drafter: { onePosition: true, make: (model) => synthesizeGemma4Assistant(model, { type, seed: 1 }) },
});

/** The first model's last layers read earlier layers' KV caches. Prompts are longer than the window. */
export const ASSISTANT_MODELS: readonly DraftModel[] = [
  assisted("gemma4", "F32"),
  assisted("gemma4", "Q8_0"),
  assisted("gemma4_moe", "F32"),
];

const MASK = 498;
/** Returns a model and its DFlash drafter. */
const inOnePass = (
  architecture: Architecture,
  drafter: Omit<DflashOptions, "seed" | "mask">,
): DraftModel => ({
  name: `dflash-${architecture}-${drafter.type}`,
  options: { architecture, types: [drafter.type], seed: 1, layers: LAYERS },
  drafter: {
    tokens: drafter.tokens,
    mask: MASK,
    make: (model) => synthesizeDflash(model, { ...drafter, mask: MASK, seed: 1 }),
  },
});

/**
 * The drafters differ in the tensors that they share with the model. Layers with a window are causal, except in the
 * last drafter.
 */
export const DFLASH_MODELS: readonly DraftModel[] = [
  inOnePass("llama", {
    type: "F32",
    layers: [1, 2, LAYERS],
    tokens: Array.from({ length: 200 }, (_, i) => 2 * i + 1),
  }),
  inOnePass("qwen35", { type: "Q8_0", layers: [0, 3], columns: 128, window: 40, slides: [true, false] }),
  inOnePass("qwen3moe", {
    type: "F32",
    layers: [1, 2, 3, LAYERS],
    sharesOutput: true,
    window: 8,
    causal: false,
  }),
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
