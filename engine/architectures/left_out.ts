import type { Wording } from "../api/errors.ts";
import { ArchitectureKeys } from "../gguf/hparams/architecture_keys.ts";
import { GgufError, quote } from "../gguf/errors.ts";
import type { Hparams } from "../gguf/hparams/hparams.ts";
import type { GgufFile, TensorInfo } from "../gguf/types.ts";
import type { PlanBuilder } from "../plan/builder.ts";
import { wholeName } from "../plan/tensor_rows.ts";
import type { Plan } from "../plan/plan.ts";
import { isRopeFactors } from "./parts/rope.ts";

/** Tensor names of model parts that text does not need, such as vision. */
const PARTS: readonly (readonly [part: string, names: RegExp])[] = [
  ["vision", /^(v|mm|vision|resampler)\./],
  ["audio", /^a\./],
  ["scales of activations", /\.input_scale$/],
  ["drafting (MTP)", /^mtp\.|\.nextn\./],
  ["drafter", /(^|\.)drafter\./],
];

/** Kinds of file that are not a model, by `general.type`, and what the user should do. */
const OTHER_TYPES: Readonly<Record<string, Wording>> = {
  mmproj: ["this is the vision or audio part of a model; name the model's own file"],
  adapter: ["this is an adapter; name the model's own file, and an adapter with ", { lora: undefined }],
  imatrix: ["these are statistics for quantising a model; name the model's own file"],
};

/** A part of a model file that the plan does not read. */
export interface LeftOutPart {
  readonly part: string;
  readonly tensors: number;
  readonly bytes: number;
}

/** Whether a tensor belongs to a part that no architecture computes. */
export function isLeftOut(name: string): boolean {
  return PARTS.some(([, names]) => names.test(name));
}

/** Whether a tensor belongs to a layer after the first `layers`. */
function isDrafting(name: string, layers: number): boolean {
  const block = /^blk\.(\d+)\./.exec(name);
  return block !== null && Number(block[1]) >= layers;
}

/** Returns the number of layers before the extra layers that draft tokens. */
export function layersBeforeDrafts(
  { metadata }: GgufFile,
  { blockCount }: Pick<Hparams, "blockCount">,
): number {
  return blockCount - ArchitectureKeys.of(metadata).draftingLayers(blockCount);
}

/**
 * Leaves out the extra layers that draft tokens, except the first if the builder `drafts`. Returns the number
 * of layers before them.
 */
export function leaveOutDrafting(b: PlanBuilder, h: Hparams): number {
  const layers = layersBeforeDrafts(b.file, h);
  b.leaveOut((tensor) => isDrafting(tensor, layers + (b.drafts ? 1 : 0)));
  return layers;
}

/** Returns the parts of the file that the plan does not read, largest first. */
export function leftOutParts(file: GgufFile, plan: Plan): LeftOutPart[] {
  const read = new Set(
    plan.tensors.flatMap(({ info, factors }) => [wholeName(info.name), ...factors ? [factors.name] : []]),
  );
  const blocks = new Set([...read].map(blockOf));
  const parts = new Map<string, LeftOutPart>();
  for (const tensor of file.tensors.values()) {
    if (read.has(tensor.name) || isRopeFactors(tensor.name)) continue;
    const part = partOf(tensor, blocks);
    const { tensors, bytes } = parts.get(part) ?? { tensors: 0, bytes: 0 };
    parts.set(part, { part, tensors: tensors + 1, bytes: bytes + tensor.byteLength });
  }
  return [...parts.values()].sort((a, b) => b.bytes - a.bytes);
}

/** Returns the prefix of a layer's tensor, "blk.N."; undefined for other tensors. */
function blockOf(name: string): string | undefined {
  return /^blk\.\d+\./.exec(name)?.[0];
}

/**
 * Returns the name of an unused tensor's part. A layer that is left out as a whole drafts tokens. Unread keys and
 * values of a read layer (`blocks`) are unused, because that layer shares another layer's cache.
 */
function partOf({ name }: TensorInfo, blocks: ReadonlySet<string | undefined>): string {
  const known = PARTS.find(([, names]) => names.test(name))?.[0];
  if (blocks.has(blockOf(name)) && /\.attn_(k|v|k_norm)\.weight$/.test(name)) {
    return "keys and values that are never read";
  }
  return known ?? (name.startsWith("blk.") ? "drafting (MTP)" : "not used for texts");
}

const DRAFTER: Wording = ["this drafts tokens for a model; name the model's own file, and this file with ", {
  draft: undefined,
}];
/** Architectures of files that do not contain a model, with the advice in the error message. */
const OTHER_ARCHITECTURES: Readonly<Record<string, Wording>> = {
  eagle3: DRAFTER,
  dflash: DRAFTER,
  "gemma4-assistant": DRAFTER,
};

/** Throws GgufError if `general.type` or `general.architecture` says that the file does not contain a model. */
export function checkFileType({ metadata }: GgufFile): void {
  const architecture = metadata.entries.get("general.architecture");
  if (typeof architecture === "string" && Object.hasOwn(OTHER_ARCHITECTURES, architecture)) {
    const detail = [`must be a model's (got ${quote(architecture)}): `, ...OTHER_ARCHITECTURES[architecture]];
    throw new GgufError("GGUF_HPARAM", detail, { field: 'key "general.architecture"' });
  }
  if (!metadata.has("general.type")) return;
  const type = metadata.getString("general.type");
  if (!Object.hasOwn(OTHER_TYPES, type)) return;
  const detail = [`must be "model" (got ${quote(type)}): `, ...OTHER_TYPES[type]];
  throw new GgufError("GGUF_HPARAM", detail, { field: 'key "general.type"' });
}
