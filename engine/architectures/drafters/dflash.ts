import { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import { quote } from "../../gguf/errors.ts";
import type { GgufFile } from "../../gguf/types.ts";
import type { PlanBuilder, Value } from "../../plan/builder.ts";
import { embed } from "../../plan/ops/embed.ts";
import { linear } from "../../plan/ops/matmul.ts";
import { recall } from "../../plan/ops/recall.ts";
import { rmsNorm } from "../../plan/ops/rms_norm.ts";
import { groupedAttention, groupedKeys } from "../parts/grouped_attention.ts";
import { feedForward } from "../parts/shared_experts.ts";
import {
  type DraftBlock,
  type Drafter,
  joinedName,
  refuse,
  requireKnown,
  type TensorNames,
} from "./drafter.ts";
import { chooseTokens, drafterHeads, joinedRows, readRowDrafter, type RowDrafter } from "./row_drafter.ts";

const TENSORS: TensorNames = {
  whole: /^(fc|enc\.output_norm|token_embd|output_norm|output)\.weight$/,
  layer: /^(attn_(norm|q|k|v|output|q_norm|k_norm)|ffn_(norm|gate|up|down))\.weight$/,
};
/** Related kinds of drafters that compy does not support, by the name of a tensor that only they have. */
const RELATIVES = { "markov_w1.weight": "DSpark", "selector_hidden.weight": "DFlash2" };

const MASK = "tokenizer.ggml.mask_token_id";
const [USUAL_ROWS, MOST_ROWS] = [16, 256];

/**
 * The positions that a layer's rows attend to: a window in tokens (0 for none), and whether rows skip later positions.
 */
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
  const keys = ArchitectureKeys.of(file.metadata);
  const bothDirections = !file.metadata.getBoolean(keys.name("attention.causal"), false);
  const drafter = await readRowDrafter(file, model, { tokens, allowed: { bothDirections } });
  const { blockCount } = drafter.hparams;
  requireKnown(file, TENSORS, "a DFlash drafter", blockCount);
  const sights = readSights(keys, blockCount);
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
 * Returns the window of each layer, and whether the layer is causal. In layers without a window, the rows of a pass
 * attend to earlier and later rows. Layers with a window are causal. A key of the file can change this for all layers.
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
 * Adds the drafter after the model's layers. Every step projects the model's rows to one row per token. Each layer of
 * the drafter appends keys and values of this row to its KV cache. A draft has one row for the sequence's last token,
 * and rows with the mask token. These rows attend to the cache and to each other. Each mask row predicts the token at
 * its own position. Sources: "DFlash" (arXiv 2602.06036) with github.com/z-lab/dflash; llama.cpp,
 * src/models/dflash.cpp; vLLM, qwen3_dflash.py. In llama.cpp, layers are causal only if a key says so for all layers.
 */
function addDflash(b: PlanBuilder, drafter: RowDrafter, sights: readonly Sight[]): void {
  const { hparams: h } = drafter;
  const width = h.embeddingLength;
  const nameOf = (layer: number) => (tensor: string) => joinedName(`blk.${layer}.${tensor}`, b.file);
  const norm = (x: Value, name: string) => rmsNorm(b, x, name, h.epsilon);
  const [projected] = linear(b, joinedRows(b, drafter), [{ name: "drafter.fc", rows: width }]);
  const context = norm(projected, "drafter.enc.output_norm");
  const heads = { ...drafterHeads(b, drafter), headNorms: true };
  for (const layer of sights.keys()) groupedKeys(b, context, heads, nameOf(layer));
  b.atEnd(() => {
    recall(b, projected, sights.length); // begins the draft; it reads only the KV caches that steps fill
    const x = embed(b, drafter.embedding, h.vocabSize, width);
    for (const [layer, sight] of sights.entries()) {
      const name = nameOf(layer);
      const attn = groupedAttention(b, norm(x, name("attn_norm")), { ...heads, ...sight }, name);
      linear(b, attn, [{ name: name("attn_output"), rows: width, addTo: x }]);
      feedForward(b, norm(x, name("ffn_norm")), h.feedForwardLength, name, { addTo: x });
    }
    chooseTokens(b, x, drafter);
  });
}
