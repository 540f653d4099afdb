import { assertEquals } from "@std/assert";
import { mergeTunings, parseTunings } from "./tuning.ts";

const TUNING = { rows: 2, subgroups: 4, reduce: "subgroup" as const };

Deno.test("findings come back for their adapter alone, beside those of others", () => {
  const first = mergeTunings("", "A", new Map([["Q4_0 f16", TUNING]]));
  const both = mergeTunings(first, "B", new Map([["MXFP4 f32", { ...TUNING, rows: 8 }]]));
  assertEquals(parseTunings(both, "A"), new Map([["Q4_0 f16", TUNING]]));
  assertEquals(parseTunings(both, "B"), new Map([["MXFP4 f32", { ...TUNING, rows: 8 }]]));
  assertEquals(parseTunings(both, "C").size, 0);
});

Deno.test("what kernels cannot be made from is left out", () => {
  const entries = {
    "Q4_0 f16": { ...TUNING, rows: 3 },
    "Q4_0 f32": { ...TUNING, reduce: "hope" },
    "Q9_9 f32": TUNING,
    "Q8_0 f16": 7,
    "Q6_K f16": TUNING,
  };
  assertEquals([...parseTunings(JSON.stringify({ A: entries }), "A").keys()], ["Q6_K f16"]);
  for (const text of ["", "null", "[]", '{"A": 1}', "{"]) assertEquals(parseTunings(text, "A").size, 0);
});
