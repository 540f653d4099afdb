import { TOKEN_TYPE } from "../token_types.ts";
import type { InfillTokens } from "../types.ts";

/**
 * Finds control tokens, and the tokens that end a generation, in files with wrong token types. The lists of texts are
 * llama.cpp's: older converters omitted the keys.
 */

/** Returns the id under `tokenizer.ggml.NAME_token_id`; undefined if absent. */
type SpecialId = (name: string) => number | undefined;

const END_TEXTS = [
  "<|eot_id|>",
  "<|im_end|>",
  "<|end|>",
  "<|return|>",
  "<|call|>",
  "<|flush|>",
  "<|calls|>",
  "<end_of_turn>",
  "<|endoftext|>",
  "</s>",
  "<|eom_id|>",
  "<EOT>",
  "_<EOT>",
  "[EOT]",
  "[EOS]",
  "<|end_of_text|>",
  "<end_of_utterance>",
  "<eos>",
  "<turn|>",
  "<|tool_response>",
  "<｜end▁of▁sentence｜>",
  "[e~[",
];

/** Texts of fill-in-the-middle tokens by key. The last three tokens also end a generation. */
const INFILL_TEXTS: Readonly<Record<string, readonly string[]>> = {
  fim_pre: [
    "<|fim_prefix|>",
    "<fim-prefix>",
    "<fim_prefix>",
    "<｜fim▁begin｜>",
    "<PRE>",
    "▁<PRE>",
    "<|code_prefix|>",
    "<|prefix|>",
  ],
  fim_suf: [
    "<|fim_suffix|>",
    "<fim-suffix>",
    "<fim_suffix>",
    "<｜fim▁hole｜>",
    "<SUF>",
    "▁<SUF>",
    "<|code_suffix|>",
    "<|suffix|>",
  ],
  fim_mid: [
    "<|fim_middle|>",
    "<fim-middle>",
    "<fim_middle>",
    "<｜fim▁end｜>",
    "<MID>",
    "▁<MID>",
    "<|code_middle|>",
    "<|middle|>",
  ],
  fim_pad: ["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"],
  fim_rep: ["<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"],
  fim_sep: ["<|file_sep|>"],
};

/** Older names of the keys for fill-in-the-middle tokens. */
const OLDER_INFILL_KEYS: Readonly<Record<string, string>> = {
  fim_pre: "prefix",
  fim_suf: "suffix",
  fim_mid: "middle",
};

/** Keys of tokens that end a generation, in addition to EOS. */
const END_KEYS = ["eot", "eom", "fim_pad", "fim_rep", "fim_sep"];

/** Texts of the harmony format's control tokens around messages, whose text is shown nevertheless. */
const SHOWN_TEXTS = ["<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"];

/** Returns whether a token with the text ends a generation even without a key. */
export function isEndText(text: string): boolean {
  return END_TEXTS.includes(text);
}

/** Returns the fill-in-the-middle token that the file's keys name. */
function infillId(name: string, special: SpecialId): number | undefined {
  return special(name) ?? (name in OLDER_INFILL_KEYS ? special(OLDER_INFILL_KEYS[name]) : undefined);
}

function infillToken(name: string, ids: ReadonlyMap<string, number>, special: SpecialId): number | undefined {
  const given = infillId(name, special);
  if (given !== undefined) return given;
  const text = INFILL_TEXTS[name].find((text) => ids.has(text));
  return text === undefined ? undefined : ids.get(text);
}

/** Returns the fill-in-the-middle tokens; undefined if prefix, suffix or middle is missing. */
export function infillTokens(ids: ReadonlyMap<string, number>, special: SpecialId): InfillTokens | undefined {
  const [prefix, suffix, middle, repo, file] = ["fim_pre", "fim_suf", "fim_mid", "fim_rep", "fim_sep"].map(
    (name) => infillToken(name, ids, special),
  );
  if (prefix === undefined || suffix === undefined || middle === undefined) return undefined;
  return { prefix, suffix, middle, repo, file };
}

/** Changes tokens with known texts to control tokens, whatever type the file gives. */
export function overrideTypes(types: Uint8Array, ids: ReadonlyMap<string, number>, special: SpecialId): void {
  for (const text of END_TEXTS) {
    const id = ids.get(text);
    if (id !== undefined) types[id] = TOKEN_TYPE.CONTROL;
  }
  for (const name of Object.keys(INFILL_TEXTS)) {
    const id = infillId(name, special) === undefined ? infillToken(name, ids, special) : undefined;
    if (id !== undefined) types[id] = TOKEN_TYPE.CONTROL;
  }
  for (const text of SHOWN_TEXTS) {
    const id = ids.get(text);
    if (id !== undefined) types[id] = TOKEN_TYPE.USER_DEFINED;
  }
}

/**
 * Returns every token that ends a generation, without `<|end|>` and `</s>` in formats in which they only end a message.
 */
export function endTokens(
  types: Uint8Array,
  ids: ReadonlyMap<string, number>,
  special: SpecialId,
  eos: number | undefined,
): Set<number> {
  const end = new Set<number>();
  const add = (id: number | undefined) => id !== undefined && end.add(id);
  for (const text of END_TEXTS) add(ids.get(text));
  for (const name of END_KEYS) add(name in INFILL_TEXTS ? infillToken(name, ids, special) : special(name));
  add(eos);

  const ends = (text: string) => end.has(ids.get(text) ?? -1);
  const demote = (text: string, type: number) => {
    const id = ids.get(text);
    if (id === undefined || !end.delete(id)) return;
    types[id] = type;
  };
  const calls = ends("<|call|>") || ends("<|calls|>");
  // In formats with <|return|> or <|flush|>, <|end|> ends one of several messages.
  if (calls && (ends("<|return|>") || ends("<|flush|>"))) demote("<|end|>", TOKEN_TYPE.USER_DEFINED);
  if (ends("<|tool_response>")) demote("</s>", TOKEN_TYPE.NORMAL);
  return end;
}
