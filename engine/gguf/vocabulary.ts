import { GgufError, quote } from "./errors.ts";
import { byteOf, inWords } from "./metadata.ts";
import type { Metadata } from "./types.ts";

/** The tokenizer's tables, checked against each other: an index into one is valid in all. */
export interface VocabularyTables {
  /**
   * `tokenizer.ggml.model`: "gpt2" is byte-level BPE, "llama" SentencePiece's BPE, "t5" its Unigram, "plamo2" PLaMo's,
   * "bert" WordPiece.
   */
  readonly model: string;
  readonly tokens: readonly string[]; // [n]
  /** Ids by token text, without tokens of empty text. */
  readonly ids: ReadonlyMap<string, number>;
  readonly scores: ArrayLike<number> | undefined; // [n]
  /** Type of each token: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte. */
  readonly tokenTypes: ArrayLike<number> | undefined; // [n]
  /** BPE merges. An entry names two tokens, separated by a space; their concatenation is also a token. */
  readonly merges: readonly string[] | undefined;
}

const TOKENS = "tokenizer.ggml.tokens";
const SCORES = "tokenizer.ggml.scores";
const TOKEN_TYPES = "tokenizer.ggml.token_type";
const MERGES = "tokenizer.ggml.merges";
/** Special tokens that affect encoding or end a generation. */
const SPECIAL_IDS = ["bos", "eos", "eot", "eom", "unknown"].map((name) => `tokenizer.ggml.${name}_token_id`);

const MAX_TOKENS = 1_048_576;
/**
 * Maximum UTF-16 units of a token; published vocabularies have at most a few hundred. SentencePiece tries to split a
 * token at every position.
 */
const MAX_TOKEN_LENGTH = 2048;
const MAX_MERGES = 2 * MAX_TOKENS;
const MAX_TOKEN_TYPE = 6;

/**
 * Reads the tokenizer's tables and checks them against each other. Throws GgufError(GGUF_VOCAB), and
 * GgufError(GGUF_HPARAM) for a value of the wrong type.
 *
 * Two oddities of published files are accepted: tokens without text, and out-of-range ids of special tokens
 * that text models do not use, such as a padding token of 2^32 - 1 (llama.cpp warns).
 */
export function readVocabulary(metadata: Metadata): VocabularyTables {
  const model = metadata.getString("tokenizer.ggml.model");
  const tokens = readTokens(metadata);
  const ids = idsOf(metadata, tokens);
  for (const key of SPECIAL_IDS) checkSpecialId(metadata, key, tokens.length);
  return {
    model,
    tokens,
    ids,
    scores: readScores(metadata, model, tokens.length),
    tokenTypes: readTokenTypes(metadata, tokens.length),
    merges: readMerges(metadata, model, ids),
  };
}

function readTokens(metadata: Metadata): string[] {
  const tokens = metadata.getStrings(TOKENS);
  if (!tokens || tokens.length === 0 || tokens.length > MAX_TOKENS) {
    refuse(metadata, TOKENS, lengthInWords(tokens), `1 to ${MAX_TOKENS} tokens`);
  }
  const long = tokens.findIndex((token) => token.length > MAX_TOKEN_LENGTH);
  if (long >= 0) {
    const found = `token ${long} of ${tokens[long].length} characters`;
    refuse(metadata, TOKENS, found, `texts of at most ${MAX_TOKEN_LENGTH} characters`);
  }
  return tokens;
}

function idsOf(metadata: Metadata, tokens: readonly string[]): Map<string, number> {
  const ids = new Map<string, number>();
  for (let id = 0; id < tokens.length; id++) {
    if (tokens[id] === "") continue;
    const first = ids.get(tokens[id]);
    if (first !== undefined) {
      const found = `${quote(tokens[id])} as tokens ${first} and ${id}`;
      refuse(metadata, TOKENS, found, "distinct texts");
    }
    ids.set(tokens[id], id);
  }
  return ids;
}

function readScores(metadata: Metadata, model: string, count: number): ArrayLike<number> | undefined {
  const scores = readTable(metadata, SCORES, count);
  // SentencePiece and PLaMo models need scores.
  if (!scores && (model === "llama" || model === "t5" || model === "plamo2")) {
    refuse(metadata, SCORES, "nothing", `${count} scores`);
  }
  for (let i = 0; scores && i < count; i++) {
    if (Number.isNaN(scores[i])) refuse(metadata, SCORES, `NaN at ${i}`, "numbers");
  }
  return scores;
}

function readTokenTypes(metadata: Metadata, count: number): ArrayLike<number> | undefined {
  const types = readTable(metadata, TOKEN_TYPES, count);
  for (let i = 0; types && i < count; i++) {
    const type = types[i];
    if (!Number.isInteger(type) || type < 0 || type > MAX_TOKEN_TYPE) {
      refuse(metadata, TOKEN_TYPES, `${type} at ${i}`, `0 to ${MAX_TOKEN_TYPE}`);
    }
  }
  return types;
}

/** Returns a metadata array of numbers with one element per token. */
function readTable(metadata: Metadata, key: string, count: number): ArrayLike<number> | undefined {
  const table = metadata.getNumbers(key);
  if (table && table.length !== count) {
    refuse(metadata, key, lengthInWords(table), `${count} elements, one for each token`);
  }
  return table;
}

function readMerges(
  metadata: Metadata,
  model: string,
  ids: ReadonlyMap<string, number>,
): string[] | undefined {
  const merges = metadata.getStrings(MERGES);
  if (!merges && (model === "gpt2" || model === "gemma4")) {
    refuse(metadata, MERGES, "nothing", "the merges of a byte-pair encoding");
  }
  if (merges && merges.length > MAX_MERGES) {
    refuse(metadata, MERGES, lengthInWords(merges), `at most ${MAX_MERGES} elements`);
  }
  for (let i = 0; merges && i < merges.length; i++) {
    const [left, right] = mergeParts(merges[i]);
    if (!ids.has(left) || !ids.has(right) || !ids.has(left + right)) {
      refuse(metadata, MERGES, `${quote(merges[i])} at ${i}`, "two tokens whose concatenation is a token");
    }
  }
  return merges;
}

/** Returns the two tokens of a merge. The right one is empty if the merge has no space. */
export function mergeParts(merge: string): [left: string, right: string] {
  const space = merge.indexOf(" ", 1); // a part may itself begin with a space
  return space < 0 ? [merge, ""] : [merge.slice(0, space), merge.slice(space + 1)];
}

function checkSpecialId(metadata: Metadata, key: string, count: number): void {
  const id = metadata.entries.get(key);
  if (id === undefined) return;
  if (typeof id !== "number" || !Number.isInteger(id) || id < 0 || id >= count) {
    refuse(metadata, key, inWords(id), `a token id from 0 to ${count - 1}`);
  }
}

function lengthInWords(value: { length: number } | undefined): string {
  return value === undefined ? "nothing" : `${value.length} elements`;
}

function refuse(metadata: Metadata, key: string, found: string, allowed: string): never {
  const place = { byte: byteOf(metadata, key), field: `key ${quote(key)}` };
  throw new GgufError("GGUF_VOCAB", `must be ${allowed} (got ${found})`, place);
}
