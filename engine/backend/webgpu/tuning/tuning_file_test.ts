import { assert, assertEquals } from "@std/assert";
import { mergeTunings } from "./tuning.ts";
import { readTunings } from "./tuning_file.ts";

const TUNING = { rows: 2, lanes: 128 };
const GPU = {
  name: "A",
  kernels: { f16: true },
  workgroupLanes: 256,
} as Parameters<typeof readTunings>[0];

async function read(text: string | undefined) {
  const folder = await Deno.makeTempDir({ prefix: "compy-test-" });
  try {
    const file = new URL(`file://${folder}/tuning.json`);
    if (text !== undefined) await Deno.writeTextFile(file, text);
    const warnings: string[] = [];
    const tunings = await readTunings(GPU, (message) => warnings.push(message), file);
    return { tunings, warnings };
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

Deno.test("tuning file: returns the tunings stored for the adapter", async () => {
  const known = new Map([["Q4_0 f16", TUNING]]);
  assertEquals(await read(mergeTunings("", "A", known)), { tunings: known, warnings: [] });
  assertEquals(await read(mergeTunings("", "B", known)), { tunings: new Map(), warnings: [] });
  assertEquals(await read(undefined), { tunings: new Map(), warnings: [] });
});

Deno.test("tuning file: warns about an unusable file and ignores the file", async () => {
  for (const text of ["{", "[1]", '{"A": 3}', '{"A": {"Q4_0 f16": {"rows": 3}}}']) {
    const { tunings, warnings } = await read(text);
    assertEquals([tunings.size, warnings.length], [0, 1]);
    assert(
      /^Ignored the GPU's tuning in .*tuning\.json: .* Delete it, or tune the GPU again/.test(warnings[0]),
    );
  }
});
