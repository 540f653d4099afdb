import { quote } from "../../engine/gguf/errors.ts";
import { Fields, inWords, isObject } from "../checkpoint/json.ts";
import { type Entry, entry } from "../write/metadata.ts";
import { DECODER_TOKENS, specialEntries } from "./special_tokens.ts";
import type { PlainVocabulary } from "./word_piece.ts";

const SPECIAL = { ...DECODER_TOKENS, seperator: "sep_token", mask: "mask_token" };

/** Changes that a reader makes to a text before it looks for tokens. */
interface Normalization {
  /** SentencePiece's normalization table in base64; empty if there is none. */
  characters: string;
  /** Whether to add a blank before the text. */
  blankFirst: boolean;
  /** Whether to merge runs of blanks into one, and drop blanks around the text. */
  mergeBlanks: boolean;
}

/** Returns the fields with Unigram's array of tokens and scores in BPE's form: an object from tokens to ids. */
export function plainVocabulary(model: Fields): Fields {
  const pieces = piecesOf(model);
  const vocab = Object.fromEntries(pieces.map(([text], id) => [text, id]));
  if (Object.keys(vocab).length !== pieces.length) model.refuse("vocab", "a token twice", "each token once");
  const unknown = model.get("unk_id");
  return new Fields(model.file, {
    vocab,
    unk_token: typeof unknown === "number" ? pieces[unknown]?.[0] : undefined,
  }, "model.");
}

/**
 * Returns the entries for SentencePiece's Unigram. Throws ConvertError for a tokenizer that readers would not
 * reproduce.
 */
export function unigramEntries(
  tokenizer: Fields,
  model: Fields,
  config: Fields,
  { tokens, types, ids }: PlainVocabulary,
): Entry[] {
  model.mustBe("byte_fallback", false, "readers make an unknown token of what is none");
  const scores = new Float32Array(tokens.length);
  for (const [id, [, score]] of piecesOf(model).entries()) scores[id] = score;
  const { characters, blankFirst, mergeBlanks } = normalizationOf(tokenizer);
  return [
    entry("tokenizer.ggml.model", "STRING", "t5"),
    entry("tokenizer.ggml.pre", "STRING", "default"),
    entry("tokenizer.ggml.add_space_prefix", "BOOL", blankFirst),
    entry("tokenizer.ggml.remove_extra_whitespaces", "BOOL", mergeBlanks),
    ...characters === "" ? [] : [
      entry("tokenizer.ggml.precompiled_charsmap", "UINT8", [...bytesOf(tokenizer, characters)]),
    ],
    entry("tokenizer.ggml.tokens", "STRING", [...tokens]),
    entry("tokenizer.ggml.scores", "FLOAT32", Array.from(scores)),
    entry("tokenizer.ggml.token_type", "INT32", Array.from(types)),
    ...specialEntries(tokenizer, config, ids, SPECIAL),
  ];
}

function piecesOf(model: Fields): [text: string, score: number][] {
  const pieces = model.get("vocab");
  const valid = Array.isArray(pieces) &&
    pieces.every((piece) =>
      Array.isArray(piece) && piece.length === 2 && typeof piece[0] === "string" && Number.isFinite(piece[1])
    );
  if (!valid) model.refuse("vocab", inWords(pieces), "an array of tokens and scores");
  return pieces as [string, number][];
}

function normalizationOf(tokenizer: Fields): Normalization {
  const done: Normalization = { characters: "", blankFirst: false, mergeBlanks: false };
  for (const [key, list] of [["normalizer", "normalizers"], ["pre_tokenizer", "pretokenizers"]]) {
    const value = tokenizer.get(key);
    const steps = isObject(value) && Array.isArray(value[list]) ? value[list] : [value];
    for (const step of steps) {
      if (step === undefined || (isObject(step) && apply(step, done))) continue;
      const found = isObject(step) ? step.type : step;
      const allowed = "Precompiled, Strip, Replace of runs of blanks, WhitespaceSplit and Metaspace";
      tokenizer.refuse(key, `the step ${inWords(found)}`, allowed);
    }
  }
  return done;
}

/** Adds the effect of a normalizer step to `done`. Returns false for an unknown step. */
function apply(step: Readonly<Record<string, unknown>>, done: Normalization): boolean {
  switch (step.type) {
    case "Precompiled":
      if (typeof step.precompiled_charsmap !== "string") return false;
      done.characters = step.precompiled_charsmap;
      return true;
    case "Strip":
    case "WhitespaceSplit":
      return done.mergeBlanks = true;
    case "Replace": {
      const pattern = isObject(step.pattern) ? step.pattern.Regex : undefined;
      const isRun = pattern === " {2,}" && (step.content === " " || step.content === "▁");
      done.mergeBlanks ||= isRun;
      return isRun;
    }
    case "Metaspace":
      if (step.replacement !== "▁") return false;
      done.blankFirst = step.prepend_scheme === undefined
        ? step.add_prefix_space !== false
        : step.prepend_scheme !== "never";
      return true;
    default:
      return false;
  }
}

function bytesOf(tokenizer: Fields, base64: string): Uint8Array {
  try {
    return Uint8Array.fromBase64(base64);
  } catch {
    return tokenizer.refuse("normalizer", quote(base64.slice(0, 20)), "a table of characters in base64");
  }
}
