import { GgufError, quote } from "../gguf/errors.ts";
import type { Metadata } from "../gguf/types.ts";
import { endTokens, overrideTypes } from "./special_tokens.ts";
import { TOKEN_TYPE } from "./token_types.ts";

/** What a file says of its tokens, checked. */
export interface Vocabulary {
  /** Texts by id; `<0x0A>` and the like where the type is BYTE, byte-encoded in vocabularies of the model gpt2. */
  readonly tokens: readonly string[];
  readonly types: Uint8Array; // [tokens]
  /** Ids by text; tokens of empty text are not in it. */
  readonly ids: ReadonlyMap<string, number>;
  readonly bos: number | undefined;
  readonly eos: number | undefined;
  readonly unknown: number | undefined;
  readonly end: ReadonlySet<number>;
}

/** Priorities and ids are packed into one number: at most 2^21 of either. */
const MAX_TOKENS = 1 << 21;
/** No known vocabulary has a token of more than 300; each of an SPM vocabulary is cut at every place once. */
const MAX_TOKEN_LENGTH = 2048;
/** Characters of all the tokens that are looked for in a text before it is encoded: each may cost a node of a trie. */
const MAX_SPECIAL_LENGTH = 1 << 22;

/** A refusal of the vocabulary, naming the key. */
export function vocabError(key: string, detail: string): GgufError {
  return new GgufError("GGUF_VOCAB", detail, { field: `key "tokenizer.ggml.${key}"` });
}

/** Reads `tokenizer.ggml.*`. Throws GgufError(GGUF_VOCAB) where it contradicts itself. */
export function readVocabulary(
  metadata: Metadata,
  defaults: { bos?: number; eos?: number; unknown?: number },
): Vocabulary {
  const tokens = metadata.getStrings("tokenizer.ggml.tokens");
  if (!tokens || tokens.length === 0 || tokens.length > MAX_TOKENS) {
    throw vocabError("tokens", `found ${tokens?.length ?? "no"} tokens, allowed 1 to ${MAX_TOKENS}`);
  }
  const ids = new Map<string, number>();
  for (const [id, text] of tokens.entries()) {
    if (text.length > MAX_TOKEN_LENGTH) {
      throw vocabError(
        "tokens",
        `found ${text.length} characters in token ${id}, allowed ${MAX_TOKEN_LENGTH}`,
      );
    }
    if (text === "") continue;
    const first = ids.get(text);
    if (first !== undefined) {
      throw vocabError(
        "tokens",
        `found ${quote(text)} as tokens ${first} and ${id}, allowed one token to a text`,
      );
    }
    ids.set(text, id);
  }
  const types = readTypes(metadata, tokens);
  const special = (name: string, fallback?: number) => readId(metadata, name, tokens.length, fallback);
  overrideTypes(types, ids, special);
  checkSpecialLength(tokens, types);
  const eos = special("eos", defaults.eos);
  return {
    tokens,
    types,
    ids,
    bos: special("bos", defaults.bos),
    eos,
    unknown: special("unknown", defaults.unknown),
    end: endTokens(types, ids, special, eos),
  };
}

/** The id under `tokenizer.ggml.NAME_token_id`; a fallback that is no token of the vocabulary is none. */
function readId(metadata: Metadata, name: string, count: number, fallback?: number): number | undefined {
  const key = `tokenizer.ggml.${name}_token_id`;
  if (!metadata.has(key)) return fallback !== undefined && fallback < count ? fallback : undefined;
  const id = metadata.getCount(key);
  if (id >= count) throw vocabError(`${name}_token_id`, `found ${id}, allowed 0 to ${count - 1}`);
  return id;
}

function checkSpecialLength(tokens: readonly string[], types: Uint8Array): void {
  let length = 0;
  for (let id = 0; id < tokens.length; id++) {
    if (types[id] === TOKEN_TYPE.CONTROL || types[id] === TOKEN_TYPE.USER_DEFINED) {
      length += tokens[id].length;
    }
  }
  if (length > MAX_SPECIAL_LENGTH) {
    throw vocabError(
      "tokens",
      `found ${length} characters in control and user-defined tokens, allowed ${MAX_SPECIAL_LENGTH}`,
    );
  }
}

function readTypes(metadata: Metadata, tokens: readonly string[]): Uint8Array {
  const types = new Uint8Array(tokens.length).fill(TOKEN_TYPE.NORMAL);
  const given = metadata.getNumbers("tokenizer.ggml.token_type");
  if (!given) return types;
  if (given.length !== tokens.length) {
    throw vocabError("token_type", `found ${given.length} types, allowed ${tokens.length}, one to a token`);
  }
  for (let id = 0; id < types.length; id++) {
    const type = given[id];
    if (!(type >= 0 && type <= 6)) {
      throw vocabError("token_type", `found ${type} for token ${id}, allowed 0 to 6`);
    }
    if (type === TOKEN_TYPE.BYTE && !/^<0x[0-9A-Fa-f]{2}>$/.test(tokens[id])) {
      throw vocabError("tokens", `found the byte token ${id} ${quote(tokens[id])}, allowed <0x00> to <0xFF>`);
    }
    types[id] = type;
  }
  return types;
}
