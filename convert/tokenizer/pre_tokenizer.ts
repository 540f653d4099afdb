import { quote } from "../../engine/gguf/errors.ts";
import { DEEPSEEK_LETTERS } from "../../engine/tokenizer/split/pre_tokenizers.ts";
import { Fields, inWords, isObject } from "../checkpoint/json.ts";

/** Parts of the regular expressions with which tokenizer.json files split text before merging. */
const CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
const REST = "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
const LETTERS = "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+";
const SIGNS = "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*";
const MARKED_LETTERS = "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+";
const MARKED_SIGNS = "| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*";

const UPPER = "\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}";
const LOWER = "\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}";

/**
 * Returns the expression of the o200k family: words split where their case changes, followed by `after`, and digits as
 * in `digits`.
 */
function cased(after: string, digits: string): string {
  const lead = "[^\\r\\n\\p{L}\\p{N}]?";
  const words = `${lead}[${UPPER}]*[${LOWER}]+${after}|${lead}[${UPPER}]+[${LOWER}]*${after}`;
  return `${words}|${digits}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*${REST}`;
}

/** Expressions of DeepSeek V3's splits in sequence: digits, Chinese and Japanese, and the rest. */
const DEEPSEEK3 = [
  "\\p{N}{1,3}",
  "[一-龥぀-ゟ゠-ヿ]+",
  "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+" +
  `| ?[\\p{P}\\p{S}]+[\\r\\n]*${REST}`,
];

/** Returns an expression with \u escapes replaced by the characters, as in tokenizer.json. */
function asItself({ source }: RegExp): string {
  const escape = /\\u(?:\{([0-9a-f]+)\}|([0-9a-f]{4}))/g;
  return source.replace(escape, (_, long, short) => String.fromCodePoint(parseInt(long ?? short, 16)));
}

/** The expression for a step that splits single digits. */
const EACH_DIGIT = "\\p{N}";
const IDEOGRAPHS = "[一-龥ࠀ-一가-퟿]+";
/**
 * Expressions of DeepSeek's first models, which list letters. GGUF readers keep digits together, but these vocabularies
 * have no tokens of several digits.
 */
const DEEPSEEK_LLM = [
  "[\\r\\n]",
  `\\s?${asItself(DEEPSEEK_LETTERS)}+`,
  "\\s?[!-/:-~！-／：-～‘-‟　-。]+",
  "\\s+$",
  IDEOGRAPHS,
  EACH_DIGIT,
];
const DEEPSEEK_CODER = ["[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", IDEOGRAPHS, EACH_DIGIT];

/** Ling's expression, which splits like Qwen2's. */
const LING = "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*" +
  "|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+";

/**
 * GGUF's pre-tokenizer names by expression; several expressions are joined by line breaks. `whole` is the name if a
 * word that equals a token becomes this token. `merged` is the name if every word is built by merges.
 */
const BY_EXPRESSION: ReadonlyMap<string, { readonly whole?: string; readonly merged?: string }> = new Map([
  [`${CONTRACTIONS}${LETTERS}|\\p{N}${SIGNS}${REST}`, { merged: "qwen2" }],
  [`${CONTRACTIONS}${MARKED_LETTERS}|\\p{N}${MARKED_SIGNS}${REST}`, { merged: "qwen35" }],
  [`${CONTRACTIONS}${LETTERS}|\\p{N}{1,3}${SIGNS}${REST}`, { whole: "llama-bpe", merged: "smaug-bpe" }],
  // In these vocabularies, merges also build every word that equals a token, so both names are the same.
  [cased(`${CONTRACTIONS}?`, "\\p{N}{1,3}"), { whole: "gpt-4o", merged: "gpt-4o" }],
  [cased("", "\\p{N}"), { whole: "tekken" }],
  [
    `${CONTRACTIONS}${LETTERS}|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+${REST}`,
    { merged: "seed-coder" },
  ],
  [DEEPSEEK3.join("\n"), { merged: "deepseek-v3" }],
  [DEEPSEEK_LLM.join("\n"), { merged: "deepseek-llm" }],
  [DEEPSEEK_CODER.join("\n"), { merged: "deepseek-coder" }],
  [LING, { merged: "bailingmoe2" }],
]);

/**
 * Returns GGUF's name for the pre-tokenizer of a byte-level BPE, for a file of that architecture. Throws ConvertError
 * for an unknown pre-tokenizer, because a wrong name would silently give other tokens.
 */
export function preTokenizerName(tokenizer: Fields, wholeWords: boolean, architecture: string): string {
  const key = "pre_tokenizer";
  const steps = stepsOf(tokenizer.file, tokenizer.get(key)).filter(({ type }) => type !== undefined);
  const types = steps.map(({ type }) => type).join(" ");
  const [first, second] = steps.map(({ fields }) => fields);
  if (/^(Split )+(Digits )?ByteLevel$/.test(types) && !steps.at(-1)!.fields.boolean("use_regex", true)) {
    const splits = steps.filter(({ type }) => type === "Split").map(({ fields }) => fields);
    const digits = steps.find(({ type }) => type === "Digits")?.fields;
    if (digits && !digits.boolean("individual_digits", false)) {
      digits.refuse("individual_digits", "false", "true, as no other way to cut digits is known");
    }
    const expressions = splits.map((split) => split.fields("pattern")?.get("Regex"));
    if (digits) expressions.push(EACH_DIGIT);
    const name = BY_EXPRESSION.get(expressions.map(written).join("\n"))?.[wholeWords ? "whole" : "merged"];
    const isolates = (split: Fields) =>
      split.get("behavior") === "Isolated" && !split.boolean("invert", false);
    if (name !== undefined && splits.every(isolates)) {
      // With Llama 3's name, readers would add a BOS, which GLM does not have.
      return name === "llama-bpe" && architecture.startsWith("glm4") ? "glm4" : name;
    }
    tokenizer.refuse(
      key,
      `the expression ${expressions.map(inWords).join(", then ")}`,
      "one of those of Qwen2, Qwen3, Qwen3.5, Llama 3, o200k, Tekken, Seed, DeepSeek and Ling",
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
    "Splits and ByteLevel, ByteLevel, or Digits and ByteLevel",
  );
}

/** Returns the expression with line breaks as escapes; some files contain the characters themselves. */
function written(expression: unknown): string {
  return String(expression).replaceAll("\r", "\\r").replaceAll("\n", "\\n");
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
