import { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import { quote } from "../../gguf/errors.ts";
import { type Allowed, readHparams } from "../../gguf/hparams/hparams.ts";
import type { GgufFile, TensorInfo } from "../../gguf/types.ts";
import type { PlanBuilder, Value } from "../../plan/builder.ts";
import { candidates } from "../../plan/ops/candidates.ts";
import { join } from "../../plan/ops/join.ts";
import { rmsNorm } from "../../plan/ops/rms_norm.ts";
import { ropeTable } from "../../plan/ops/rope_table.ts";
import { draftTokens } from "../parts/draft_layer.ts";
import type { GroupedHeads } from "../parts/grouped_attention.ts";
import { handedOut } from "../parts/hidden_rows.ts";
import { readFactors, Rope } from "../parts/rope.ts";
import { type Drafter, joinedName, MOST_COLUMNS, refuse } from "./drafter.ts";

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
    refuse('tensor "d2t"', `must have at most ${vocabSize} tokens, the size of the vocabulary (got ${own})`);
  }
  const keys = ArchitectureKeys.of(file.metadata);
  const columns = keys.count("target_hidden_size", MOST_COLUMNS, hparams.embeddingLength);
  const tokens = own ?? vocabSize;
  if (!has("output") && (tokens !== vocabSize || hparams.embeddingLength !== columns)) {
    refuse('tensor "output.weight"', "is missing, and the model's has another width or vocabulary");
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
  return tensors.get(name) ?? refuse(`tensor ${quote(name)}`, "is missing in the drafter and in its model");
}

/**
 * Returns the model's rows that the drafter reads, side by side. Throws GgufError if the model does not provide them.
 */
export function joinedRows(b: PlanBuilder, { layers }: RowDrafter): Value {
  return layers.map((layer) => handedOut(b, layer)).reduce((before, next) => join(b, before, next));
}

/** Returns the heads of the drafter's layers. */
export function drafterHeads(b: PlanBuilder, { hparams: h, rope }: RowDrafter): GroupedHeads {
  return {
    heads: h.headCount,
    kvHeads: h.headCountKv,
    headDim: h.keyLength,
    table: ropeTable(b, rope.angles()),
    rotated: h.ropeDimensionCount,
    eps: h.epsilon,
  };
}

/**
 * Adds the choice of tokens from the rows of the last layer. A drafter without its own vocabulary uses only the most
 * frequent tokens, like a model's own draft layer.
 */
export function chooseTokens(b: PlanBuilder, rows: Value, { hparams: h, tokens, output }: RowDrafter): void {
  const last = rmsNorm(b, rows, "drafter.output_norm", h.epsilon, "logits");
  candidates(b, last, tokens, {}, output, tokens < h.vocabSize ? tokens : draftTokens(b, h));
}
