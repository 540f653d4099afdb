import { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import { type Hparams, readHparams } from "../../gguf/hparams/hparams.ts";
import type { GgufFile } from "../../gguf/types.ts";
import type { PlanBuilder } from "../../plan/builder.ts";
import { candidates } from "../../plan/ops/candidates.ts";
import { embed } from "../../plan/ops/embed.ts";
import { join } from "../../plan/ops/join.ts";
import { keep } from "../../plan/ops/keep.ts";
import { linear } from "../../plan/ops/matmul.ts";
import { postNorm } from "../../plan/ops/post_norm.ts";
import { recall } from "../../plan/ops/recall.ts";
import { rmsNorm } from "../../plan/ops/rms_norm.ts";
import { attentionHalf, attentionKinds, GEMMA4 } from "../decoders/gemma4.ts";
import { draftTokens } from "../parts/draft_layer.ts";
import { geGlu } from "../parts/geglu.ts";
import { handedOut } from "../parts/hidden_rows.ts";
import { readFactors, Rope } from "../parts/rope.ts";
import { type Drafter, joinedName, MOST_COLUMNS, requireKnown, type TensorNames } from "./drafter.ts";

/** The centroids are not read: see `addAssistant`. */
const TENSORS: TensorNames = {
  whole: /^(nextn\.(pre|post)_projection|token_embd|output_norm|masked_embd_(centroids|ordering))\.weight$/,
  layer:
    /^(attn_(norm|q|q_norm|output)|post_(attention|ffw)_norm|ffn_(norm|gate|up|down)|layer_output_scale)\.weight$/,
};

/** The drafter and its model. */
interface Assistant {
  readonly h: Hparams;
  readonly keys: ArchitectureKeys;
  readonly rope: Rope;
  readonly model: Hparams;
}

/** Returns the description of a drafter for a model of Gemma 4. Throws GgufError. */
export async function readGemma4Assistant(file: GgufFile, modelFile: GgufFile): Promise<Drafter> {
  const h = readHparams(file, { layersDiffer: true });
  requireKnown(file, TENSORS, "a drafter for Gemma 4", h.blockCount);
  const keys = ArchitectureKeys.of(file.metadata);
  const model = readHparams(modelFile, GEMMA4.allows);
  const rope = new Rope(h, await readFactors(file, h));
  return {
    hparams: h,
    layers: [model.blockCount],
    columns: keys.count("embedding_length_out", MOST_COLUMNS),
    onePosition: true,
    add: (b) => addAssistant(b, { h, keys, rope, model }),
  };
}

/**
 * Adds the drafter after the model's layers. Its layers are Gemma 4's layers without keys and values. They read the KV
 * caches of the model's last layers. The first layer reads a projection of a token's embedding and the previous row,
 * both of the model's width. The output after the last norm is projected to the model's width: it is the previous row
 * of the next token. All tokens of a draft have the position of the first one.
 *
 * Files for E2B and E4B may have centroids, which choose a part of the vocabulary before its logits are computed.
 * compy and llama.cpp do not read the centroids, so all frequent tokens have logits. Sources: Hugging Face
 * transformers, models/gemma4_assistant and generation/candidate_generator.py; llama.cpp,
 * src/models/gemma4-assistant.cpp. The sources disagree about the window. compy follows llama.cpp: the window includes
 * the row's own position.
 */
function addAssistant(b: PlanBuilder, { h, keys, rope, model }: Assistant): void {
  const width = model.embeddingLength;
  const whole = (tensor: string) => joinedName(tensor, b.file);
  b.leaveOut((tensor) => tensor.startsWith(whole("masked_embd_")));
  const hidden = rmsNorm(b, handedOut(b, model.blockCount), "output_norm", model.epsilon);
  const slides = keys.windowLayers(h.blockCount);
  b.atEnd(() => {
    const before = recall(b, hidden);
    const token = embed(b, "token_embd", model.vocabSize, width, Math.sqrt(width));
    const input = { name: whole("nextn.pre_projection"), rows: h.embeddingLength };
    const [x] = linear(b, join(b, token, before), [input]);
    const { full, sliding } = attentionKinds(b, keys, h, rope);
    const kinds = {
      full: { ...full, kept: b.lastCaches.full },
      // The window includes the row's own position, but the KV cache does not.
      sliding: { ...sliding, window: Math.max(1, sliding.window - 1), kept: b.lastCaches.sliding },
    };
    for (const [layer, { heads, feedForwardLength }] of h.layers.entries()) {
      const name = (tensor: string) => whole(`blk.${layer}.${tensor}`);
      const kind = slides[layer] ? kinds.sliding : kinds.full;
      const kvHeads = kind.kept?.kvHeads ?? heads;
      if (heads % kvHeads !== 0) {
        keys.refuse("attention.head_count", String(heads), `a multiple of the model's ${kvHeads} KV heads`);
      }
      const attnIn = rmsNorm(b, x, name("attn_norm"), h.epsilon);
      const attn = attentionHalf(b, attnIn, h, { heads, kvHeads, feedForwardLength }, kind, false, name);
      postNorm(b, attn, name("post_attention_norm"), h.epsilon, x);
      geGlu(b, x, feedForwardLength, h.epsilon, name, { layerScale: name("layer_output_scale") });
    }
    const norm = whole("output_norm");
    const last = rmsNorm(b, x, norm, h.epsilon, "logits");
    candidates(b, last, h.vocabSize, {}, whole("token_embd"), draftTokens(b, h));
    const output = { name: whole("nextn.post_projection"), rows: width };
    keep(b, linear(b, rmsNorm(b, x, norm, h.epsilon), [output])[0], hidden);
  });
}
