import { assert, assertEquals } from "@std/assert";
import { fromFileUrl } from "@std/path";
import { openGguf } from "../../engine/gguf/reader.ts";
import { createTokenizer } from "../../engine/tokenizer/tokenizer.ts";
import { answerSchemas, compileHostiles } from "./constraint_scenario.ts";
import { SCHEMAS } from "./constraint_schemas.ts";
import { fullTier } from "../../testing/tier.ts";

const demo = fromFileUrl(new URL("../../models/demo.gguf", import.meta.url));
const tokenizer = createTokenizer((await openGguf(demo)).metadata);

Deno.test("constraints: for every keyword, ajv accepts each complete answer of random tokens", async () => {
  const figures = await answerSchemas(tokenizer, {
    count: SCHEMAS.length + 10,
    answers: 1,
    seed: 3,
    most: 150,
  });
  assertEquals(figures.invalid, []);
  assertEquals(figures.failed, []);
  assertEquals(figures.unused, []);
  assert(
    figures.whole > 0.8 * figures.schemas,
    `only ${figures.whole} of ${figures.schemas} answers were whole`,
  );
});

fullTier.test("constraints: hostile constraints are refused or compiled quickly in little memory while other requests run", async () => {
  // The campaign allows a second and 64 MiB, on an idle machine and without garbage.
  const figures = await compileHostiles(tokenizer, 10_000, { most: 2 });
  assertEquals(figures.late, []);
  assert(figures.refused > 60, `${figures.refused} refused`);
  assert(figures.grown < 512 << 20, `${figures.grown} bytes grown`);
});
