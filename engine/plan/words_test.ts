import { assertEquals } from "@std/assert";
import { WordWriter } from "./words.ts";

Deno.test("words: a message grows in the middle of every kind of value", () => {
  const writes: readonly ((w: WordWriter) => unknown)[] = [
    (w) => w.u32(7),
    (w) => w.f32(1.5),
    (w) => w.f64(1.5),
    (w) => w.u64(7),
    (w) => w.f32s(Float32Array.of(1.5)),
    (w) => w.text("seven"),
  ];
  for (const write of writes) {
    const [small, large] = [new WordWriter(4), new WordWriter()];
    for (const w of [small, large]) write(w.u32(1));
    assertEquals(small.bytes(), large.bytes());
  }
});
