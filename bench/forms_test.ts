import { assert, assertEquals } from "@std/assert";
import { benchForms } from "./forms.ts";

Deno.test("bench: compares constrained with unconstrained answers, and reports forced tokens and the speedup", async () => {
  const phases: string[] = [];
  const rows = await benchForms({
    model: "models/demo.gguf",
    threads: 1,
    sequences: [1, 2],
    decode: 48,
    onPhase: (phase) => phases.push(phase),
  });
  assertEquals(rows.map(({ form, sequences }) => [form, sequences]), [
    ["nothing given", 1],
    ["nothing given", 2],
    ["JSON schema", 1],
    ["JSON schema", 2],
    ["names given", 1],
    ["names given", 2],
  ]);
  for (const { free, formed, ratio, lowest, highest } of rows) {
    assert(free > 0 && formed > 0 && lowest <= ratio && ratio <= highest);
  }
  assert(rows.slice(0, 2).every(({ forced }) => forced < 0.05));
  assert(rows.slice(4).every(({ forced }) => forced > 0.2 && forced < 0.9));
  assert(phases.length > rows.length);
});
