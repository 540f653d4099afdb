import type { Metadata } from "../gguf/types.ts";
import { controlFinder } from "./chat_template.ts";
import { addMarks } from "./literal_marks.ts";
import { type RankTemplate, type Tokenizer, TooManyTokens } from "./types.ts";

const KEY = "tokenizer.chat_template.rerank";

/**
 * The file's template (`tokenizer.chat_template.rerank`: a text with `{query}` and `{document}` in it); for a file without one
 * [BOS] query [EOS] [SEP] document [EOS], of which the file says which it wants. As llama-server does, but for control tokens:
 * what spells one in a query or a document stays text.
 */
export function createRankTemplate(metadata: Metadata, tokenizer: Tokenizer): RankTemplate {
  const template = metadata.has(KEY) ? metadata.getString(KEY) : undefined;
  if (template === undefined) return { encode: plainPair(metadata, tokenizer) };
  const controls = controlFinder(metadata, tokenizer, "all");
  const parts = template.split(/(\{query\}|\{document\})/);
  return {
    encode(query, document, atMost) {
      const texts = new Map([["{query}", query], ["{document}", document]]);
      const prompt = parts.map((part) => {
        const text = texts.get(part);
        return text === undefined ? part : addMarks(text, controls);
      });
      return tokenizer.encode(prompt.join(""), { parseSpecial: true, marked: true, atMost });
    },
  };
}

function plainPair(metadata: Metadata, tokenizer: Tokenizer): RankTemplate["encode"] {
  const { bosToken, separatorToken } = tokenizer;
  // What the tokenizer itself would put around a text.
  const added = tokenizer.encode("", { addSpecial: true });
  const before = bosToken !== undefined && added[0] === bosToken ? [bosToken] : [];
  const after = added.slice(before.length);
  const asked = metadata.getBoolean("tokenizer.ggml.add_sep_token", false);
  // WordPiece ends every text with SEP: that is what stands between two.
  const apart = asked && separatorToken !== undefined &&
    metadata.getString("tokenizer.ggml.model") !== "bert";
  return (query, document, atMost = Infinity) => {
    const [q, d] = [query, document].map((text) => tokenizer.encode(text, { atMost }));
    const tokens = [...before, ...q, ...after, ...(apart ? [separatorToken] : []), ...d, ...after];
    if (tokens.length > atMost) throw new TooManyTokens(tokens.length);
    return tokens;
  };
}
