import { assert, assertAlmostEquals, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { join } from "@std/path";
import { run, runJson, task, withFolder } from "../../testing/commands.ts";
import { synthesize } from "../../testing/synth/synth.ts";
import { fullTier } from "../../testing/tier.ts";

const MODEL = { architecture: "qwen3", types: ["Q8_0"], layers: 1, seed: 3, texts: { pooling: 3 } } as const;
const TEXTS = [
  "a fox in the snow",
  { text: "a hare in the grass", id: "b7" },
  { input: "an owl above the barn, quite still", id: 9 },
];

/** Creates a folder with `model.gguf` and `texts.jsonl` for a test. */
async function withTexts(
  texts: readonly unknown[],
  test: (at: (name: string) => string, folder: string) => Promise<void>,
): Promise<void> {
  await withFolder(async (folder) => {
    const at = (name: string) => join(folder, name);
    await Deno.writeFile(at("model.gguf"), synthesize(MODEL));
    await Deno.writeTextFile(at("texts.jsonl"), texts.map((text) => `${JSON.stringify(text)}\n`).join(""));
    await test(at, folder);
  });
}

const namesIn = (folder: string) => [...Deno.readDirSync(folder)].map(({ name }) => name).sort();

/** Returns the matrix in an .npy file. */
function readNpy(path: string): { shape: string; values: Float32Array } {
  const bytes = Deno.readFileSync(path);
  assertEquals([...bytes.subarray(0, 8)], [0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, 1, 0]);
  const start = 10 + bytes[8] + 256 * bytes[9];
  assertEquals(start % 64, 0);
  return {
    shape: new TextDecoder().decode(bytes.subarray(10, start)).trimEnd(),
    values: new Float32Array(bytes.slice(start).buffer),
  };
}

Deno.test("cli: embed writes vectors in input order, as JSON lines and as a matrix", async () => {
  await withTexts(TEXTS, async (at, folder) => {
    const model = ["--model", at("model.gguf")];
    const report = await runJson("embed", at("texts.jsonl"), "--out", at("a.jsonl"), ...model);
    assertEquals([report.vectors, report.dimensions, report.path], [3, 256, at("a.jsonl")]);
    const lines = (await Deno.readTextFile(at("a.jsonl"))).trimEnd().split("\n").map((line) =>
      JSON.parse(line)
    );
    assertEquals(lines.map(({ index, id }) => [index, id]), [[0, undefined], [1, "b7"], [2, 9]]);
    for (const { embedding } of lines) assertAlmostEquals(Math.hypot(...embedding), 1, 1e-6);
    const matrix = await run(["embed", at("texts.jsonl"), "--out", at("a.npy"), ...model]);
    assertMatch(matrix.stdout, /a\.npy: 3 vectors of 256; \d+ tokens, in \d+ s \(\d+ tokens\/s\)\n$/);
    const { shape, values } = readNpy(at("a.npy"));
    assertEquals(shape, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 256), }");
    assertEquals(lines.flatMap(({ embedding }) => embedding.map(Math.fround)), [...values]);
    const short = await runJson(
      "embed",
      at("texts.jsonl"),
      "--out",
      at("s.npy"),
      "--dimensions",
      "8",
      ...model,
    );
    assertEquals([short.dimensions, readNpy(at("s.npy")).values.length], [8, 24]);
    assertEquals(namesIn(folder), ["a.jsonl", "a.npy", "model.gguf", "s.npy", "texts.jsonl"]);
  });
});

fullTier.test("cli: embed reports lines without a text before it computes", async () => {
  await withTexts(
    ["good", { id: 1 }, "", "long ".repeat(60), 7, { text: "x", id: {} }],
    async (at, folder) => {
      await Deno.writeTextFile(at("texts.jsonl"), "{not JSON\n", { append: true });
      const args = [
        "embed",
        at("texts.jsonl"),
        "--out",
        at("a.npy"),
        "--model",
        at("model.gguf"),
        "--ctx",
        "100",
      ];
      const { code, stdout, stderr } = await run(args);
      assertEquals([code, stdout], [1, ""]);
      const texts = at("texts.jsonl");
      for (
        const line of [
          `${texts}: line 2: it must be a text, or an object with a text as "text" or "input" (got an object)`,
          `${texts}: line 3: the text has no tokens`,
          `${texts}: line 4: the text has 300 tokens; at most 100 are allowed (--ctx)`,
          `${texts}: line 5: it must be a text, or an object with a text as "text" or "input" (got 7)`,
          `${texts}: line 6: "id" must be a text or a number (got an object)`,
          `${texts}: line 7: it is not valid JSON`,
          "Error: 6 of 7 lines cannot be embedded; nothing was computed",
        ]
      ) assertStringIncludes(stderr, `${line}\n`);
      assertEquals(namesIn(folder), ["model.gguf", "texts.jsonl"]);
    },
  );
});

fullTier.test("cli: embed never overwrites a file, and names files that it cannot read or write", async () => {
  await withTexts(TEXTS, async (at) => {
    const model = ["--model", at("model.gguf")];
    await Deno.writeTextFile(at("mine.npy"), "mine");
    const mine = await run(["embed", at("texts.jsonl"), "--out", at("mine.npy"), ...model]);
    assertEquals([mine.code, await Deno.readTextFile(at("mine.npy"))], [1, "mine"]);
    assertStringIncludes(mine.stderr, `Cannot write ${at("mine.npy")}: it already exists`);
    const missing = await run(["embed", at("none.jsonl"), "--out", at("a.npy"), ...model]);
    assertStringIncludes(missing.stderr, "there is no such file or folder");
    const nowhere = await run(["embed", at("texts.jsonl"), "--out", at("no/a.npy"), ...model]);
    assertStringIncludes(nowhere.stderr, "there is no such file or folder");
    const wide = await run([
      "embed",
      at("texts.jsonl"),
      "--out",
      at("a.npy"),
      "--dimensions",
      "257",
      ...model,
    ]);
    assertEquals(wide.code, 2);
    assertStringIncludes(
      wide.stderr,
      "--dimensions must be at most 256, the vector length of this model (got 257)",
    );
  });
});

fullTier.test("cli: embed leaves no files after Ctrl-C", async () => {
  const texts = Array.from({ length: 20_000 }, (_, i) => `text ${i} ${"about foxes ".repeat(20)}`);
  await withTexts(texts, async (at, folder) => {
    const child = task(["embed", at("texts.jsonl"), "--out", at("a.npy"), "--model", at("model.gguf")]);
    for (let i = 0; !namesIn(folder).includes("a.npy.partial") && i < 3000; i++) {
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    assert(namesIn(folder).includes("a.npy.partial"));
    child.kill("SIGINT");
    const { code, stderr } = await child.output();
    assertEquals([code, new TextDecoder().decode(stderr)], [1, "Error: Stopped; nothing is left behind\n"]);
    assertEquals(namesIn(folder), ["model.gguf", "texts.jsonl"]);
  });
});

fullTier.test("cli: generate names the alternative for an encoder", async () => {
  await withFolder(async (folder) => {
    const model = join(folder, "encoder.gguf");
    await Deno.writeFile(model, synthesize({ architecture: "bert", types: ["Q8_0"], layers: 1, seed: 3 }));
    const { code, stderr } = await run(["generate", "--prompt", "a fox", "--model", model]);
    assertEquals(code, 1);
    const says = 'The model "encoder" returns vectors for texts and generates no text: use deno task embed';
    assertStringIncludes(stderr, says);
  });
});
