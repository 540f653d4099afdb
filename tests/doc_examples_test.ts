import { assertEquals } from "@std/assert";
import { doc, documented, moduleOfExamples } from "./doc_examples.ts";
import { fullTier } from "../testing/tier.ts";

Deno.test("public API: every symbol is documented, and its types are public", async () => {
  await doc("--lint");
});

fullTier.test("public API: every symbol has an example, and all examples run, also in docs/LIBRARY.md and the README", async (t) => {
  const symbols = await documented();
  const without = symbols.filter(({ examples }) => examples.length === 0);
  assertEquals(without.map(({ name }) => name), [], "these have no example");
  const folder = await Deno.makeTempDir({ prefix: "doc-examples-" });
  try {
    await Deno.writeTextFile(`${folder}/examples.ts`, await moduleOfExamples(symbols));
    const { examples } = await import(`file://${folder}/examples.ts`);
    for (const [name, example] of examples) await t.step(name, example);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});
