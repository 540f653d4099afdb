import { MetadataMap } from "../gguf/metadata.ts";
import type { Metadata, MetadataValue } from "../gguf/types.ts";
import { CODE_OF_BYTE } from "./byte_codes.ts";
import { BYTE_TOKENS, TOKEN_TYPE } from "./token_types.ts";

/** Tokenizer vocabularies for tests. */

type Typed = readonly [text: string, type: number];

/** Returns metadata with the prefix `tokenizer.` on each key. */
export function tokenizerMetadata(values: Record<string, MetadataValue>): Metadata {
  return new MetadataMap(new Map(Object.entries(values).map(([key, value]) => [`tokenizer.${key}`, value])));
}

interface BpeParts {
  /** Merges as "left right", byte-encoded, by rank. Each merge adds its result as a token. */
  merges?: string[];
  /** Additional tokens after the bytes and the merges. */
  extra?: Typed[];
  /** Additional or changed metadata keys. */
  values?: Record<string, MetadataValue>;
}

/** Returns a byte-level vocabulary: token n is byte n; the merges' tokens and extra tokens follow. */
export function bpeMetadata({ merges = [], extra = [], values = {} }: BpeParts): Metadata {
  const merged = [...new Set(merges.map((merge) => merge.replace(" ", "")))];
  const bytes = Array.from(CODE_OF_BYTE, (code) => String.fromCharCode(code));
  const tokens = [...bytes, ...merged, ...extra.map(([text]) => text)];
  const types = new Int32Array(tokens.length).fill(TOKEN_TYPE.NORMAL);
  for (const [i, [, type]] of extra.entries()) types[tokens.length - extra.length + i] = type;
  return tokenizerMetadata({
    "ggml.model": "gpt2",
    "ggml.pre": "gpt-2",
    "ggml.tokens": tokens,
    "ggml.token_type": types,
    "ggml.merges": merges,
    ...values,
  });
}

/**
 * Returns a SentencePiece vocabulary of <unk>, <s>, </s>, the 256 byte tokens, the normal pieces with scores, and extra
 * tokens.
 */
export function spmMetadata(
  pieces: Record<string, number>,
  extra: Typed[] = [],
  values: Record<string, MetadataValue> = {},
): Metadata {
  const bytes = BYTE_TOKENS.map((text): Typed => [text, TOKEN_TYPE.BYTE]);
  const all: Typed[] = [
    ["<unk>", TOKEN_TYPE.UNKNOWN],
    ["<s>", TOKEN_TYPE.CONTROL],
    ["</s>", TOKEN_TYPE.CONTROL],
    ...bytes,
    ...Object.keys(pieces).map((text): Typed => [text, TOKEN_TYPE.NORMAL]),
    ...extra,
  ];
  return tokenizerMetadata({
    "ggml.model": "llama",
    "ggml.tokens": all.map(([text]) => text),
    "ggml.token_type": Int32Array.from(all, ([, type]) => type),
    "ggml.scores": Float32Array.from(all, ([text]) => pieces[text] ?? 0),
    ...values,
  });
}

/**
 * Returns a WordPiece vocabulary of [PAD], [UNK], [CLS], [SEP], [MASK] and the pieces. Pieces at the start of a word
 * begin with a blank mark.
 */
export function wordPieceMetadata(pieces: string[], values: Record<string, MetadataValue> = {}): Metadata {
  const controls = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"];
  const ids = { padding: 0, unknown: 1, cls: 2, seperator: 3, mask: 4 };
  return tokenizerMetadata({
    "ggml.model": "bert",
    "ggml.tokens": [...controls, ...pieces],
    "ggml.token_type": Int32Array.from(
      [...controls, ...pieces],
      (_, i) => i < controls.length ? TOKEN_TYPE.CONTROL : TOKEN_TYPE.NORMAL,
    ),
    ...Object.fromEntries(Object.entries(ids).map(([name, id]) => [`ggml.${name}_token_id`, id])),
    ...values,
  });
}

/** Returns a Unigram vocabulary of <pad>, </s>, <unk> and the pieces with scores, in T5's order. */
export function unigramMetadata(
  pieces: Record<string, number>,
  values: Record<string, MetadataValue> = {},
): Metadata {
  const all: Typed[] = [
    ["<pad>", TOKEN_TYPE.CONTROL],
    ["</s>", TOKEN_TYPE.CONTROL],
    ["<unk>", TOKEN_TYPE.UNKNOWN],
    ...Object.keys(pieces).map((text): Typed => [text, TOKEN_TYPE.NORMAL]),
  ];
  return tokenizerMetadata({
    "ggml.model": "t5",
    "ggml.tokens": all.map(([text]) => text),
    "ggml.token_type": Int32Array.from(all, ([, type]) => type),
    "ggml.scores": Float32Array.from(all, ([text]) => pieces[text] ?? 0),
    ...values,
  });
}

/**
 * Returns SentencePiece's compiled form of replacements (character_map.ts), with a block of 256 entries for
 * each byte's children.
 */
export function characterMap(replacements: Record<string, string>): Uint8Array {
  const utf8 = new TextEncoder();
  const blocks = new Map<string, number>([["", 1]]);
  const keys = Object.keys(replacements).map((key) => [...utf8.encode(key)]);
  for (const key of keys) {
    for (let length = 1; length <= key.length; length++) {
      const name = key.slice(0, length).join(" ");
      if (!blocks.has(name)) blocks.set(name, blocks.size + 1);
    }
  }
  const array = new Uint32Array(256 * (blocks.size + 1));
  const start = (key: number[], length: number) => 256 * blocks.get(key.slice(0, length).join(" "))!;
  array[0] = (256 >>> 8 << 10) | 0x200;
  let texts = "";
  for (const key of keys) {
    for (let length = 1; length <= key.length; length++) {
      const entry = start(key, length - 1) + key[length - 1];
      array[entry] |= ((entry ^ start(key, length)) << 10) | key[length - 1];
      if (length === key.length) array[entry] |= 0x100;
    }
    array[start(key, key.length)] = 0x80000000 + utf8.encode(texts).length;
    texts += `${replacements[new TextDecoder().decode(Uint8Array.from(key))]}\0`;
  }
  const bytes = new Uint8Array(4 + array.byteLength);
  new DataView(bytes.buffer).setUint32(0, array.byteLength, true);
  bytes.set(new Uint8Array(array.buffer), 4);
  return Uint8Array.of(...bytes, ...utf8.encode(texts));
}

/** Returns a seeded generator of integers in [0, n). */
export function randomIntegers(seed: number): (n: number) => number {
  let state = seed >>> 0 || 1;
  return (n) => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    state >>>= 0;
    return state % n;
  };
}
