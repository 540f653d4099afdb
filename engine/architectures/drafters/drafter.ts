/** Drafters in their own files. They become the draft layers of the model's plan. */
import { GgufError, quote } from "../../gguf/errors.ts";
import type { Hparams } from "../../gguf/hparams/hparams.ts";
import type { GgufFile } from "../../gguf/types.ts";
import type { PlanBuilder } from "../../plan/builder.ts";
import type { RowsWanted } from "../../plan/extra_rows.ts";
import { isRopeFactors } from "../parts/rope.ts";

/** The description of a drafter for the model's plan. */
export interface Drafter extends RowsWanted {
  readonly hparams: Hparams;
  /** Number of columns of each row that the drafter reads. */
  readonly columns: number;
  /** The pass of a drafter that drafts all tokens in one pass; undefined for other drafters. */
  readonly block?: DraftBlock;
  /** Adds the drafter's ops after the model's layers. Throws GgufError. */
  add(b: PlanBuilder): void;
}

/**
 * A pass that drafts several tokens. It has one row for the sequence's last token, and one mask-token row per draft.
 */
export interface DraftBlock {
  /** Maximum number of rows per sequence. */
  readonly rows: number;
  readonly mask: number;
}

/** Throws GgufError if the file has a tensor whose name does not match `tensors`, except rotary factors. */
export function requireKnown(file: GgufFile, tensors: RegExp, kind: string): void {
  const unknown = [...file.tensors.keys()].find((name) => !tensors.test(name) && !isRopeFactors(name));
  if (unknown === undefined) return;
  throw new GgufError("GGUF_HPARAM", `is not a tensor of ${kind}`, { field: `tensor ${quote(unknown)}` });
}

/**
 * Returns the name of a drafter's tensor in the joined file. All names contain "drafter.". The numbers of the drafter's
 * layers follow those of the model's layers.
 */
export function joinedName(name: string, { metadata }: GgufFile): string {
  const layers = metadata.getCount(`${metadata.getString("general.architecture")}.block_count`);
  const [, layer, tensor] = /^blk\.(\d+)\.(.*)$/.exec(name) ?? [];
  return layer ? `blk.${layers + Number(layer)}.drafter.${tensor}` : `drafter.${name}`;
}

/** Returns the model's file with the drafter's tensors added. */
export function joinDrafter(model: GgufFile, drafter: GgufFile): GgufFile {
  const tensors = new Map(model.tensors);
  for (const info of drafter.tensors.values()) {
    if (isRopeFactors(info.name)) continue;
    const name = joinedName(info.name, model);
    tensors.set(name, { ...info, name });
  }
  return {
    ...model,
    paths: [...model.paths, ...drafter.paths],
    fileSize: model.fileSize + drafter.fileSize,
    tensors,
    open: (path) => drafter.paths.includes(path) ? drafter.open(path) : model.open(path),
  };
}
