import { quote } from "../../engine/gguf/errors.ts";
import { TOKEN_TYPE } from "../../engine/tokenizer/token_types.ts";
import { refuse } from "../errors.ts";
import { type Fields, isObject } from "../checkpoint/json.ts";
import { type Entry, entry } from "../write/metadata.ts";

const CONTINUES = "##";
/** Mark of a word's first piece in GGUF; later pieces have none. */
const BEGINS = "▁";

/** GGUF's names of the special tokens, by their keys in tokenizer_config.json. */
const SPECIAL = {
  cls: "cls_token",
  seperator: "sep_token",
  unknown: "unk_token",
  padding: "pad_token",
  mask: "mask_token",
};

/** A vocabulary from tokenizer.json: texts and types by id, ids by text. */
export interface PlainVocabulary {
  readonly tokens: readonly string[];
  readonly types: Uint8Array; // [tokens]
  readonly ids: ReadonlyMap<string, number>;
}

/** Returns the entries for BERT's WordPiece. Throws ConvertError for a tokenizer that readers would not reproduce. */
export function wordPieceEntries(
  tokenizer: Fields,
  model: Fields,
  config: Fields,
  { tokens, types, ids }: PlainVocabulary,
): Entry[] {
  model.mustBe("continuing_subword_prefix", CONTINUES, "later pieces of a word begin with it");
  const normalizer = tokenizer.fields("normalizer");
  normalizer?.mustBe("type", "BertNormalizer", "GGUF has no place for another");
  normalizer?.mustBe("clean_text", true, "readers always do that");
  normalizer?.mustBe("handle_chinese_chars", true, "readers always do that");
  tokenizer.fields("pre_tokenizer")?.mustBe("type", "BertPreTokenizer", "GGUF has no place for another");
  const lowercase = normalizer?.boolean("lowercase", true) ?? true;
  const stripAccents = normalizer?.boolean("strip_accents", lowercase) ?? lowercase;
  const marked = tokens.map((text, id) => mark(text, types[id]));
  const known = new Map<string, number>();
  for (const [id, text] of marked.entries()) {
    const other = known.get(text);
    if (other !== undefined) {
      refuse(tokenizer.file, `token ${quote(tokens[id])}`, `it is spelt like token ${other} in GGUF`);
    }
    known.set(text, id);
  }
  return [
    entry("tokenizer.ggml.model", "STRING", "bert"),
    entry("tokenizer.ggml.pre", "STRING", "default"),
    ...(lowercase && stripAccents ? [] : [
      entry("tokenizer.ggml.normalizer.lowercase", "BOOL", lowercase),
      entry("tokenizer.ggml.normalizer.strip_accents", "BOOL", stripAccents),
    ]),
    entry("tokenizer.ggml.tokens", "STRING", marked),
    entry("tokenizer.ggml.token_type", "INT32", Array.from(types)),
    ...specialEntries(config, ids),
  ];
}

function mark(text: string, type: number): string {
  if (type !== TOKEN_TYPE.NORMAL || (text.startsWith("[") && text.endsWith("]") && text.length > 1)) {
    return text;
  }
  return text.startsWith(CONTINUES) && text.length > CONTINUES.length
    ? text.slice(CONTINUES.length)
    : BEGINS + text;
}

function specialEntries(config: Fields, ids: ReadonlyMap<string, number>): Entry[] {
  return Object.entries(SPECIAL).flatMap(([name, key]) => {
    const value = config.get(key);
    const text = String((isObject(value) ? value.content : value) ?? `[${key.slice(0, 3).toUpperCase()}]`);
    const id = ids.get(text);
    if (id !== undefined) return [entry(`tokenizer.ggml.${name}_token_id`, "UINT32", id)];
    if (value === undefined) return [];
    return config.refuse(key, quote(text), "a token of tokenizer.json");
  });
}
