import { assertThrows } from "@std/assert";
import { checkAlike } from "./against.ts";
import type { BenchRow } from "./model.ts";

Deno.test("bench: an encoder is not compared with a decoder, whichever comes first", () => {
  const rowsOf = (...works: BenchRow["work"][]) =>
    works.map((work) => ({ work, sequences: 1, context: 8, tokensPerSecond: 1, shareOfLimit: 1 }));
  const encoder = { model: "minilm", rows: rowsOf("texts", "texts") };
  const decoder = { model: "gemma", rows: rowsOf("prefill", "decode") };
  checkAlike(encoder, encoder);
  checkAlike(decoder, { ...decoder, rows: rowsOf("prefill", "decode", "decode") });
  for (const pair of [[encoder, decoder], [decoder, encoder]]) {
    assertThrows(
      () => checkAlike(...pair),
      Error,
      "Cannot compare minilm with gemma: the first is an encoder, which embeds texts",
    );
  }
});
