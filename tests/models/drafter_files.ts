/** Seeded models with drafters in their own files. Some models repeat tokens, and their drafters propose repeated tokens. */
import { readPlan } from "../../engine/architectures/registry.ts";
import { openGguf, parseGguf } from "../../engine/gguf/reader.ts";
import { openDrafter } from "../../engine/load/drafters/open.ts";
import type { OpenedDrafter } from "../../engine/load/drafters/types.ts";
import type { CompileOptions } from "../../engine/backend/backend.ts";
import type { Plan } from "../../engine/plan/plan.ts";
import { type CpuModelOptions, KernelModel } from "../../testing/kernel_model.ts";
import { synthesizeDflash } from "../../testing/synth/drafters/dflash.ts";
import { type Eagle3Options, synthesizeEagle3 } from "../../testing/synth/drafters/eagle3.ts";
import { synthesizeGemma4Assistant } from "../../testing/synth/drafters/gemma4_assistant.ts";
import { type Architecture, synthesize } from "../../testing/synth/synth.ts";

/** A seeded model on the kernels, with its drafter. */
export interface DraftingModel {
  readonly model: KernelModel;
  readonly plan: Plan;
  readonly opened: OpenedDrafter;
}

/** Writes both files to a folder, calls `use` with their paths, and removes the folder. */
export async function withFiles<T>(
  model: Uint8Array,
  drafter: Uint8Array,
  use: (model: string, drafter: string) => Promise<T>,
): Promise<T> {
  const folder = await Deno.makeTempDir({ prefix: "compy-test-" });
  const paths = ["model", "drafter"].map((name) => `${folder}/${name}.gguf`);
  try {
    await Deno.writeFile(paths[0], model);
    await Deno.writeFile(paths[1], drafter);
    return await use(paths[0], paths[1]);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

/** Loads a model and its drafter from the bytes of their files. */
export function loadWithDrafter(
  model: Uint8Array,
  drafter: Uint8Array,
  size: CompileOptions | ((plan: Plan) => CompileOptions),
  cpu: CpuModelOptions = {},
): Promise<DraftingModel> {
  return withFiles(model, drafter, async (path, drafterPath) => {
    const opened = (await openDrafter(drafterPath, await openGguf(path)))!;
    const plan = await readPlan(opened.joined, undefined, { drafter: opened.description });
    const compile = typeof size === "function" ? size(plan) : size;
    return { model: await KernelModel.open(opened.joined, plan, compile, cpu), plan, opened };
  });
}

/** Number of tokens and layers of the models. */
export const VOCABULARY = 500;
export const LAYERS = 4;
/** Vocabulary of drafters that have their own: the model's tokens in reverse order. */
export const REVERSED = Array.from({ length: VOCABULARY }, (_, i) => VOCABULARY - 1 - i);

export interface Files {
  readonly model: Uint8Array<ArrayBuffer>;
  readonly drafter: Uint8Array<ArrayBuffer>;
}

function floatsOf(bytes: Uint8Array, name: string): Float32Array {
  const { offset, byteLength } = parseGguf(bytes).tensors.get(name)!;
  return new Float32Array(bytes.buffer as ArrayBuffer, offset, byteLength / 4);
}

/** A model's architecture, followed by the kind of drafter if it is DFlash. */
export type Case = "llama" | "qwen35" | "gemma4" | "llama with DFlash" | "qwen35 with DFlash";

/** Returns a seeded model that often repeats tokens, and a drafter that proposes the last token again. */
export function repeating(name: Case): Files {
  const architecture = name.split(" ")[0] as Architecture;
  const model = synthesize({ architecture, types: ["F32"], seed: 1, layers: LAYERS });
  if (name.endsWith("DFlash")) return repeatingDflash(model);
  return architecture === "gemma4" ? repeatingGemma4(model) : repeatingEagle3(model);
}

/**
 * Returns a drafter that proposes the model's most likely token. Its vocabulary has the model's tokens in reverse
 * order.
 */
function repeatingEagle3(model: Uint8Array<ArrayBuffer>): Files {
  const options: Eagle3Options = { type: "F32", seed: 1, layers: [1, 2, LAYERS], tokens: REVERSED };
  const drafter = synthesizeEagle3(model, options);
  proposeLastRow(model, drafter);
  // The drafter's layer adds nothing.
  for (const name of ["attn_output", "ffn_down"]) floatsOf(drafter, `blk.0.${name}.weight`).fill(0);
  return { model, drafter };
}

/**
 * Makes the drafter's projection return the last layer's row. Its output matrix has the model's tokens in reverse
 * order.
 */
function proposeLastRow(model: Uint8Array, drafter: Uint8Array): void {
  const embedding = floatsOf(model, "token_embd.weight");
  if (parseGguf(model).tensors.has("output.weight")) floatsOf(model, "output.weight").set(embedding);
  const width = embedding.length / VOCABULARY;
  const output = floatsOf(drafter, "output.weight");
  for (const [i, token] of REVERSED.entries()) {
    output.set(embedding.subarray(token * width, (token + 1) * width), i * width);
  }
  floatsOf(drafter, "output_norm.weight").set(floatsOf(model, "output_norm.weight"));
  const projection = floatsOf(drafter, "fc.weight").fill(0);
  for (let row = 0; row < width; row++) projection[row * 3 * width + 2 * width + row] = 1;
}

/** Returns a drafter with one layer, which computes the mean of the last rows. Its mask token adds nothing. */
function repeatingDflash(model: Uint8Array<ArrayBuffer>): Files {
  const embedding = floatsOf(model, "token_embd.weight");
  const width = embedding.length / VOCABULARY;
  const mask = VOCABULARY - 1;
  embedding.fill(0, mask * width);
  const drafter = synthesizeDflash(model, {
    type: "F32",
    seed: 1,
    layers: [1, 2, LAYERS],
    tokens: REVERSED,
    shape: { blocks: 1, heads: width / 32, kvHeads: width / 32 },
    mask,
    rows: 8,
    window: 8,
  });
  proposeLastRow(model, drafter);
  for (const name of ["attn_q", "ffn_down"]) floatsOf(drafter, `blk.0.${name}.weight`).fill(0);
  for (const name of ["attn_v", "attn_output"]) {
    const matrix = floatsOf(drafter, `blk.0.${name}.weight`).fill(0);
    for (let row = 0; row < width; row++) matrix[row * width + row] = 1;
  }
  return { model, drafter };
}

/**
 * Returns a drafter with the first columns of the model's embedding. Its layers add nothing. It drafts a wrong token
 * after every third token.
 */
function repeatingGemma4(model: Uint8Array<ArrayBuffer>): Files {
  for (const name of parseGguf(model).tensors.keys()) {
    if (!/post_(attention_norm|ffw_norm|norm)/.test(name)) continue;
    const norm = floatsOf(model, name);
    norm.set(norm.map((weight) => 0.25 * weight));
  }
  const drafter = synthesizeGemma4Assistant(model, { type: "F32", seed: 1 });
  const [from, to] = [model, drafter].map((bytes) => floatsOf(bytes, "token_embd.weight"));
  const [width, columns] = [from, to].map(({ length }) => length / VOCABULARY);
  for (let token = 0; token < VOCABULARY; token++) {
    const drafted = token % 3 === 0 ? token + 1 : token;
    to.set(from.subarray(token * width, token * width + columns), drafted * columns);
  }
  const projection = floatsOf(drafter, "nextn.pre_projection.weight").fill(0);
  for (let row = 0; row < columns; row++) projection[row * 2 * width + row] = 1;
  for (const name of parseGguf(drafter).tensors.keys()) {
    if (/attn_output|ffn_down/.test(name)) floatsOf(drafter, name).fill(0);
  }
  return { model, drafter };
}
