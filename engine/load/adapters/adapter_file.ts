/** Reads GGUF files of LoRA adapters, as llama.cpp's convert_lora_to_gguf writes them. */
import { GgufError, quote } from "../../gguf/errors.ts";
import { openGguf } from "../../gguf/reader.ts";
import type { OpenSource } from "../../gguf/byte_source.ts";
import type { GgufFile, TensorInfo } from "../../gguf/types.ts";
import { fingerprintModel } from "../fingerprint.ts";
import { isReadAsFloats } from "../../gguf/float_tensor.ts";

/** The two matrices of an adapter for a tensor of its model: b (a x) is added to the tensor's product with x. */
export interface LowRank {
  readonly rank: number;
  readonly a: TensorInfo; // [columns, rank]
  readonly b: TensorInfo; // [rank, rows]
  /** Factor of the product: alpha / rank. */
  readonly factor: number;
}

export interface AdapterFile {
  readonly file: GgufFile;
  /** SHA-256 of the content. */
  readonly fingerprint: string;
  /** The pairs of matrices by the name of the model's tensor. */
  readonly pairs: ReadonlyMap<string, LowRank>;
}

const SUFFIX = /\.lora_([ab])$/;
const ACTIVATED = "adapter.alora.invocation_tokens";

/**
 * Reads an adapter's header and checks it against the model's header. Throws GgufError for an adapter of another model,
 * and for an adapter that compy does not support.
 */
export async function openAdapter(path: string, model: GgufFile, open?: OpenSource): Promise<AdapterFile> {
  const file = await openGguf(path, open);
  checkKind(file, model);
  const alpha = file.metadata.getNumber("adapter.lora.alpha", 0);
  const pairs = new Map<string, LowRank>();
  for (const name of baseNames(file)) pairs.set(name, pairOf(file, model, name, alpha));
  if (pairs.size === 0) throw refusal("the file", "has no tensors, so it changes nothing");
  return { file, fingerprint: (await fingerprintModel(file)).weights, pairs };
}

function checkKind({ metadata }: GgufFile, model: GgufFile): void {
  const wanted = {
    "general.type": "adapter",
    "adapter.type": "lora",
    "general.architecture": model.metadata.getString("general.architecture"),
  };
  for (const [key, value] of Object.entries(wanted)) {
    const got = metadata.getString(key);
    if (got === value) continue;
    const why = key === "general.architecture" ? ", as in the model that it adapts" : "";
    throw refusal(`key ${quote(key)}`, `must be ${quote(value)}${why} (got ${quote(got)})`);
  }
  if (metadata.has(ACTIVATED)) {
    const detail = "activated adapters (aLoRA), which start at a text in the prompt, are not supported";
    throw refusal(`key ${quote(ACTIVATED)}`, detail);
  }
}

/** Returns the names of the model's tensors that the adapter changes. */
function baseNames({ tensors }: GgufFile): Set<string> {
  const names = new Set<string>();
  for (const name of tensors.keys()) {
    if (!SUFFIX.test(name)) {
      throw refusal(`tensor ${quote(name)}`, "an adapter's tensors must end in .lora_a or .lora_b");
    }
    names.add(name.replace(SUFFIX, ""));
  }
  return names;
}

function pairOf(file: GgufFile, model: GgufFile, name: string, alpha: number): LowRank {
  const base = model.tensors.get(name);
  if (!base) {
    const detail = "the model has no such tensor; the adapter belongs to another model";
    throw refusal(`tensor ${quote(name)}`, detail);
  }
  // For token embeddings, llama.cpp writes the two matrices in other shapes.
  if (base.shape.length !== 2 || name === "token_embd.weight") refuseTensor(name);
  const [a, b] = ["a", "b"].map((half) => halfOf(file, `${name}.lora_${half}`));
  const [columns, rows] = base.shape;
  const rank = a.shape[1];
  checkShape(a, [columns, rank], `[${columns}, rank]`);
  checkShape(b, [rank, rows], `[${rank}, ${rows}]`);
  // A rank above the larger side can express no further change.
  const most = Math.max(columns, rows);
  if (rank > most) {
    throw refusal(`tensor ${quote(a.name)}`, `the rank must be at most ${most} (got ${rank})`);
  }
  return { rank, a, b, factor: alpha === 0 ? 1 : alpha / rank };
}

function halfOf(file: GgufFile, name: string): TensorInfo {
  const info = file.tensors.get(name);
  if (!info) throw refusal(`tensor ${quote(name)}`, "missing from the adapter; the other half is there");
  if (isReadAsFloats(info.type)) return info;
  throw refusal(`tensor ${quote(name)}`, `must be of type F32, F16, BF16 or Q8_0 (got ${info.type})`);
}

function checkShape({ name, shape }: TensorInfo, wanted: readonly number[], text: string): void {
  if (shape.length === 2 && shape.every((n, i) => n === wanted[i])) return;
  throw refusal(`tensor ${quote(name)}`, `must have the shape ${text} (got [${shape.join(", ")}])`);
}

/** Throws GgufError for a tensor of the model that no adapter may change. */
export function refuseTensor(name: string): never {
  const detail =
    "adapters of this tensor are not supported, like those of embeddings, the output matrix and " +
    "experts; merge the adapter into the model";
  throw refusal(`tensor ${quote(name)}`, detail);
}

function refusal(field: string, detail: string): GgufError {
  return new GgufError("GGUF_HPARAM", detail, { field });
}
