import { assertEquals, assertThrows } from "@std/assert";
import { GgufError } from "../gguf/errors.ts";
import { MetadataMap } from "../gguf/metadata.ts";
import { tokenizerMetadata } from "./testing.ts";
import { TOKEN_TYPE } from "./token_types.ts";
import { createTokenizer } from "./tokenizer.ts";

const { BYTE, CONTROL, NORMAL } = TOKEN_TYPE;
const BOS = 1;
const TOKENS = [
  ...["<pad>", "<bos>"],
  ...Array.from({ length: 256 }, (_, byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`),
  ...["▁", "a", "b", "é", "\n", "▁▁", "▁a", "ab", "▁ab", "\n\n", "\n\n\n", "b▁"],
];
const MERGES = ["▁ ▁", "▁ a", "a b", "▁ ab", "\n \n"];
const id = (token: string) => TOKENS.indexOf(token);

function gemma(values = {}, merges = MERGES) {
  return createTokenizer(tokenizerMetadata({
    "ggml.model": "gemma4",
    "ggml.tokens": TOKENS,
    "ggml.token_type": Int32Array.from(TOKENS, (_, i) => i < 2 ? CONTROL : i < 258 ? BYTE : NORMAL),
    "ggml.merges": merges,
    "ggml.bos_token_id": BOS,
    ...values,
  }));
}

Deno.test("Gemma 4's BPE: merges characters by rank, and writes a blank as its blank character", () => {
  assertEquals(gemma().encode("ab ab  a"), ["ab", "▁a", "b", "▁▁", "a"].map(id));
  assertEquals(gemma({}, ["a b", "▁ ab", "▁ ▁"]).encode("ab ab  ab"), ["ab", "▁ab", "▁", "▁ab"].map(id));
  assertEquals(gemma({}, ["b ▁", "a b"]).encode("ab a"), ["a", "b▁", "a"].map(id));
});

Deno.test("Gemma 4's BPE: encodes unknown characters as bytes", () => {
  assertEquals(gemma().encode("é中"), [id("é"), id("<0xE4>"), id("<0xB8>"), id("<0xAD>")]);
  assertEquals(gemma().decode(gemma().encode("é 中\n")), "é 中\n");
});

Deno.test("Gemma 4's BPE: splits text at line breaks, and uses one token for several line breaks if the vocabulary has it", () => {
  assertEquals(gemma().encode("a\n\n\nb"), ["a", "\n\n\n", "b"].map(id));
  assertEquals(gemma().encode("\n\n\n\n"), ["\n\n", "\n\n"].map(id));
});

Deno.test("Gemma 4's BPE: adds BOS even if the file says not to", () => {
  assertEquals(gemma({ "ggml.add_bos_token": false }).encode("a", { addSpecial: true }), [BOS, id("a")]);
  assertEquals(
    gemma().encode("<bos>"),
    [..."<bos>"].flatMap((sign) => {
      const own = TOKENS.indexOf(sign);
      return own >= 0 ? own : id(`<0x${sign.charCodeAt(0).toString(16).toUpperCase()}>`);
    }),
  );
});

Deno.test("Gemma 4's BPE: refuses a vocabulary without valid merges", () => {
  assertThrows(() => gemma({ "ggml.merges": ["x y"] }), GgufError, "tokenizer.ggml.merges");
  const none = tokenizerMetadata({ "ggml.model": "gemma4", "ggml.tokens": ["a"] });
  assertThrows(() => createTokenizer(none), GgufError, "tokenizer.ggml.merges");
});

Deno.test("marked BPE: Phi-3's control tokens remove the white space after the token, and a mask token the white space before", () => {
  const named = (values: Record<string, string>) => {
    const types = Int32Array.from(TOKENS, (_, i) => i < 2 ? CONTROL : i < 258 ? BYTE : NORMAL);
    const metadata = tokenizerMetadata({
      "ggml.model": "gemma4",
      "ggml.tokens": TOKENS.with(0, "<mask>"),
      "ggml.token_type": types,
      "ggml.merges": [],
    });
    const entries = new Map([...metadata.entries, ...Object.entries(values)]);
    return createTokenizer(new MetadataMap(entries));
  };
  const encode = (values: Record<string, string>) =>
    named(values).encode("a \n<bos>\n a <mask> b", { parseSpecial: true });
  const [a, b, blank, line] = ["a", "b", "▁", "\n"].map(id);
  assertEquals(encode({}), [a, blank, line, BOS, line, blank, a, blank, 0, blank, b]);
  assertEquals(encode({ "general.name": "Phi-3 mini" }), [a, blank, line, BOS, a, blank, 0, b]);
  assertEquals(
    encode({ "general.architecture": "nomic-bert-moe" }),
    [a, blank, line, BOS, line, blank, a, 0, blank, b],
  );
});

Deno.test("marked BPE: splits words at white space, and lowercases words if the file says so", () => {
  const words = (values = {}) => gemma({ "ggml.model": "gpt2", "ggml.pre": "whitespace", ...values });
  assertEquals(words().encode("  ab\n\u3000 a "), ["ab", "a"].map(id));
  assertEquals(words().encode("Ab"), [id("<0x41>"), id("b")]);
  assertEquals(words({ "ggml.normalizer.lowercase": true }).encode("Ab É"), ["ab", "é"].map(id));
  assertEquals(words().decode(words().encode("ab ▁a")), "ab▁a");
  const endless = words().encode(" ".repeat(100_000) + "a");
  assertEquals(endless, [id("a")]);
});
