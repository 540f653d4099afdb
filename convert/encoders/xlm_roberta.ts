import { addBert, type EncoderParts } from "./encoders.ts";
import type { Fields } from "../checkpoint/json.ts";
import type { TensorList } from "../tensor_list.ts";

/**
 * Converts XLM-RoBERTa, which has BERT's layers. Positions start after the padding token's id, so the first
 * rows of the position table are never read. A classification head has a separate dense layer.
 */
export function convertXlmRoberta(config: Fields, list: TensorList): EncoderParts {
  const padding = config.get("pad_token_id") === 0 ? 0 : config.count("pad_token_id", 1 << 20, 1);
  return addBert(config, list, {
    prefix: list.finder.has("roberta.embeddings.word_embeddings.weight") ? "roberta." : "",
    unread: padding + 1,
    head: { dense: "classifier.dense", labels: "classifier.out_proj" },
  });
}
