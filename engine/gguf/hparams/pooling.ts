import { ArchitectureKeys } from "./architecture_keys.ts";
import { GgufError, quote } from "../errors.ts";
import type { GgufFile } from "../types.ts";

/**
 * How a text's rows become one row: their mean, the first (`cls`) or the last. `rank`: a head computes one logit per
 * label from the last row.
 *
 * ```ts
 * import { loadModel, type PoolingKind } from "compy";
 *
 * const pooling: PoolingKind = "mean";
 * await using model = await loadModel(undefined, { pooling });
 * console.log((await model.embed("a fox in the snow")).vectors[0].length);
 * ```
 */
export type PoolingKind = "mean" | "cls" | "last" | "rank";
/** All pooling kinds. */
export const POOLING_KINDS: readonly PoolingKind[] = ["mean", "cls", "last", "rank"];

/** How a model turns a whole text into one row. */
export interface ModelPooling {
  readonly kind: PoolingKind;
  /** Number of labels of the ranking head; 0 without a head. */
  readonly labels: number;
  /** The labels' names, if the file has one for each. */
  readonly names?: readonly string[];
}

/** Name of the ranking head's tensor, without `.weight`. */
export const RANK_HEAD = "cls.output";
const MAX_LABELS = 1024;

/** Pooling kinds, indexed by the value of `pooling_type`. */
const KINDS: readonly (PoolingKind | undefined)[] = [undefined, ...POOLING_KINDS];

/**
 * Returns how the model pools texts: `chosen`, else as the file says, else `usual`. Throws GgufError(GGUF_HPARAM) for
 * an unknown kind, and for ranking without a head.
 */
export function readPooling(
  file: GgufFile,
  chosen?: PoolingKind,
  usual: PoolingKind = "last",
): ModelPooling {
  const kind = chosen ?? kindOf(file) ?? usual;
  if (kind !== "rank") return { kind, labels: 0 };
  const labels = labelsOf(file);
  const names = namesOf(file, labels);
  return { kind, labels, ...(names && { names }) };
}

/**
 * Returns whether the file states its pooling, which means that its model embeds or ranks texts. Throws as readPooling.
 */
export function saysPooling(file: GgufFile): boolean {
  return kindOf(file) !== undefined;
}

function kindOf(file: GgufFile): PoolingKind | undefined {
  const keys = new ArchitectureKeys(file.metadata, file.metadata.getString("general.architecture"));
  const code = file.metadata.getCount(keys.name("pooling_type"), 0);
  if (code >= KINDS.length) {
    keys.refuse("pooling_type", String(code), "0 (none), 1 (mean), 2 (cls), 3 (last) or 4 (rank)");
  }
  return KINDS[code];
}

/** Returns the labels' names; undefined unless the file has one for each. */
function namesOf({ metadata }: GgufFile, labels: number): readonly string[] | undefined {
  const keys = new ArchitectureKeys(metadata, metadata.getString("general.architecture"));
  const names = metadata.getStrings(keys.name("classifier.output_labels"));
  return names?.length === labels ? names : undefined;
}

function labelsOf(file: GgufFile): number {
  const name = `${RANK_HEAD}.weight`;
  const place = { field: `tensor ${quote(name)}` };
  const head = file.tensors.get(name);
  if (!head) {
    const advice = "missing; a model that ranks has it. Choose another pooling to embed texts: ";
    const detail = [advice, { pooling: "last" }];
    throw new GgufError("GGUF_HPARAM", detail, place);
  }
  const labels = head.shape[1] ?? 0;
  if (labels < 1 || labels > MAX_LABELS) {
    throw new GgufError(
      "GGUF_HPARAM",
      `must have 1 to ${MAX_LABELS} rows, one for each label (got ${labels})`,
      place,
    );
  }
  return labels;
}
