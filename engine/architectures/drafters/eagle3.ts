import { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import type { GgufFile } from "../../gguf/types.ts";
import type { PlanBuilder, Value } from "../../plan/builder.ts";
import { embed } from "../../plan/ops/embed.ts";
import { join } from "../../plan/ops/join.ts";
import { keep } from "../../plan/ops/keep.ts";
import { linear } from "../../plan/ops/matmul.ts";
import { recall } from "../../plan/ops/recall.ts";
import { rmsNorm } from "../../plan/ops/rms_norm.ts";
import { shift } from "../../plan/ops/shift.ts";
import { groupedAttention, groupedKeys } from "../parts/grouped_attention.ts";
import { feedForward } from "../parts/shared_experts.ts";
import { type Drafter, joinedName, requireKnown, type TensorNames } from "./drafter.ts";
import { chooseTokens, drafterHeads, joinedRows, readRowDrafter, type RowDrafter } from "./row_drafter.ts";

const TENSORS: TensorNames = {
  whole: /^(fc|enc\.output_norm|token_embd|output_norm|output)\.weight$/,
  layer: /^(attn_(norm|norm_2|q|k|v|output)|ffn_(norm|gate|up|down))\.weight$/,
};

/** An EAGLE-3 drafter: one layer in its own file, which drafts tokens from a model's hidden rows. */
interface Eagle3 extends RowDrafter {
  /** Whether the attention's output is added to the normalized row instead of the row itself. */
  readonly normBeforeResidual: boolean;
  /** Whether the model's rows are normalized before their projection. */
  readonly normBeforeFc: boolean;
}

/** Returns a drafter for `model`. `tokens` is the size of the drafter's own vocabulary, if it has one. Throws GgufError. */
export async function readEagle3(file: GgufFile, model: GgufFile, tokens?: number): Promise<Drafter> {
  const drafter = await readRowDrafter(file, model, { tokens, rows: 3 });
  const keys = ArchitectureKeys.of(file.metadata);
  const { blockCount } = drafter.hparams;
  if (blockCount !== 1) keys.refuse("block_count", String(blockCount), "1");
  requireKnown(file, TENSORS, "an EAGLE-3 drafter", blockCount);
  const flag = (name: string) => file.metadata.getBoolean(keys.name(name), false);
  const normBeforeResidual = flag("norm_before_residual");
  const normBeforeFc = flag("norm_before_fc");
  return { ...drafter, add: (b) => addEagle3(b, { ...drafter, normBeforeResidual, normBeforeFc }) };
}

/**
 * Adds the drafter after the model's layers. The drafter's layer reads a token and the projected rows of the previous
 * token. It computes a row that predicts the next token. For later tokens of a draft, the layer's own row replaces the
 * projected rows. Every step appends keys and values of all its tokens to the layer's KV cache. For the first token of
 * a text, the previous row is zeros; the sources have no cache entry for this token. Sources: "EAGLE-3" (arXiv
 * 2503.01840); llama.cpp, src/models/eagle3.cpp; vLLM, llama_eagle3.py.
 */
function addEagle3(b: PlanBuilder, drafter: Eagle3): void {
  const { hparams: h, normBeforeFc, normBeforeResidual } = drafter;
  const name = (tensor: string) => joinedName(`blk.0.${tensor}`, b.file);
  const width = h.embeddingLength;
  const norm = (x: Value, name: string) => rmsNorm(b, x, name, h.epsilon);
  const joined = joinedRows(b, drafter);
  const all = normBeforeFc ? norm(joined, "drafter.enc.output_norm") : joined;
  const [hidden] = linear(b, all, [{ name: "drafter.fc", rows: width }]);
  const heads = { ...drafterHeads(b, drafter), interleaved: true };
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
    feedForward(b, norm(row, name("ffn_norm")), h.feedForwardLength, name, { addTo: row });
    chooseTokens(b, row, drafter);
    keep(b, row, hidden);
  });
}
