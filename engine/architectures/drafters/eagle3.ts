import { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import { GgufError, quote } from "../../gguf/errors.ts";
import { type Hparams, readHparams } from "../../gguf/hparams/hparams.ts";
import type { GgufFile, TensorInfo } from "../../gguf/types.ts";
import type { PlanBuilder, Value } from "../../plan/builder.ts";
import type { RowsWanted } from "../../plan/extra_rows.ts";
import { candidates } from "../../plan/ops/candidates.ts";
import { embed } from "../../plan/ops/embed.ts";
import { glu } from "../../plan/ops/glu.ts";
import { join } from "../../plan/ops/join.ts";
import { keep } from "../../plan/ops/keep.ts";
import { linear } from "../../plan/ops/matmul.ts";
import { recall } from "../../plan/ops/recall.ts";
import { rmsNorm } from "../../plan/ops/rms_norm.ts";
import { ropeTable } from "../../plan/ops/rope_table.ts";
import { shift } from "../../plan/ops/shift.ts";
import { draftTokens } from "../parts/draft_layer.ts";
import { groupedAttention, groupedKeys } from "../parts/grouped_attention.ts";
import { handedOut } from "../parts/hidden_rows.ts";
import { readFactors, Rope } from "../parts/rope.ts";
import { type Drafter, joinedName, requireKnown } from "./drafter.ts";

/** Number of model layers whose input rows a drafter reads. */
const ROWS = 3;
/** Tensors of a drafter's file, besides rotary factors. */
const TENSORS =
  /^((fc|enc\.output_norm|token_embd|output_norm|output|blk\.0\.(attn_norm(_2)?|attn_(q|k|v|output)|ffn_(norm|gate|up|down)))\.weight)$/;

const MOST_COLUMNS = 131_072;

/** An EAGLE-3 drafter: one layer in its own file, which drafts tokens from hidden rows of a model. */
interface Eagle3 extends RowsWanted {
  readonly hparams: Hparams;
  readonly rope: Rope;
  /** Whether the attention's output is added to the normed row instead of to the row. */
  readonly normBeforeResidual: boolean;
  /** Whether the model's rows are normed before their projection. */
  readonly normBeforeFc: boolean;
  /** Names of the embedding and of the output matrix in the joined file. */
  readonly embedding: string;
  readonly output: string;
  /** Number of tokens in the vocabulary that it drafts from. */
  readonly tokens: number;
}

/**
 * Returns the description of a drafter for `model`. The drafter may use the model's embedding and output matrix.
 * `tokens` is the size of the drafter's own vocabulary, if it has one. Throws GgufError.
 */
export async function readEagle3(file: GgufFile, model: GgufFile, tokens?: number): Promise<Drafter> {
  requireKnown(file, TENSORS, "an EAGLE-3 drafter");
  const tensors = new Map(file.tensors);
  const has = (name: string) => tensors.has(`${name}.weight`);
  const shared = (name: string) => model.tensors.has(`${name}.weight`) ? name : "token_embd";
  const embedding = has("token_embd") ? joinedName("token_embd", model) : "token_embd";
  const output = has("output") ? joinedName("output", model) : shared("output");
  if (!has("token_embd")) tensors.set("token_embd.weight", requireOf(model, "token_embd.weight"));
  const whole = { ...file, tensors };
  const hparams = readHparams(whole);
  const keys = ArchitectureKeys.of(file.metadata);
  if (hparams.blockCount !== 1) keys.refuse("block_count", String(hparams.blockCount), "1");
  const flag = (name: string) => file.metadata.getBoolean(keys.name(name), false);
  const drafter: Eagle3 = {
    hparams,
    rope: new Rope(hparams, await readFactors(whole, hparams)),
    layers: readLayers(keys),
    normBeforeResidual: flag("norm_before_residual"),
    normBeforeFc: flag("norm_before_fc"),
    embedding,
    output,
    tokens: tokens ?? hparams.vocabSize,
  };
  const columns = keys.count("target_hidden_size", MOST_COLUMNS);
  return { hparams, layers: drafter.layers, columns, add: (b) => addEagle3(b, drafter) };
}

/** Returns the layers whose input rows the drafter reads. Older files have another key. */
function readLayers(keys: ArchitectureKeys): number[] {
  const name = keys.has("extract_layers") ? "extract_layers" : "target_layers";
  const layers = Array.from(keys.metadata.getNumbers(keys.name(name)) ?? []);
  if (layers.length !== ROWS || !layers.every((layer) => Number.isSafeInteger(layer) && layer >= 0)) {
    keys.refuse(name, layers.join(", ") || "nothing", `${ROWS} numbers of layers`);
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
 * Adds the drafter after the model's layers. The drafter's layer reads a token and the projected rows of the previous
 * token, and computes a row that predicts the next token. Later tokens of a draft use the layer's own row instead of
 * projected rows. Every step appends keys and values of all its tokens to the layer's cache. The first token has zeros as
 * its previous row; the sources have no cache entry for it. Sources: "EAGLE-3" (arXiv 2503.01840); llama.cpp,
 * src/models/eagle3.cpp; vLLM, llama_eagle3.py.
 */
function addEagle3(b: PlanBuilder, drafter: Eagle3): void {
  const { hparams: h, normBeforeFc, normBeforeResidual } = drafter;
  const rows = drafter.layers.map((layer) => handedOut(b, layer));
  const name = (tensor: string) => joinedName(`blk.0.${tensor}`, b.file);
  const width = h.embeddingLength;
  const norm = (x: Value, name: string, rows?: "logits") => rmsNorm(b, x, name, h.epsilon, rows);
  const joined = rows.reduce((before, next) => join(b, before, next));
  const all = normBeforeFc ? norm(joined, "drafter.enc.output_norm") : joined;
  const [hidden] = linear(b, all, [{ name: "drafter.fc", rows: width }]);
  const heads = {
    heads: h.headCount,
    kvHeads: h.headCountKv,
    headDim: h.keyLength,
    table: ropeTable(b, drafter.rope.angles()),
    rotated: h.ropeDimensionCount,
    interleaved: true,
    eps: h.epsilon,
  };
  const begin = (before: Value): { both: Value; normed: Value } => {
    const token = norm(embed(b, drafter.embedding, h.vocabSize, width), name("attn_norm"));
    const normed = norm(before, name("attn_norm_2"));
    return { both: join(b, token, normed), normed };
  };
  groupedKeys(b, begin(shift(b, hidden)).both, heads, name);
  b.atEnd(() => {
    const before = recall(b, hidden);
    const { both, normed } = begin(before);
    const row = normBeforeResidual ? normed : before;
    const attn = groupedAttention(b, both, heads, name);
    linear(b, attn, [{ name: name("attn_output"), rows: width, addTo: row }]);
    const ffn = glu(b, norm(row, name("ffn_norm")), name("ffn_gate"), name("ffn_up"), h.feedForwardLength);
    linear(b, ffn, [{ name: name("ffn_down"), rows: width, addTo: row }]);
    // Without its own vocabulary, the drafter drafts from the most frequent tokens, as a model's own layer does.
    const first = drafter.tokens < h.vocabSize ? drafter.tokens : draftTokens(b, h);
    candidates(b, norm(row, "drafter.output_norm", "logits"), drafter.tokens, {}, drafter.output, first);
    keep(b, row, hidden);
  });
}
