import { quote } from "../../engine/gguf/errors.ts";
import { TOKEN_TYPE } from "../../engine/tokenizer/token_types.ts";
import { refuse } from "../errors.ts";
import { Fields, inWords, isObject, oneOf } from "../checkpoint/json.ts";
import { type Entry, entry } from "../write/metadata.ts";
import { preTokenizerName } from "./pre_tokenizer.ts";
import { DECODER_TOKENS, ENCODER_TOKENS, specialEntries } from "./special_tokens.ts";
import { plainVocabulary, unigramEntries } from "./unigram.ts";
import { wordPieceEntries } from "./word_piece.ts";

const MAX_TOKEN_LENGTH = 2048;

/**
 * Gemma 4's tokens that separate the parts of an answer. tokenizer.json makes them control tokens, but answers must
 * show them.
 */
const GEMMA4_SHOWN: readonly string[] = [
  "<|channel>",
  "<channel|>",
  "<|tool_call>",
  "<tool_call|>",
  "<|tool_response>",
  "<tool_response|>",
  '<|"|>',
];

interface Vocabulary {
  readonly tokens: string[];
  readonly types: Uint8Array; // [tokens]
  readonly ids: Map<string, number>;
}

/**
 * Returns the tokenizer's entries, from tokenizer.json and tokenizer_config.json. Unused tokens fill the vocabulary up
 * to the model's `rows`. `architecture` is the GGUF file's. Throws ConvertError for a tokenizer that GGUF readers would
 * not reproduce.
 */
export function tokenizerEntries(
  tokenizer: Fields,
  config: Fields,
  rows: number,
  architecture = "",
): Entry[] {
  const model = tokenizer.fields("model") ??
    tokenizer.refuse("model", "nothing", "a BPE, WordPiece or Unigram model");
  if (model.get("type") === "Unigram") {
    const vocabulary = readVocabulary(tokenizer, plainVocabulary(model), rows);
    return unigramEntries(tokenizer, model, config, vocabulary);
  }
  if (model.get("type") === "WordPiece") {
    return wordPieceEntries(tokenizer, model, config, readVocabulary(tokenizer, model, rows));
  }
  if ((model.get("type") ?? "BPE") !== "BPE") {
    model.refuse("type", inWords(model.get("type")), oneOf(["BPE", "WordPiece", "Unigram"]));
  }
  model.mustBe("dropout", 0, "dropout has no place here");
  const vocabulary = readVocabulary(tokenizer, model, rows);
  const merges = readMerges(model, vocabulary.ids);
  const own = architecture === "gemma4"
    ? characterEntries(tokenizer, vocabulary, merges)
    : model.boolean("byte_fallback", false)
    ? sentencePieceEntries(tokenizer, vocabulary, merges)
    : byteLevelEntries(tokenizer, model, merges, architecture);
  const special = architecture === "modern-bert" ? ENCODER_TOKENS : DECODER_TOKENS;
  return [
    ...own,
    entry("tokenizer.ggml.tokens", "STRING", vocabulary.tokens),
    entry("tokenizer.ggml.token_type", "INT32", Array.from(vocabulary.types)),
    ...specialEntries(tokenizer, config, vocabulary.ids, special),
  ];
}

/** Returns the entries for Gemma 4's merges over characters, in which blanks are marks. */
function characterEntries(tokenizer: Fields, vocabulary: Vocabulary, merges: readonly Merge[]): Entry[] {
  if (hasBlankPrefix(tokenizer)) {
    tokenizer.refuse("normalizer", "a blank before the text", "none, which readers do not put there");
  }
  markBytes(vocabulary);
  for (const text of GEMMA4_SHOWN) {
    const id = vocabulary.ids.get(text);
    if (id !== undefined) vocabulary.types[id] = TOKEN_TYPE.USER_DEFINED;
  }
  return [
    entry("tokenizer.ggml.model", "STRING", "gemma4"),
    entry("tokenizer.ggml.merges", "STRING", merges.map(([left, right]) => `${left} ${right}`)),
    entry("tokenizer.ggml.add_space_prefix", "BOOL", false),
  ];
}

type Merge = readonly [left: string, right: string];

function byteLevelEntries(
  tokenizer: Fields,
  model: Fields,
  merges: readonly Merge[],
  architecture: string,
): Entry[] {
  const normalizer = tokenizer.fields("normalizer");
  const steps = normalizer?.get("normalizers");
  const isEmpty = Array.isArray(steps) && steps.length === 0;
  // GGUF readers do not normalise text. NFC leaves almost all text unchanged.
  if (normalizer && !isEmpty) normalizer.mustBe("type", "NFC", "GGUF has no place for another normalizer");
  for (const [left, right] of merges) {
    if (left.includes(" ") || right.includes(" ")) {
      model.refuse("merges", `a part with a blank, ${quote(`${left} ${right}`)}`, "byte-level tokens");
    }
  }
  const name = preTokenizerName(tokenizer, model.boolean("ignore_merges", false), architecture);
  return [
    entry("tokenizer.ggml.model", "STRING", "gpt2"),
    entry("tokenizer.ggml.pre", "STRING", name),
    entry("tokenizer.ggml.merges", "STRING", merges.map(([left, right]) => `${left} ${right}`)),
  ];
}

/**
 * Returns the entries for SentencePiece's BPE, which merges by score. A token's score is the position of the first
 * merge that builds it, negated.
 */
function sentencePieceEntries(tokenizer: Fields, vocabulary: Vocabulary, merges: readonly Merge[]): Entry[] {
  const scores = new Float32Array(vocabulary.tokens.length);
  let place = 0;
  let last = "";
  const made = new Set<string>();
  for (const [left, right] of merges) {
    const token = left + right;
    if (token === last) continue;
    if (made.has(token)) {
      const found = `merges to ${quote(token)} with others between them`;
      tokenizer.refuse("model.merges", found, "all merges to a token side by side, as its score orders them");
    }
    made.add(token);
    last = token;
    scores[vocabulary.ids.get(token)!] = -place++;
  }
  markBytes(vocabulary);
  for (const [id, text] of vocabulary.tokens.entries()) {
    // No merge builds this token, so its score is below those of all built tokens.
    if (!made.has(text)) scores[id] = -place;
  }
  return [
    entry("tokenizer.ggml.model", "STRING", "llama"),
    entry("tokenizer.ggml.pre", "STRING", "default"),
    entry("tokenizer.ggml.scores", "FLOAT32", Array.from(scores)),
    entry("tokenizer.ggml.add_space_prefix", "BOOL", hasBlankPrefix(tokenizer)),
  ];
}

/** Sets the BYTE type of tokens for single bytes. */
function markBytes({ tokens, types }: Vocabulary): void {
  for (const [id, text] of tokens.entries()) {
    if (types[id] === TOKEN_TYPE.NORMAL && /^<0x[0-9A-F]{2}>$/.test(text)) types[id] = TOKEN_TYPE.BYTE;
  }
}

/** Returns whether a step of the normalizer or pre-tokenizer adds a blank before the text. */
function hasBlankPrefix(tokenizer: Fields): boolean {
  const steps: unknown[] = [];
  for (const [key, list] of [["normalizer", "normalizers"], ["pre_tokenizer", "pretokenizers"]]) {
    const value = tokenizer.get(key);
    const parts = isObject(value) && Array.isArray(value[list]) ? value[list] : [value];
    steps.push(...parts.filter((part) => part !== undefined));
  }
  const replaced = steps.some((step) => isObject(step) && isReplacement(step));
  let prefix = false;
  for (const step of steps) {
    const known = isObject(step) ? knownBlankStep(step, replaced) : undefined;
    if (known === undefined) {
      const type = isObject(step) ? step.type : step;
      tokenizer.refuse("normalizer", `the step ${inWords(type)}`, "Prepend, Replace and Metaspace with ▁");
    }
    prefix ||= known;
  }
  return prefix;
}

type Step = Readonly<Record<string, unknown>>;

/**
 * Returns whether a step adds a blank before the text; undefined for an unknown step. `replaced`: blanks are ▁ already.
 */
function knownBlankStep(step: Step, replaced: boolean): boolean | undefined {
  if (step.type === "Prepend" && step.prepend === "▁") return true;
  if (step.type === "Metaspace" && step.replacement === "▁" && step.split !== true) {
    return step.prepend_scheme === undefined
      ? step.add_prefix_space !== false
      : step.prepend_scheme !== "never";
  }
  // Gemma splits at blanks, but its normalizer has already replaced all blanks.
  const cuts = step.type === "Split" && patternOf(step) === " ";
  return isReplacement(step) || (cuts && replaced) ? false : undefined;
}

function isReplacement(step: Step): boolean {
  return step.type === "Replace" && patternOf(step) === " " && step.content === "▁";
}

function patternOf({ pattern }: Step): unknown {
  return isObject(pattern) ? pattern.String : undefined;
}

function readVocabulary(tokenizer: Fields, model: Fields, rows: number): Vocabulary {
  const tokens = new Array<string>(rows);
  const types = new Uint8Array(rows).fill(TOKEN_TYPE.NORMAL);
  const ids = new Map<string, number>();
  const add = (text: string, id: unknown, type: number) => {
    if (typeof id !== "number" || !Number.isInteger(id) || id < 0 || id >= rows) {
      const allowed = `0 to ${rows - 1}, config.json's vocab_size`;
      refuse(tokenizer.file, `token ${quote(text)}`, `the id must be ${allowed} (got ${inWords(id)})`);
    }
    const known = ids.get(text) ?? (tokens[id] === undefined ? undefined : id);
    if (known !== undefined && (known !== id || tokens[id] !== text)) {
      refuse(tokenizer.file, `token ${quote(text)}`, `the id ${id} is a duplicate (also ${known})`);
    }
    if (text === "" || text.length > MAX_TOKEN_LENGTH) {
      refuse(
        tokenizer.file,
        `token ${id}`,
        `must have 1 to ${MAX_TOKEN_LENGTH} characters (got ${text.length})`,
      );
    }
    tokens[id] = text;
    types[id] = type;
    ids.set(text, id);
  };
  const vocab = model.fields("vocab") ?? model.refuse("vocab", "nothing", "an object of tokens and ids");
  for (const [text, id] of Object.entries(vocab.object)) add(text, id, TOKEN_TYPE.NORMAL);
  for (const { content, id, special } of readAdded(tokenizer)) {
    add(content, id, special ? TOKEN_TYPE.CONTROL : TOKEN_TYPE.USER_DEFINED);
  }
  const unknown = model.get("unk_token");
  if (typeof unknown === "string" && ids.has(unknown)) types[ids.get(unknown)!] = TOKEN_TYPE.UNKNOWN;
  for (let id = 0; id < rows; id++) {
    if (tokens[id] === undefined) add(`[PAD${id}]`, id, TOKEN_TYPE.UNUSED);
  }
  return { tokens, types, ids };
}

interface AddedToken {
  readonly content: string;
  readonly id: unknown;
  readonly special: boolean;
}

function readAdded(tokenizer: Fields): AddedToken[] {
  const added = tokenizer.get("added_tokens") ?? [];
  if (!Array.isArray(added)) tokenizer.refuse("added_tokens", inWords(added), "an array");
  return added.map((value, i) => {
    const fields = Fields.of(tokenizer.file, value, `added_tokens[${i}].`);
    return {
      content: fields.string("content"),
      id: fields.get("id"),
      special: fields.boolean("special", false),
    };
  });
}

/**
 * Returns the merges of a tokenizer.json, in which each is an array of two texts, or one text with a blank between the
 * parts.
 */
function readMerges(model: Fields, ids: ReadonlyMap<string, number>): Merge[] {
  const merges = model.get("merges");
  if (!Array.isArray(merges)) model.refuse("merges", inWords(merges), "an array");
  return merges.map((merge: unknown, i): Merge => {
    const blank = typeof merge === "string" ? merge.indexOf(" ") : -1;
    const pair = typeof merge === "string" ? [merge.slice(0, blank), merge.slice(blank + 1)] : merge;
    const valid = Array.isArray(pair) && pair.length === 2 && ids.has(String(pair[0]) + String(pair[1]));
    if (!valid || pair[0] === "" || pair[1] === "") {
      model.refuse("merges", `${quote(String(merge))} at ${i}`, "two parts whose concatenation is a token");
    }
    return [String(pair[0]), String(pair[1])];
  });
}
