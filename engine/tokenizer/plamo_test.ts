import { assertEquals, assertThrows } from "@std/assert";
import { Random } from "../../testing/random.ts";
import { GgufError } from "../gguf/errors.ts";
import type { MetadataValue } from "../gguf/types.ts";
import { spmMetadata } from "./testing.ts";
import { TOKEN_TYPE } from "./token_types.ts";
import { createTokenizer } from "./tokenizer.ts";

const FIRST_BYTE = 3;
const FIRST_PIECE = 3 + 256;

function plamo(pieces: Record<string, number>, values: Record<string, MetadataValue> = {}) {
  const metadata = spmMetadata(pieces, [["<|plamo:op|>", TOKEN_TYPE.CONTROL]], {
    "ggml.model": "plamo2",
    ...values,
  });
  const tokenizer = createTokenizer(metadata);
  const names = Object.keys(pieces);
  return { tokenizer, ids: (...texts: string[]) => texts.map((text) => FIRST_PIECE + names.indexOf(text)) };
}

Deno.test("plamo: takes the most likely split of the text", () => {
  const { tokenizer, ids } = plamo({ a: -2, b: -2, ab: -3.5, abc: -5, c: -9, " a": -1, "日本": -4 });
  assertEquals(tokenizer.encode("ab"), ids("ab"));
  assertEquals(tokenizer.encode("babc a"), ids("b", "abc", " a"));
  assertEquals(tokenizer.encode("日本a"), ids("日本", "a"));
  assertEquals(tokenizer.encode(""), []);
});

Deno.test("plamo: prefers the longer first token among equally likely splits", () => {
  const { tokenizer, ids } = plamo({ x: -1, xx: -2, xxx: -3 });
  assertEquals(tokenizer.encode("xxxx"), ids("xxx", "x"));
});

Deno.test("plamo: rounds scores to steps of 1/10,000", () => {
  const { tokenizer, ids } = plamo({ x: -1, xx: -2.00004 });
  assertEquals(tokenizer.encode("xx"), ids("xx"));
  const apart = plamo({ x: -1, xx: -2.0002 });
  assertEquals(apart.tokenizer.encode("xx"), apart.ids("x", "x"));
});

Deno.test("plamo: encodes unknown characters as bytes, which decode to the text", () => {
  const { tokenizer, ids } = plamo({ a: -2, far: -2000 });
  const bytes = [...new TextEncoder().encode("é🙂")].map((byte) => FIRST_BYTE + byte);
  assertEquals(tokenizer.encode("aé🙂a"), [...ids("a"), ...bytes, ...ids("a")]);
  assertEquals(tokenizer.decode(tokenizer.encode(" aé🙂\ufeffa ")), " aé🙂\ufeffa ");
  assertEquals(tokenizer.encode("far").length, 3);
});

Deno.test("plamo: plain text never becomes a control token, and BOS is added only if the file says so", () => {
  const { tokenizer } = plamo({ a: -2 });
  const op = FIRST_PIECE + 1;
  assertEquals(tokenizer.encode("<|plamo:op|>").includes(op), false);
  assertEquals(tokenizer.encode("<|plamo:op|>", { parseSpecial: true }), [op]);
  assertEquals(tokenizer.encode("a", { addSpecial: true }), [FIRST_PIECE]);
  const begins = plamo({ a: -2 }, { "ggml.add_bos_token": true }).tokenizer;
  assertEquals(begins.encode("a", { addSpecial: true }), [1, FIRST_PIECE]);
});

Deno.test("plamo: no split of a short text is more likely than the chosen one", () => {
  const random = new Random(7);
  const word = (most: number) =>
    Array.from({ length: 1 + random.below(most) }, () => [..."ab日🙂"][random.below(4)]).join("");
  for (let round = 0; round < 100; round++) {
    const pieces: Record<string, number> = {};
    for (let i = 0; i < 12; i++) pieces[word(3)] = -1 - random.below(8);
    const { tokenizer } = plamo(pieces);
    const text = word(9);
    const costs = (tokens: number[]) =>
      tokens.map((id) => id < FIRST_PIECE ? 0 : -pieces[Object.keys(pieces)[id - FIRST_PIECE]]);
    const best = (from: string): number => {
      if (from === "") return 0;
      const [first] = from;
      const ways = Object.entries(pieces).filter(([piece]) => from.startsWith(piece))
        .map(([piece, score]) => best(from.slice(piece.length)) - score);
      return Math.min(1000 + best(from.slice(first.length)), ...ways);
    };
    const tokens = tokenizer.encode(text);
    const unknown = [...text].length - tokens.filter((id) => id >= FIRST_PIECE)
      .reduce((sum, id) => sum + [...Object.keys(pieces)[id - FIRST_PIECE]].length, 0);
    assertEquals(costs(tokens).reduce((sum, cost) => sum + cost, 1000 * unknown), best(text));
    assertEquals(tokenizer.decode(tokens), text);
  }
});

Deno.test("plamo: refuses a vocabulary without scores or with a missing byte", () => {
  const error = assertThrows(() => plamo({ a: -2 }, { "ggml.scores": new Float32Array(2) }), GgufError);
  assertEquals(error.code, "GGUF_VOCAB");
  const metadata = spmMetadata({ a: -2 }, [], { "ggml.model": "plamo2" });
  const tokens = [...metadata.getStrings("tokenizer.ggml.tokens")!];
  tokens[FIRST_BYTE + 9] = "<0x00>x";
  const types = Int32Array.from(
    { length: tokens.length },
    (_, id) => id >= FIRST_BYTE && id !== FIRST_BYTE + 9 && id < FIRST_PIECE ? 6 : 1,
  );
  const spoilt = { "ggml.tokens": tokens, "ggml.token_type": types, "ggml.model": "plamo2" };
  const missing = assertThrows(() => createTokenizer(spmMetadata({ a: -2 }, [], spoilt)), GgufError);
  assertEquals(missing.message.includes("<0x09>"), true);
});
