import { ArchitectureKeys } from "../gguf/architecture_keys.ts";
import { GgufError, quote } from "../gguf/errors.ts";
import type { Hparams } from "../gguf/hparams.ts";
import type { GgufFile, TensorInfo } from "../gguf/types.ts";
import { type PlanBuilder, wholeName } from "../plan/builder.ts";
import type { Plan } from "../plan/plan.ts";
import { isRopeFactors } from "./parts/rope.ts";

/** Parts of a model that its texts are computed without, by the names of their tensors. */
const PARTS: readonly (readonly [part: string, names: RegExp])[] = [
  ["vision", /^(v|mm|vision|resampler)\./],
  ["audio", /^a\./],
  ["scales of activations", /\.input_scale$/],
  ["drafting (MTP)", /^mtp\.|\.nextn\./],
];

/** What a file may be instead of a model, by `general.type`, and what to do. */
const OTHER_TYPES: Readonly<Record<string, string>> = {
  mmproj: "this is the vision or audio part of a model; name the model's own file",
  adapter: "this is an adapter, which compy does not apply; merge it into its model first",
  imatrix: "these are statistics for quantising a model; name the model's own file",
};

/** A part of a file that no plan reads. */
export interface LeftOutPart {
  readonly part: string;
  readonly tensors: number;
  readonly bytes: number;
}

/** Whether a tensor belongs to a part that no architecture computes. */
export function isLeftOut(name: string): boolean {
  return PARTS.some(([, names]) => names.test(name));
}

/** Whether a tensor belongs to a layer behind the `layers` that are computed: such layers draft tokens for another decoder to check. */
export function isDrafting(name: string, layers: number): boolean {
  const block = /^blk\.(\d+)\./.exec(name);
  return block !== null && Number(block[1]) >= layers;
}

/** Leaves out the layers behind the others that draft tokens; returns how many are computed. */
export function leaveOutDrafting(b: PlanBuilder, h: Hparams): number {
  const layers = h.blockCount - ArchitectureKeys.of(b.file.metadata).draftingLayers(h.blockCount);
  b.leaveOut((tensor) => isDrafting(tensor, layers));
  return layers;
}

/** Which of the file's tensors the plan does not read, by part, the largest first. */
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

/** The layer that a tensor belongs to. */
function blockOf(name: string): string | undefined {
  return /^blk\.\d+\./.exec(name)?.[0];
}

/**
 * Whole layers that are left out draft tokens for another decoder to check; keys and values alone belong to one of the `blocks` that are
 * read, which reads another's.
 */
function partOf({ name }: TensorInfo, blocks: ReadonlySet<string | undefined>): string {
  const known = PARTS.find(([, names]) => names.test(name))?.[0];
  if (blocks.has(blockOf(name)) && /\.attn_(k|v|k_norm)\.weight$/.test(name)) {
    return "keys and values that are never read";
  }
  return known ?? (name.startsWith("blk.") ? "drafting (MTP)" : "not used for texts");
}

/** Throws GgufError where the file says that it is something else than a model. */
export function checkFileType({ metadata }: GgufFile): void {
  if (!metadata.has("general.type")) return;
  const type = metadata.getString("general.type");
  if (!Object.hasOwn(OTHER_TYPES, type)) return;
  const detail = `must be "model" (got ${quote(type)}): ${OTHER_TYPES[type]}`;
  throw new GgufError("GGUF_HPARAM", detail, { field: 'key "general.type"' });
}
