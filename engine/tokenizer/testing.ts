import { MetadataMap } from "../gguf/metadata.ts";
import type { Metadata, MetadataValue } from "../gguf/types.ts";
import { CODE_OF_BYTE } from "./byte_codes.ts";
import { TOKEN_TYPE } from "./token_types.ts";

/** Vocabularies made for tests. */

type Typed = readonly [text: string, type: number];

/** Metadata with `tokenizer.` put before each key. */
export function tokenizerMetadata(values: Record<string, MetadataValue>): Metadata {
  return new MetadataMap(new Map(Object.entries(values).map(([key, value]) => [`tokenizer.${key}`, value])));
}

interface BpeParts {
  /** "left right", byte-encoded, by rank; what they make becomes a token. */
  merges?: string[];
  /** Tokens after the bytes and the merges. */
  extra?: Typed[];
  /** More keys, or others. */
  values?: Record<string, MetadataValue>;
}

/** A byte-level vocabulary: token n is byte n; then come the merges' tokens, then the extra ones. */
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

/** <unk>, <s>, </s>, then the 256 byte tokens, then the pieces, normal and with their scores, then the extra tokens. */
export function spmMetadata(
  pieces: Record<string, number>,
  extra: Typed[] = [],
  values: Record<string, MetadataValue> = {},
): Metadata {
  const bytes = Array.from({ length: 256 }, (_, byte): Typed => {
    return [`<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`, TOKEN_TYPE.BYTE];
  });
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

/** A seeded generator of integers in [0, n). */
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
