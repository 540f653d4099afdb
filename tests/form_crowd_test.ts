import { assert, assertEquals } from "@std/assert";
import { askCrowds } from "./form_crowd.ts";

Deno.test("a crowd of chance gets the answers in a form that each gets alone, whoever leaves", async () => {
  const figures = await askCrowds({ rounds: 1, seed: 3 });
  assertEquals(figures.wrong, []);
  assertEquals(figures.failed, []);
  assert(figures.whole > 8 && figures.left > 2, JSON.stringify(figures));
});
