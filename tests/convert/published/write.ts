/** Writes seeded models as their makers would publish them: folders with config.json, tokenizer.json and weights. */
import { join } from "@std/path";
import { interleavedPairs } from "../../../convert/order.ts";
import { Written } from "../../../convert/testing.ts";
import {
  safetensors,
  type StoredTensor,
  storeFloats,
  writeCheckpoint,
} from "../../../testing/checkpoints.ts";
import type { Floats, Published } from "./model.ts";
import { synthesize } from "../../../testing/synth/synth.ts";

/** Returns rows in published order, from rows in rotary pairs. */
function inHalves({ shape, values }: Floats, headDim: number): Float32Array {
  const [rows, columns] = shape;
  const out = new Float32Array(values.length);
  let at = 0;
  for (const [first, count] of interleavedPairs(rows / headDim, headDim)) {
    for (let row = first; row < first + count; row++, at++) {
      out.set(values.subarray(at * columns, (at + 1) * columns), row * columns);
    }
  }
  return out;
}

/** Returns the checkpoint's tensors for a seeded file. */
function tensorsOf(from: Written, of: Published): Map<string, StoredTensor> {
  const tensors = new Map<string, StoredTensor>();
  const floats = (name: string): Floats => {
    const { shape } = from.gguf.tensors.get(name)!;
    return { shape: shape.toReversed(), values: from.values(name) };
  };
  for (const name of from.gguf.tensors.keys()) {
    const [, module, part] = /^(.*)\.(weight|bias)$/.exec(name) ?? [];
    const [ours, theirs] = of.names.find(([ours]) => module !== undefined && ours.test(module)) ?? [];
    if (!ours) continue;
    const { shape, values } = floats(name);
    const isNorm = /norm$/.test(module) && part === "weight";
    const turned = of.halves && /attn_(q|k)$/.test(module);
    const isShifted = of.shiftedNorms === "of layers" ? name.startsWith("blk.") : of.shiftedNorms;
    const stored = isNorm && isShifted
      ? values.map((weight) => weight - 1)
      : turned
      ? inHalves({ shape, values }, of.halves!.headDim)
      : values;
    tensors.set(`${module.replace(ours, theirs!)}.${part}`, storeFloats("F32", [...shape], stored));
  }
  of.change?.(tensors, floats);
  return tensors;
}

/** Writes sentence-transformers' modules, with two matrices after pooling. */
async function writeDense(folder: string, from: Written): Promise<void> {
  const modules = ["Transformer", "Pooling", "Dense", "Dense", "Normalize"].map((type, i) => {
    return { idx: i, path: i === 0 ? "" : `${i}_${type}`, type: `sentence_transformers.models.${type}` };
  });
  await Deno.writeTextFile(join(folder, "modules.json"), JSON.stringify(modules));
  const put = async (at: string, config: unknown) => {
    await Deno.mkdir(join(folder, at));
    await Deno.writeTextFile(join(folder, at, "config.json"), JSON.stringify(config));
  };
  await put("1_Pooling", { pooling_mode_mean_tokens: true });
  for (const i of [2, 3]) {
    const { shape: [inputs, outputs] } = from.gguf.tensors.get(`dense_${i}.weight`)!;
    const activation = "torch.nn.modules.linear.Identity";
    await put(`${i}_Dense`, {
      in_features: inputs,
      out_features: outputs,
      bias: false,
      activation_function: activation,
    });
    const weight = storeFloats("F32", [outputs, inputs], from.values(`dense_${i}.weight`));
    await Deno.writeFile(
      join(folder, `${i}_Dense`, "model.safetensors"),
      safetensors([["linear.weight", weight]]),
    );
  }
}

/** Writes the checkpoint into a folder; returns the seeded file. */
export async function writePublished(folder: string, of: Published): Promise<Written> {
  const seeded = join(folder, "seeded.gguf");
  const { architecture, layers } = of;
  await Deno.writeFile(seeded, synthesize({ architecture, layers, types: ["F32"], seed: 1 }));
  const from = await Written.read(seeded);
  const tensors = tensorsOf(from, of);
  await writeCheckpoint(folder, {
    ...of.tokenizer,
    config: of.config,
    tensors,
    shards: 1,
  });
  if (of.dense) await writeDense(folder, from);
  return from;
}
