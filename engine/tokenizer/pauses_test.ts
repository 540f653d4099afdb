import { assert, assertEquals } from "@std/assert";
import { withPauses } from "../pacing/pauses.ts";
import { onFastClock, pausesOf } from "../pacing/testing.ts";
import { bpeMetadata, spmMetadata, wordPieceMetadata } from "./testing.ts";
import { TOKEN_TYPE } from "./token_types.ts";
import { createTokenizer } from "./tokenizer.ts";
import type { EncodeOptions } from "./types.ts";

/**
 * Length of each test text, and the maximum number of its characters that take no pause, whatever the characters are.
 */
const UNITS = 1 << 15;
const UNITS_PER_PAUSE = 1 << 13;

const TEXTS = ["a", " ", "ab ", "\n", "7", "中", "<|x|>", "\ufdd0"].map((text) =>
  text.repeat(UNITS / text.length)
);

const KINDS = {
  bpe: bpeMetadata({ merges: ["a b", "a a"], extra: [["<|x|>", TOKEN_TYPE.CONTROL]] }),
  spm: spmMetadata({ "▁": -1, a: -2, aa: -1, "▁a": -3 }, [["<|x|>", TOKEN_TYPE.CONTROL]]),
  wordPiece: wordPieceMetadata(["▁a", "a", "aa", "7"]),
};

for (const [name, metadata] of Object.entries(KINDS)) {
  const tokenizer = createTokenizer(metadata);
  Deno.test(`${name}: encodes and decodes long texts in pieces, with the same tokens`, async () => {
    for (const text of TEXTS) {
      const options: EncodeOptions = { parseSpecial: true, marked: true };
      const { result, pauses } = await pausesOf(() => tokenizer.encode(text, options));
      assertEquals(String(result), String(tokenizer.encode(text, options)));
      assert(pauses >= UNITS / UNITS_PER_PAUSE, `${JSON.stringify(text.slice(0, 9))}: ${pauses}`);
      const decoded = await pausesOf(() => tokenizer.decode(result));
      assertEquals(decoded.result, tokenizer.decode(result));
      assert(decoded.pauses >= Math.floor(result.length / UNITS_PER_PAUSE), `${decoded.pauses}`);
    }
  });
  Deno.test(`${name}: two texts that are encoded slice by slice in turn do not mix`, async () => {
    const texts = TEXTS.map((text) => text.slice(0, 10_000));
    const encode = (text: string) => tokenizer.encode(text, { parseSpecial: true });
    const { result } = await onFastClock(() =>
      Promise.all(texts.map((text) => withPauses(() => encode(text))))
    );
    assertEquals(result, texts.map(encode));
  });
}
