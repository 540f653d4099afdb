import { assertEquals } from "@std/assert";
import { join } from "@std/path";
import type { BatchError } from "../errors.ts";
import { diskStorage } from "../journal/storage.ts";
import { batchLine, runOn } from "../testing.ts";

const LINES = Array.from({ length: 10 }, (_, n) => batchLine(n));
const OTHER = LINES[0].replace('"prompt":"p"', '"prompt":"q"');

/** Runs a job whose input is changed once after its last line was answered. Returns the output, or the error's code. */
async function changed(change: (input: string) => void): Promise<string> {
  const folder = await Deno.makeTempDir({ prefix: "input-version-" });
  try {
    const [input, output, errors] = ["in.jsonl", "out.jsonl", "err.jsonl"].map((name) => join(folder, name));
    await Deno.writeTextFile(input, LINES.join("\n"));
    let answered = 0;
    const job = () =>
      runOn(diskStorage, ({ body }) => {
        if (++answered === LINES.length) change(input);
        return Promise.resolve({ status: 200, body: { n: body.n } });
      }, { input, output, errors });
    const { state } = await job().catch((error: BatchError) => ({ state: error.code }));
    if (state !== "input_changed") return state;
    assertEquals([...Deno.readDirSync(folder)].map(({ name }) => name).sort(), [
      "in.jsonl",
      "out.jsonl.journal",
    ]);
    // The test follows the message's advice: with the old content the job resumes, and runs no line again.
    await Deno.writeTextFile(input, LINES.join("\n"));
    assertEquals([(await job()).state, answered], ["done", LINES.length]);
    return state;
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

const CHANGES: [what: string, state: string, change: (input: string) => void][] = [
  ["is edited in place", "input_changed", (input) => {
    using file = Deno.openSync(input, { write: true });
    file.writeSync(new TextEncoder().encode(OTHER));
  }],
  ["is replaced", "input_changed", (input) => {
    Deno.writeTextFileSync(`${input}.new`, [OTHER, ...LINES.slice(1)].join("\n"));
    Deno.renameSync(`${input}.new`, input);
  }],
  [
    "grows",
    "input_changed",
    (input) => Deno.writeTextFileSync(input, `\n${batchLine(10)}`, { append: true }),
  ],
  ["is cut", "input_changed", (input) => Deno.truncateSync(input, LINES[0].length)],
  [
    "is written again with the same content",
    "done",
    (input) => Deno.writeTextFileSync(input, LINES.join("\n")),
  ],
  ["is removed", "done", (input) => Deno.removeSync(input)],
];

for (const [what, state, change] of CHANGES) {
  const end = state === "done" ? "writes its outputs" : "writes no outputs and can resume";
  Deno.test(`runBatch: ${end} when the input ${what} after the last line that was read`, async () => {
    assertEquals(await changed(change), state);
  });
}

Deno.test("runBatch: does not read an unchanged input again", async () => {
  let passes = 0;
  const folder = await Deno.makeTempDir({ prefix: "input-version-" });
  try {
    const [input, output, errors] = ["in.jsonl", "out.jsonl", "err.jsonl"].map((name) => join(folder, name));
    await Deno.writeTextFile(input, LINES.join("\n"));
    const storage = {
      ...diskStorage,
      open: (path: string, mode: "read" | "edit" | "replace") => {
        if (path === input) passes++;
        return diskStorage.open(path, mode);
      },
    };
    await runOn(storage, () => Promise.resolve({ status: 200, body: {} }), { input, output, errors });
    assertEquals(passes, 1);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});
