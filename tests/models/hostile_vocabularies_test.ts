import { assert } from "@std/assert";
import { GgufError } from "../../engine/gguf/errors.ts";
import { MetadataMap } from "../../engine/gguf/metadata.ts";
import type { Metadata } from "../../engine/gguf/types.ts";
import {
  bpeMetadata,
  characterMap,
  spmMetadata,
  tokenizerMetadata,
  unigramMetadata,
  wordPieceMetadata,
} from "../../engine/tokenizer/testing.ts";
import { createTokenizer } from "../../engine/tokenizer/tokenizer.ts";
import { VALUES, Watched } from "./hostile.ts";

const PIECES = { "▁": -1, a: -2, "▁a": -3, b: -4, ab: -5 };
const VOCABULARIES: Readonly<Record<string, Metadata>> = {
  gpt2: bpeMetadata({ merges: ["a b"], extra: [["<x>", 3]] }),
  llama: spmMetadata(PIECES),
  bert: wordPieceMetadata(Object.keys(PIECES)),
  t5: unigramMetadata(PIECES, { "ggml.precompiled_charsmap": characterMap({ A: "a", "\u3000": " " }) }),
  plamo2: spmMetadata(PIECES, [], { "ggml.model": "plamo2" }),
  gemma4: tokenizerMetadata({
    "ggml.model": "gemma4",
    "ggml.tokens": ["<bos>", ...Object.keys(PIECES)],
    "ggml.merges": ["▁ a", "a b"],
    "ggml.bos_token_id": 0,
  }),
};

for (const [kind, metadata] of Object.entries(VOCABULARIES)) {
  Deno.test(`${kind}: a vocabulary with a corrupted key is refused with a message or encodes`, () => {
    const watched = new Watched(metadata);
    createTokenizer(watched);
    for (const key of new Set([...metadata.entries.keys(), ...watched.asked])) {
      for (const value of [undefined, ...VALUES, new Uint8Array(300).fill(255), new Uint8Array(300)]) {
        const entries = new Map(metadata.entries);
        if (value === undefined) entries.delete(key);
        else entries.set(key, value);
        try {
          const tokenizer = createTokenizer(new MetadataMap(entries));
          const tokens = tokenizer.encode("A ab\u3000\n<x>é", { addSpecial: true, parseSpecial: true });
          tokenizer.decode(tokens, { special: true });
        } catch (error) {
          assert(
            error instanceof GgufError,
            `${key} = ${value}: ${error instanceof Error ? error.stack : error}`,
          );
        }
      }
    }
  });
}
