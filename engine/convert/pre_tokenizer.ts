import { quote } from "../gguf/errors.ts";
import { Fields, inWords, isObject } from "./json.ts";

/** How words are cut before they are merged, as tokenizer.json says it in a regular expression. */
const CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
const REST = "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
const LETTERS = "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+";
const SIGNS = "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*";
const MARKED_LETTERS = "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+";
const MARKED_SIGNS = "| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*";

const UPPER = "\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}";
const LOWER = "\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}";

/** The o200k family: words as far as their case allows, with what may follow them, and so many digits. */
function cased(after: string, digits: string): string {
  const lead = "[^\\r\\n\\p{L}\\p{N}]?";
  const words = `${lead}[${UPPER}]*[${LOWER}]+${after}|${lead}[${UPPER}]+[${LOWER}]*${after}`;
  return `${words}|${digits}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*${REST}`;
}

/** GGUF's names, by expression; where a word that is a token is taken whole, and where not. */
const BY_EXPRESSION: ReadonlyMap<string, { readonly whole?: string; readonly merged?: string }> = new Map([
  [`${CONTRACTIONS}${LETTERS}|\\p{N}${SIGNS}${REST}`, { merged: "qwen2" }],
  [`${CONTRACTIONS}${MARKED_LETTERS}|\\p{N}${MARKED_SIGNS}${REST}`, { merged: "qwen35" }],
  [`${CONTRACTIONS}${LETTERS}|\\p{N}{1,3}${SIGNS}${REST}`, { whole: "llama-bpe", merged: "smaug-bpe" }],
  // A word that is a token is one by its merges too.
  [cased(`${CONTRACTIONS}?`, "\\p{N}{1,3}"), { whole: "gpt-4o", merged: "gpt-4o" }],
  [cased("", "\\p{N}"), { whole: "tekken" }],
  [
    `${CONTRACTIONS}${LETTERS}|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+${REST}`,
    { merged: "seed-coder" },
  ],
]);

/**
 * GGUF's name of the way that a byte-level BPE's tokenizer.json cuts text. Throws ConvertError for a way that has no
 * name here: a wrong one would make other tokens without a complaint.
 */
export function preTokenizerName(tokenizer: Fields, wholeWords: boolean): string {
  const key = "pre_tokenizer";
  const steps = stepsOf(tokenizer.file, tokenizer.get(key)).filter(({ type }) => type !== undefined);
  const types = steps.map(({ type }) => type).join(" ");
  const [first, second] = steps.map(({ fields }) => fields);
  if (types === "Split ByteLevel" && !second.boolean("use_regex", true)) {
    const expression = first.fields("pattern")?.get("Regex");
    const names = BY_EXPRESSION.get(String(expression));
    const name = names?.[wholeWords ? "whole" : "merged"];
    if (name !== undefined && first.get("behavior") === "Isolated" && !first.boolean("invert", false)) {
      return name;
    }
    tokenizer.refuse(
      key,
      `the expression ${inWords(expression)}`,
      "those of Qwen2, Qwen3, Qwen3.5, Llama 3, o200k, Tekken and Seed",
    );
  }
  if (!wholeWords && types === "ByteLevel" && isGpt2(first)) return "gpt-2";
  if (
    !wholeWords && types === "Digits ByteLevel" && isGpt2(second) && first.boolean("individual_digits", false)
  ) {
    return "smollm";
  }
  tokenizer.refuse(
    key,
    `the steps ${quote(types)}`,
    "Split and ByteLevel, ByteLevel, or Digits and ByteLevel",
  );
}

function isGpt2(byteLevel: Fields): boolean {
  return byteLevel.boolean("use_regex", true) && !byteLevel.boolean("add_prefix_space", false);
}

interface Step {
  readonly type: unknown;
  readonly fields: Fields;
}

function stepsOf(file: string, value: unknown): Step[] {
  if (!isObject(value)) return [];
  const list = value.type === "Sequence" && Array.isArray(value.pretokenizers)
    ? value.pretokenizers
    : [value];
  return list.filter(isObject).map((step) => ({ type: step.type, fields: new Fields(file, step) }));
}
