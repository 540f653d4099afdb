/** Drafters from a file of their own, which become the draft layers of the model's plan. */
import { GgufError, quote } from "../../gguf/errors.ts";
import type { Hparams } from "../../gguf/hparams/hparams.ts";
import type { GgufFile } from "../../gguf/types.ts";
import type { PlanBuilder } from "../../plan/builder.ts";
import type { RowsWanted } from "../../plan/extra_rows.ts";
import { isRopeFactors } from "../parts/rope.ts";

/** A drafter, as the model's plan needs it. */
export interface Drafter extends RowsWanted {
  readonly hparams: Hparams;
  /** Number of columns of each row that the drafter reads. */
  readonly columns: number;
  /** Of a drafter that drafts all tokens in one pass. */
  readonly block?: DraftBlock;
  /** Adds the drafter's ops after the model's layers. Throws GgufError. */
  add(b: PlanBuilder): void;
}

/** A pass that drafts several tokens. It has a row of the sequence's last token, and a row of the mask token per draft. */
export interface DraftBlock {
  /** Maximum rows of a sequence. */
  readonly rows: number;
  readonly mask: number;
}

/** Throws GgufError if the file has a tensor that is neither rotary factors nor matches `tensors`. */
export function requireKnown(file: GgufFile, tensors: RegExp, kind: string): void {
  const unknown = [...file.tensors.keys()].find((name) => !tensors.test(name) && !isRopeFactors(name));
  if (unknown === undefined) return;
  throw new GgufError("GGUF_HPARAM", `is not a tensor of ${kind}`, { field: `tensor ${quote(unknown)}` });
}

/**
 * Returns the name of a drafter's tensor in the joined file. Names contain "drafter.", and the drafter's layers are
 * numbered after the model's layers.
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
