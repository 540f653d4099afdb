import { finish, type Paced } from "../../pacing/pauses.ts";
import type { Metadata } from "../../gguf/types.ts";
import { controlFinder } from "./chat_template.ts";
import { addMarks } from "../../tokenizer/special/literal_marks.ts";
import { type RankTemplate, type Tokenizer, TooManyTokens } from "../../tokenizer/types.ts";

const KEY = "tokenizer.chat_template.rerank";

/**
 * Returns the prompt format for ranking: the file's `tokenizer.chat_template.rerank`, a text with `{query}` and
 * `{document}`. Without a template the prompt is [BOS] query [EOS] [SEP] document [EOS], with the special tokens that
 * the file enables. This follows llama-server, except that control tokens spelled in a query or document stay text.
 */
export function createRankTemplate(metadata: Metadata, tokenizer: Tokenizer): RankTemplate {
  const template = metadata.has(KEY) ? metadata.getString(KEY) : undefined;
  if (template === undefined) return { encode: plainPair(metadata, tokenizer) };
  const controls = controlFinder(metadata, tokenizer, "all");
  const parts = template.split(/(\{query\}|\{document\})/);
  function* written(query: string, document: string): Paced<string> {
    const texts = new Map([["{query}", query], ["{document}", document]]);
    let prompt = "";
    for (const part of parts) {
      const text = texts.get(part);
      prompt += text === undefined ? part : yield* addMarks(text, controls);
    }
    return prompt;
  }
  return {
    encode: (query, document, atMost) =>
      tokenizer.encode(finish(written(query, document)), { parseSpecial: true, marked: true, atMost }),
  };
}

function plainPair(metadata: Metadata, tokenizer: Tokenizer): RankTemplate["encode"] {
  const { bosToken, separatorToken } = tokenizer;
  // Special tokens that the tokenizer adds around a text.
  const added = tokenizer.encode("", { addSpecial: true });
  const before = bosToken !== undefined && added[0] === bosToken ? [bosToken] : [];
  const after = added.slice(before.length);
  const asked = metadata.getBoolean("tokenizer.ggml.add_sep_token", false);
  // WordPiece ends every text with SEP, which already separates query and document.
  const apart = asked && separatorToken !== undefined &&
    metadata.getString("tokenizer.ggml.model") !== "bert";
  return (query, document, atMost = Infinity) => {
    const [q, d] = [query, document].map((text) => tokenizer.encode(text, { atMost }));
    const tokens = [...before, ...q, ...after, ...(apart ? [separatorToken] : []), ...d, ...after];
    if (tokens.length > atMost) throw new TooManyTokens(tokens.length);
    return tokens;
  };
}
