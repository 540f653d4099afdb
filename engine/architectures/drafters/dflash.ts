import { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import { GgufError, quote } from "../../gguf/errors.ts";
import type { GgufFile } from "../../gguf/types.ts";
import type { PlanBuilder, Value } from "../../plan/builder.ts";
import { candidates } from "../../plan/ops/candidates.ts";
import { embed } from "../../plan/ops/embed.ts";
import { glu } from "../../plan/ops/glu.ts";
import { linear } from "../../plan/ops/matmul.ts";
import { recall } from "../../plan/ops/recall.ts";
import { rmsNorm } from "../../plan/ops/rms_norm.ts";
import { ropeTable } from "../../plan/ops/rope_table.ts";
import { groupedAttention, groupedKeys } from "../parts/grouped_attention.ts";
import { type DraftBlock, type Drafter, joinedName, requireKnown } from "./drafter.ts";
import { firstTokens, joinedRows, readRowDrafter, type RowDrafter } from "./row_drafter.ts";

/** Tensors of a drafter's file, besides rotary factors. */
const TENSORS =
  /^((fc|enc\.output_norm|token_embd|output_norm|output|blk\.\d+\.(attn_norm|attn_(q|k|v|output|q_norm|k_norm)|ffn_(norm|gate|up|down)))\.weight)$/;
/** Relatives with further parts, by a tensor of these parts. */
const RELATIVES = { "markov_w1.weight": "DSpark", "selector_hidden.weight": "DFlash2" };

const MASK = "tokenizer.ggml.mask_token_id";
const [USUAL_ROWS, MOST_ROWS] = [16, 256];

/** A layer's window in tokens, 0 for none, and whether its rows attend only to positions up to their own. */
interface Sight {
  readonly window: number;
  readonly causal: boolean;
}

/** Returns a drafter for `model`. `tokens` is the size of the drafter's own vocabulary, if it has one. Throws GgufError. */
export async function readDflash(file: GgufFile, model: GgufFile, tokens?: number): Promise<Drafter> {
  for (const [tensor, name] of Object.entries(RELATIVES)) {
    if (!file.tensors.has(tensor)) continue;
    refuse(`tensor ${quote(tensor)}`, `is a ${name} drafter's; compy supports DFlash and EAGLE-3 drafters`);
  }
  requireKnown(file, TENSORS, "a DFlash drafter");
  const keys = ArchitectureKeys.of(file.metadata);
  const bothDirections = !file.metadata.getBoolean(keys.name("attention.causal"), false);
  const drafter = await readRowDrafter(file, model, { tokens, allowed: { bothDirections } });
  const sights = readSights(keys, drafter.hparams.blockCount);
  return { ...drafter, block: readBlock(keys, drafter), add: (b) => addDflash(b, drafter, sights) };
}

function readBlock(keys: ArchitectureKeys, { hparams: { vocabSize } }: RowDrafter): DraftBlock {
  const rows = keys.count("block_size", MOST_ROWS, USUAL_ROWS);
  const mask = keys.metadata.getCount(MASK);
  if (rows < 2) keys.refuse("block_size", String(rows), "at least 2");
  if (mask >= vocabSize) refuse(`key ${quote(MASK)}`, `must be below ${vocabSize} (got ${mask})`);
  return { rows, mask };
}

/**
 * Returns each layer's sight. The rows of a pass attend to each other in both directions, but in layers with a window
 * only backwards, unless the file says otherwise.
 */
function readSights(keys: ArchitectureKeys, layers: number): Sight[] {
  const window = keys.window();
  const slides = window > 0
    ? keys.flags("attention.sliding_window_pattern", layers)
    : Array<boolean>(layers).fill(false);
  return slides.map((slides) => ({
    window: slides ? window : 0,
    causal: keys.metadata.getBoolean(keys.name("attention.causal"), slides),
  }));
}

/**
 * Adds the drafter after the model's layers. Every step projects the model's rows to one row per token, and appends keys
 * and values of that row to the cache of each of the drafter's layers. A draft has a row of the sequence's last token and
 * rows of the mask token. These rows attend to the cache and to each other. Each mask row predicts the token at its own
 * position. Sources: "DFlash" (arXiv 2602.06036) with github.com/z-lab/dflash; llama.cpp, src/models/dflash.cpp; vLLM,
 * qwen3_dflash.py. llama.cpp has no causal layers unless a key makes all of them causal.
 */
function addDflash(b: PlanBuilder, drafter: RowDrafter, sights: readonly Sight[]): void {
  const { hparams: h } = drafter;
  const width = h.embeddingLength;
  const nameOf = (layer: number) => (tensor: string) => joinedName(`blk.${layer}.${tensor}`, b.file);
  const norm = (x: Value, name: string, rows?: "logits") => rmsNorm(b, x, name, h.epsilon, rows);
  const [projected] = linear(b, joinedRows(b, drafter), [{ name: "drafter.fc", rows: width }]);
  const context = norm(projected, "drafter.enc.output_norm");
  const heads = {
    heads: h.headCount,
    kvHeads: h.headCountKv,
    headDim: h.keyLength,
    table: ropeTable(b, drafter.rope.angles()),
    rotated: h.ropeDimensionCount,
    headNorms: true,
    eps: h.epsilon,
  };
  for (const layer of sights.keys()) groupedKeys(b, context, heads, nameOf(layer));
  b.atEnd(() => {
    recall(b, projected, sights.length); // begins the draft, which reads only caches of the step's rows
    const x = embed(b, drafter.embedding, h.vocabSize, width);
    for (const [layer, sight] of sights.entries()) {
      const name = nameOf(layer);
      const attn = groupedAttention(b, norm(x, name("attn_norm")), { ...heads, ...sight }, name);
      linear(b, attn, [{ name: name("attn_output"), rows: width, addTo: x }]);
      const ffn = glu(b, norm(x, name("ffn_norm")), name("ffn_gate"), name("ffn_up"), h.feedForwardLength);
      linear(b, ffn, [{ name: name("ffn_down"), rows: width, addTo: x }]);
    }
    const last = norm(x, "drafter.output_norm", "logits");
    candidates(b, last, drafter.tokens, {}, drafter.output, firstTokens(b, drafter));
  });
}

function refuse(field: string, detail: string): never {
  throw new GgufError("GGUF_HPARAM", detail, { field });
}
