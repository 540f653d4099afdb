/** Drafters in their own files. They become the draft layers of the model's plan. */
import { GgufError, quote } from "../../gguf/errors.ts";
import { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import type { Hparams } from "../../gguf/hparams/hparams.ts";
import type { GgufFile } from "../../gguf/types.ts";
import type { PlanBuilder } from "../../plan/builder.ts";
import type { RowsWanted } from "../../plan/extra_rows.ts";
import { isRopeFactors } from "../parts/rope.ts";

/** Maximum number of columns of the rows that a drafter reads. */
export const MOST_COLUMNS = 131_072;

/** The description of a drafter for the model's plan. */
export interface Drafter extends RowsWanted {
  readonly hparams: Hparams;
  /** Number of columns of each row that the drafter reads. */
  readonly columns: number;
  /** The pass of a drafter that drafts all tokens in one pass; undefined for other drafters. */
  readonly block?: DraftBlock;
  /** Whether all tokens of a draft have the position of its first token. */
  readonly onePosition?: boolean;
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

/** Names of the tensors in a drafter's file, except rotary factors. */
export interface TensorNames {
  readonly whole: RegExp;
  /** Names after the number of the layer. */
  readonly layer: RegExp;
}

/** Throws GgufError if the file has a tensor with another name, or a tensor of a layer after the first `layers`. */
export function requireKnown(
  file: GgufFile,
  { whole, layer }: TensorNames,
  kind: string,
  layers: number,
): void {
  const unknown = [...file.tensors.keys()].find((name) => {
    const [, number, part] = /^blk\.(0|[1-9]\d*)\.(.*)$/.exec(name) ?? [];
    return number ? Number(number) >= layers || !layer.test(part) : !whole.test(name) && !isRopeFactors(name);
  });
  if (unknown === undefined) return;
  refuse(`tensor ${quote(unknown)}`, `is not a tensor of ${kind} with block_count ${layers}`);
}

/** Throws the error for a drafter's file with a wrong key or tensor. */
export function refuse(field: string, detail: string): never {
  throw new GgufError("GGUF_HPARAM", detail, { field });
}

/**
 * Returns the name of a drafter's tensor in the joined file. All names contain "drafter.". The numbers of the drafter's
 * layers follow those of the model's layers.
 */
export function joinedName(name: string, model: GgufFile): string {
  const layers = layersOf(model);
  const [, layer, tensor] = /^blk\.(\d+)\.(.*)$/.exec(name) ?? [];
  return layer ? `blk.${layers + Number(layer)}.drafter.${tensor}` : `drafter.${name}`;
}

/** Returns a message about the joined file with the names that the drafter's tensors have in their own file. */
export function withOwnNames(message: string, model: GgufFile): string {
  const layers = layersOf(model);
  const own = (_: string, layer?: string) => layer ? `"blk.${Number(layer) - layers}.` : '"';
  return message.replace(/"(?:blk\.(\d+)\.)?drafter\./g, own);
}

function layersOf({ metadata }: GgufFile): number {
  return metadata.getCount(ArchitectureKeys.of(metadata).name("block_count"));
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
