import { assertEquals } from "@std/assert";
import { FORMAT_CASES } from "../../engine/chat/formats/testing.ts";
import { REAL_TEMPLATES } from "./real_templates.ts";
import { fullTier } from "../../testing/tier.ts";

fullTier.test("call formats: each format is tested with a real template, here or in `deno task templates`", () => {
  const real = new Set([
    ...FORMAT_CASES.filter(({ published }) => published).map(({ title }) => title),
    ...REAL_TEMPLATES.map(({ title }) => title),
  ]);
  const titles = FORMAT_CASES.map(({ title }) => title);
  assertEquals(titles.filter((title) => !real.has(title)), ["a template without marks in the vocabulary"]);
  assertEquals([...real].filter((title) => !titles.includes(title)), []);
});
