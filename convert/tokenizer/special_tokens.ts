import { isEndText } from "../../engine/tokenizer/special/special_tokens.ts";
import { type Fields, inWords, isObject } from "../checkpoint/json.ts";
import { type Entry, entry } from "../write/metadata.ts";

/** Keys of special tokens in tokenizer_config.json, by GGUF's names for the tokens. */
type SpecialTokens = Readonly<{ bos: string; eos: string; [name: string]: string }>;

export const DECODER_TOKENS: SpecialTokens = {
  bos: "bos_token",
  eos: "eos_token",
  unknown: "unk_token",
  padding: "pad_token",
} as const;

/** Keys of special tokens for encoders with byte-level BPE, whose files use other names. */
export const ENCODER_TOKENS: SpecialTokens = {
  ...DECODER_TOKENS,
  bos: "cls_token",
  eos: "sep_token",
  seperator: "sep_token",
  mask: "mask_token",
} as const;

/** Returns the entries of the special tokens, and whether BOS and EOS are added around a text. */
export function specialEntries(
  tokenizer: Fields,
  config: Fields,
  ids: ReadonlyMap<string, number>,
  special: SpecialTokens,
): Entry[] {
  const entries: Entry[] = [];
  for (const [name, key] of Object.entries(special)) {
    const value = config.get(key);
    const text = isObject(value) ? value.content : value;
    if (text === undefined) continue;
    const id = ids.get(String(text));
    if (id === undefined) config.refuse(key, inWords(text), "a token of tokenizer.json");
    entries.push(entry(`tokenizer.ggml.${name}_token_id`, "UINT32", id));
  }
  for (const side of ["bos", "eos"] as const) {
    const key = `add_${side}_token`;
    const added = config.has(key)
      ? config.boolean(key, false)
      : addedByTemplate(tokenizer, side, config.get(special[side]));
    // If the files do not say, readers use the default of the tokenizer's kind.
    if (added !== undefined) entries.push(entry(`tokenizer.ggml.${key}`, "BOOL", added));
  }
  return entries;
}

/**
 * Returns whether the post-processor puts the special token first (BOS) or last (EOS); undefined if it has no template.
 */
function addedByTemplate(tokenizer: Fields, side: "bos" | "eos", value: unknown): boolean | undefined {
  const text = isObject(value) ? value.content : value;
  const post = tokenizer.get("post_processor");
  const steps = isObject(post) && Array.isArray(post.processors) ? post.processors : [post];
  if (steps.some((step) => isObject(step) && step.type === "RobertaProcessing")) return text !== undefined;
  const template = steps.filter(isObject).find(({ type }) => type === "TemplateProcessing")?.single;
  if (!Array.isArray(template) || text === undefined) return undefined;
  const piece = side === "bos" ? template[0] : template.at(-1);
  return isObject(piece) && isObject(piece.SpecialToken) && piece.SpecialToken.id === text;
}

/** GGUF's names for end tokens other than EOS. */
const ENDS = ["eot", "eom"];

/**
 * Returns the entries of end tokens that only generation_config.json names: not EOS, and not recognised by readers by
 * their text.
 */
export function endEntries(generation: Fields, tokenizer: readonly Entry[]): Entry[] {
  const valueOf = (name: string) => tokenizer.find(({ key }) => key === `tokenizer.ggml.${name}`)?.value;
  const [tokens, eos] = [valueOf("tokens") as readonly string[], valueOf("eos_token_id")];
  const key = "eos_token_id";
  const value = generation.get(key) ?? [];
  const ids: readonly unknown[] = Array.isArray(value) ? value : [value];
  const unknown = ids.filter((id) => {
    const text = typeof id === "number" ? tokens[id] : undefined;
    if (text === undefined) generation.refuse(key, inWords(id), `ids below ${tokens.length}`);
    return id !== eos && !isEndText(text);
  });
  if (unknown.length > ENDS.length) {
    const found = `${unknown.length} that only this file names`;
    generation.refuse(key, found, `${ENDS.length} at most, for which GGUF has places`);
  }
  return unknown.map((id, i) => entry(`tokenizer.ggml.${ENDS[i]}_token_id`, "UINT32", id as number));
}
