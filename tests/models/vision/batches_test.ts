/** Batches with images by the command: killed and resumed, from files and from a table. `IMAGE_ROWS`, `IMAGE_KILLS`. */
import { assert, assertEquals } from "@std/assert";
import { fromFileUrl } from "@std/path";
import { parquetWriteBuffer } from "hyparquet-writer";
import { say } from "../../../testing/campaign.ts";
import { Random, testSeed } from "../../../testing/random.ts";
import { fullTier } from "../../../testing/tier.ts";
import { withFiles } from "./files.ts";
import { png } from "./pictures.ts";

const MAIN = fromFileUrl(new URL("../../../main.ts", import.meta.url));
const ROWS = Number(Deno.env.get("IMAGE_ROWS") ?? 24);
const KILLS = Number(Deno.env.get("IMAGE_KILLS") ?? 3);

interface Ended {
  /** The exit code; undefined after a kill. */
  readonly code?: number;
  readonly told: string;
  /** Milliseconds since the job has started. */
  readonly ms: number;
}

/** Runs `batch run`, which is killed `killAfter` milliseconds after the job has started. */
async function batch(args: readonly string[], killAfter?: number): Promise<Ended> {
  const child = new Deno.Command(Deno.execPath(), {
    args: ["run", "-q", "-P=batch", MAIN, "batch", "run", ...args, "--threads", "2", "--json"],
    stdout: "piped",
    stderr: "piped",
    env: { NO_COLOR: "1" },
  }).spawn();
  let timer: ReturnType<typeof setTimeout> | undefined;
  let told = "";
  let started = 0;
  const errors = new Response(child.stderr).text();
  for await (const text of child.stdout.pipeThrough(new TextDecoderStream())) {
    told += text;
    if (!told.includes('"started"')) continue;
    started ||= performance.now();
    if (killAfter !== undefined) {
      timer ??= setTimeout(() => {
        try {
          child.kill("SIGKILL");
        } catch {
          // It has ended.
        }
      }, killAfter);
    }
  }
  const { code, signal } = await child.status;
  clearTimeout(timer);
  told += await errors;
  const ms = performance.now() - started;
  return { code: signal === "SIGKILL" ? undefined : code, told, ms };
}

/** Kills a job at random moments until it was killed `KILLS` times, then lets it end. Returns its output. */
async function killed(
  args: readonly string[],
  out: string,
  wholeMs: number,
  random: Random,
): Promise<Uint8Array> {
  let kills = 0;
  for (;;) {
    const killAfter = kills < KILLS ? wholeMs / (KILLS + 1) * random.below(1000) / 1000 : undefined;
    const { code, told } = await batch([...args, "--out", out], killAfter);
    if (code === undefined) {
      kills++;
      continue;
    }
    assertEquals(code, 0, told);
    break;
  }
  assert(kills > 0, "the job ended before a kill");
  say(`${ROWS} images, ${kills} kills, ${Math.round(wholeMs)} ms undisturbed`);
  return await Deno.readFile(out);
}

/** Returns the answers of lines, without times and counts of cached tokens. */
function answersOf(jsonl: Uint8Array): unknown[] {
  return new TextDecoder().decode(jsonl).trimEnd().split("\n").map((line) => {
    const { custom_id, response } = JSON.parse(line);
    return [custom_id, response.status_code, response.body.choices];
  });
}

for (const kind of ["a table of bytes", "lines with files"] as const) {
  fullTier.test(`batch with images: output equals that of an undisturbed run after kills: ${kind}`, async () => {
    await withFiles({ tower: "qwen3vl", type: "Q8_0", seed: 6 }, async ({ model }) => {
      const folder = await Deno.makeTempDir({ prefix: "batch-images-" });
      try {
        const images = await Promise.all(
          Array.from({ length: ROWS }, (_, i) => png(64 + 32 * (i % 3), 64, i)),
        );
        const isTable = kind === "a table of bytes";
        const [input, ending] = isTable
          ? [`${folder}/in.parquet`, "parquet"]
          : [`${folder}/in.jsonl`, "jsonl"];
        images[3] = new Uint8Array([1, 2, 3]);
        if (isTable) {
          const columnData = [
            { name: "n", data: images.map((_, i) => i), type: "INT32" as const },
            { name: "photo", data: images, type: "BYTE_ARRAY" as const },
          ];
          await Deno.writeFile(input, new Uint8Array(parquetWriteBuffer({ columnData })));
        } else {
          await Deno.mkdir(`${folder}/images`);
          for (const [i, bytes] of images.entries()) await Deno.writeFile(`${folder}/images/${i}.png`, bytes);
          const lines = images.map((_, i) => {
            const content = [
              { type: "image_url", image_url: { url: `file:${i === 5 ? "../in.jsonl" : `${i}.png`}` } },
              { type: "text", text: `What is ${i}?` },
            ];
            const body = { messages: [{ role: "user", content }], max_tokens: 6, temperature: 0 };
            return JSON.stringify({ custom_id: `${i}`, method: "POST", url: "/v1/chat/completions", body });
          });
          await Deno.writeTextFile(input, lines.join("\n"));
        }
        const asked = isTable
          ? ["--prompt", "What is {n}?", "--image", "photo", "--max-tokens", "6"]
          : ["--images", `${folder}/images`];
        const args = [input, "--model", model, "--ctx", "256", ...asked];
        const whole = await batch([...args, "--out", `${folder}/whole.${ending}`]);
        assertEquals(whole.code, 0, whole.told);
        const expected = await Deno.readFile(`${folder}/whole.${ending}`);
        const found = await killed(args, `${folder}/killed.${ending}`, whole.ms, new Random(testSeed()));
        if (isTable) assert(found.every((byte, i) => byte === expected[i]), "the outputs differ");
        else assertEquals(answersOf(found), answersOf(expected));
        const errors = await Deno.readTextFile(`${folder}/killed.errors.jsonl`);
        assertEquals(errors.trimEnd().split("\n").length, isTable ? 1 : 2, errors);
        if (isTable) return;
        await Deno.mkdir(`${folder}/other`);
        const other = [
          input,
          "--model",
          model,
          "--ctx",
          "256",
          "--images",
          `${folder}/other`,
          "--limit",
          "30",
        ];
        await Deno.remove(`${folder}/killed.jsonl`);
        const moved = await batch([...other, "--out", `${folder}/killed.jsonl`]);
        assert(moved.code !== 0, "a job with another folder is another job");
      } finally {
        await Deno.remove(folder, { recursive: true });
      }
    });
  });
}
