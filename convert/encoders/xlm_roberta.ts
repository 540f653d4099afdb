import { addBert, type EncoderParts } from "./encoders.ts";
import type { Fields } from "../checkpoint/json.ts";
import type { TensorList } from "../tensor_list.ts";

/**
 * XLM-RoBERTa: BERT's layers. Its positions are counted from the padding token on, so the first rows of their table are never
 * read, and the head of a classifier has a dense layer of its own.
 */
export function convertXlmRoberta(config: Fields, list: TensorList): EncoderParts {
  const padding = config.get("pad_token_id") === 0 ? 0 : config.count("pad_token_id", 1 << 20, 1);
  return addBert(config, list, {
    prefix: list.finder.has("roberta.embeddings.word_embeddings.weight") ? "roberta." : "",
    unread: padding + 1,
    head: { dense: "classifier.dense", labels: "classifier.out_proj" },
  });
}
