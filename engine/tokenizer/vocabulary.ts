import { GgufError, quote } from "../gguf/errors.ts";
import type { Metadata } from "../gguf/types.ts";
import type { VocabularyTables } from "../gguf/vocabulary.ts";
import { endTokens, infillTokens, overrideTypes } from "./special/special_tokens.ts";
import { TOKEN_TYPE } from "./token_types.ts";
import type { InfillTokens } from "./types.ts";

/** The validated tokens of a file. */
export interface Vocabulary {
  /** Token texts by id: `<0x0A>` and similar for type BYTE, and byte-encoded in gpt2 vocabularies. */
  readonly tokens: readonly string[];
  readonly types: Uint8Array; // [tokens]
  /** Ids by text, without tokens of empty text. */
  readonly ids: ReadonlyMap<string, number>;
  readonly bos: number | undefined;
  readonly eos: number | undefined;
  readonly unknown: number | undefined;
  readonly padding: number | undefined;
  readonly separator: number | undefined;
  readonly end: ReadonlySet<number>;
  readonly infill: InfillTokens | undefined;
}

/** Maximum characters of all tokens that are searched before encoding: each may need a trie node. */
const MAX_SPECIAL_LENGTH = 1 << 22;

/** Returns an error about the vocabulary that names the key. */
export function vocabError(key: string, detail: string): GgufError {
  return new GgufError("GGUF_VOCAB", detail, { field: `key "tokenizer.ggml.${key}"` });
}

/** Returns the vocabulary of a file's tables. Throws GgufError(GGUF_VOCAB) if they are inconsistent. */
export function createVocabulary(
  { tokens, ids, tokenTypes }: VocabularyTables,
  metadata: Metadata,
  defaults: { bos?: number; eos?: number; unknown?: number; separator?: number; padding?: number },
): Vocabulary {
  const types = readTypes(tokens, tokenTypes);
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
    padding: special("padding", defaults.padding),
    separator: special("seperator", defaults.separator), // the misspelling is the specification's
    end: endTokens(types, ids, special, eos),
    infill: infillTokens(ids, special),
  };
}

/** Returns the id under `tokenizer.ggml.NAME_token_id`, or the fallback if the vocabulary has that token. */
function readId(metadata: Metadata, name: string, count: number, fallback?: number): number | undefined {
  const key = `tokenizer.ggml.${name}_token_id`;
  if (!metadata.has(key)) return fallback !== undefined && fallback < count ? fallback : undefined;
  const id = metadata.getCount(key);
  // Published files may have out-of-range ids of tokens that a text model does not use.
  return id < count ? id : undefined;
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
      `control and user-defined tokens must have at most ${MAX_SPECIAL_LENGTH} characters in all (got ${length})`,
    );
  }
}

function readTypes(tokens: readonly string[], given: ArrayLike<number> | undefined): Uint8Array {
  if (!given) return new Uint8Array(tokens.length).fill(TOKEN_TYPE.NORMAL);
  for (let id = 0; id < tokens.length; id++) {
    if (given[id] === TOKEN_TYPE.BYTE && !/^<0x[0-9A-Fa-f]{2}>$/.test(tokens[id])) {
      throw vocabError("tokens", `byte token ${id} must be <0x00> to <0xFF> (got ${quote(tokens[id])})`);
    }
  }
  return Uint8Array.from(given);
}
