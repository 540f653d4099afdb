import { assertEquals } from "@std/assert";
import { fits, mergeTunings, parseTunings, tuningProblem } from "./tuning.ts";

const TUNING = { rows: 2, lanes: 128 };

Deno.test("tunings: are stored and read per adapter", () => {
  const first = mergeTunings("", "A", new Map([["Q4_0 f16", TUNING]]));
  const both = mergeTunings(first, "B", new Map([["MXFP4 f32", { ...TUNING, rows: 8 }]]));
  assertEquals(parseTunings(both, "A"), new Map([["Q4_0 f16", TUNING]]));
  assertEquals(parseTunings(both, "B"), new Map([["MXFP4 f32", { ...TUNING, rows: 8 }]]));
  assertEquals(parseTunings(both, "C").size, 0);
});

Deno.test("tunings: drop entries for which no kernel can be made", () => {
  const entries = {
    "Q4_0 f16": { ...TUNING, rows: 3 },
    "Q4_0 f32": { ...TUNING, lanes: 100 },
    "Q9_9 f32": TUNING,
    "Q8_0 f16": 7,
    "Q6_K f16": TUNING,
  };
  assertEquals([...parseTunings(JSON.stringify({ A: entries }), "A").keys()], ["Q6_K f16"]);
  for (const text of ["", "null", "[]", '{"A": 1}', "{"]) assertEquals(parseTunings(text, "A").size, 0);
});

Deno.test("tunings: the message says what is wrong with a file for this adapter; files for other adapters are ignored", () => {
  assertEquals(tuningProblem("{", "A"), "it is not JSON");
  for (const text of ["null", "[]", "7"]) assertEquals(tuningProblem(text, "A"), "it is no JSON object");
  assertEquals(tuningProblem('{"A": [1]}', "A"), `what it has for "A" is no JSON object`);
  const bad = JSON.stringify({ A: { "Q4_0 f16": TUNING, "Q4_0 f32": { ...TUNING, rows: 1e9 } } });
  assertEquals(tuningProblem(bad, "A"), `its "Q4_0 f32" for "A" is no tuning`);
  assertEquals(tuningProblem(bad, "B"), undefined);
  const older = JSON.stringify({ A: { "Q4_0 f16": TUNING, "Q4_0 int16-activations": TUNING } });
  assertEquals(tuningProblem(older, "A"), undefined, "an arithmetic that an older version had");
  assertEquals(tuningProblem(mergeTunings("", "A", new Map([["Q4_0 f16", TUNING]])), "A"), undefined);
});

Deno.test("tunings: fit when the workgroup has no more lanes than the device allows", () => {
  assertEquals([256, 512].map((lanes) => fits({ ...TUNING, lanes }, 256)), [true, false]);
});
