import { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import { GgufError, quote } from "../../gguf/errors.ts";
import { type Allowed, readHparams } from "../../gguf/hparams/hparams.ts";
import type { GgufFile, TensorInfo } from "../../gguf/types.ts";
import type { PlanBuilder, Value } from "../../plan/builder.ts";
import { join } from "../../plan/ops/join.ts";
import { draftTokens } from "../parts/draft_layer.ts";
import { handedOut } from "../parts/hidden_rows.ts";
import { readFactors, Rope } from "../parts/rope.ts";
import { type Drafter, joinedName, MOST_COLUMNS } from "./drafter.ts";

/** The common description of drafters that read hidden rows of several layers of the model. */
export interface RowDrafter extends Omit<Drafter, "add" | "block"> {
  readonly rope: Rope;
  /** Names of the embedding and of the output matrix in the joined file. */
  readonly embedding: string;
  readonly output: string;
  /** Number of tokens in the vocabulary that the drafter uses. */
  readonly tokens: number;
}

interface RowDrafterOptions {
  /** The size of the drafter's own vocabulary, if it has one. */
  readonly tokens?: number;
  /** Required number of layers whose rows the drafter reads; by default any number. */
  readonly rows?: number;
  readonly allowed?: Allowed;
}

/**
 * Returns the description of a drafter for `model`. The drafter may use the model's embedding and output matrix. Throws
 * GgufError.
 */
export async function readRowDrafter(
  file: GgufFile,
  model: GgufFile,
  { tokens: own, rows, allowed }: RowDrafterOptions,
): Promise<RowDrafter> {
  const tensors = new Map(file.tensors);
  const has = (name: string) => tensors.has(`${name}.weight`);
  const shared = (name: string) => model.tensors.has(`${name}.weight`) ? name : "token_embd";
  const embedding = has("token_embd") ? joinedName("token_embd", model) : "token_embd";
  const output = has("output") ? joinedName("output", model) : shared("output");
  if (!has("token_embd")) tensors.set("token_embd.weight", requireOf(model, "token_embd.weight"));
  const whole = { ...file, tensors };
  const hparams = readHparams(whole, allowed);
  const { vocabSize } = hparams;
  if (own !== undefined && own > vocabSize) {
    const detail = `must have at most ${vocabSize} tokens, the size of the vocabulary (got ${own})`;
    throw new GgufError("GGUF_HPARAM", detail, { field: 'tensor "d2t"' });
  }
  const keys = ArchitectureKeys.of(file.metadata);
  const columns = keys.count("target_hidden_size", MOST_COLUMNS, hparams.embeddingLength);
  const tokens = own ?? vocabSize;
  if (!has("output") && (tokens !== vocabSize || hparams.embeddingLength !== columns)) {
    const detail = "is missing, and the model's has another width or vocabulary";
    throw new GgufError("GGUF_HPARAM", detail, { field: 'tensor "output.weight"' });
  }
  return {
    hparams,
    rope: new Rope(hparams, await readFactors(whole, hparams)),
    layers: readLayers(keys, rows),
    columns,
    embedding,
    output,
    tokens,
  };
}

/** Returns the layers whose input rows the drafter reads. Older files use another key. */
function readLayers(keys: ArchitectureKeys, rows?: number): number[] {
  const name = keys.has("extract_layers") ? "extract_layers" : "target_layers";
  const layers = Array.from(keys.metadata.getNumbers(keys.name(name)) ?? []);
  const isLayer = (layer: number) => Number.isSafeInteger(layer) && layer >= 0;
  if (layers.length === 0 || layers.length !== (rows ?? layers.length) || !layers.every(isLayer)) {
    keys.refuse(
      name,
      layers.join(", ") || "nothing",
      rows ? `${rows} numbers of layers` : "numbers of layers",
    );
  }
  return layers;
}

function requireOf({ tensors }: GgufFile, name: string): TensorInfo {
  const info = tensors.get(name);
  if (info) return info;
  const detail = "is missing in the drafter and in its model";
  throw new GgufError("GGUF_HPARAM", detail, { field: `tensor ${quote(name)}` });
}

/**
 * Returns the model's rows that the drafter reads, side by side. Throws GgufError if the model does not provide them.
 */
export function joinedRows(b: PlanBuilder, { layers }: RowDrafter): Value {
  return layers.map((layer) => handedOut(b, layer)).reduce((before, next) => join(b, before, next));
}

/**
 * Returns the number of tokens to draft from. A drafter without its own vocabulary uses only the most frequent tokens,
 * like a model's own draft layer.
 */
export function firstTokens(b: PlanBuilder, { tokens, hparams }: RowDrafter): number {
  return tokens < hparams.vocabSize ? tokens : draftTokens(b, hparams);
}
