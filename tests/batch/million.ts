import { assertEquals } from "@std/assert";
import { fromFileUrl } from "@std/path";

/* A batch of very many small lines in its own process, with frequent requests for its state. */

const CHILD = fromFileUrl(new URL("million_child.ts", import.meta.url));
/** The V8 flag of `deno task batch` in deno.json. */
const V8_FLAGS = "--v8-flags=--max-semi-space-size=4";
const ASK_EVERY_MS = 20;
const CHUNK_LINES = 1000;

export interface ManyLines {
  readonly seconds: number;
  /** Bytes. */
  readonly peakResident: number;
  /** Sorted latencies of state requests in milliseconds, per phase. */
  readonly waits: Readonly<Record<string, readonly number[]>>;
}

/** Throws unless every line is answered once and in order. */
export async function runManyLines(lines: number): Promise<ManyLines> {
  const folder = await Deno.makeTempDir({ prefix: "batch-million-" });
  try {
    await writeInput(`${folder}/in.jsonl`, lines);
    const start = performance.now();
    const child = new Deno.Command(Deno.execPath(), {
      args: ["run", "-q", V8_FLAGS, "--allow-read", "--allow-write", "--allow-net=127.0.0.1", CHILD, folder],
      stdout: "piped",
      stderr: "inherit",
    }).spawn();
    const told = child.stdout.pipeThrough(new TextDecoderStream()).getReader();
    const { port } = JSON.parse((await told.read()).value!);
    const waits: Record<string, number[]> = {};
    const asking = ask(port, waits);
    const { counts, peak } = JSON.parse((await told.read()).value!);
    const seconds = (performance.now() - start) / 1000;
    await Promise.all([asking, child.status, told.cancel()]);
    assertEquals(counts, { completed: lines, failed: 0, promptTokens: 3 * lines, outputTokens: 4 * lines });
    await checkOutput(`${folder}/out.jsonl`, lines);
    for (const found of Object.values(waits)) found.sort((a, b) => a - b);
    return { seconds, peakResident: peak, waits };
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

/** Runs until the server is gone. */
async function ask(port: number, waits: Record<string, number[]>): Promise<void> {
  for (;;) {
    const start = performance.now();
    try {
      const { phase } = await (await fetch(`http://127.0.0.1:${port}/`)).json();
      (waits[phase] ??= []).push(performance.now() - start);
    } catch {
      return;
    }
    await new Promise((resolve) => setTimeout(resolve, ASK_EVERY_MS));
  }
}

async function writeInput(path: string, lines: number): Promise<void> {
  using file = await Deno.open(path, { write: true, create: true });
  for (let start = 0; start < lines; start += CHUNK_LINES) {
    const count = Math.min(CHUNK_LINES, lines - start);
    const chunk = Array.from({ length: count }, (_, i) => {
      const body = { model: "demo", prompt: `Count from ${start + i}`, max_tokens: 4 };
      const line = { custom_id: `line-${start + i}`, method: "POST", url: "/v1/completions", body };
      return `${JSON.stringify(line)}\n`;
    });
    await write(file, new TextEncoder().encode(chunk.join("")));
  }
}

async function write(file: Deno.FsFile, bytes: Uint8Array): Promise<void> {
  for (let done = 0; done < bytes.length;) done += await file.write(bytes.subarray(done));
}

async function checkOutput(path: string, lines: number): Promise<void> {
  using file = await Deno.open(path);
  let rest = "";
  let next = 0;
  for await (const text of file.readable.pipeThrough(new TextDecoderStream(), { preventCancel: true })) {
    const found = (rest + text).split("\n");
    rest = found.pop()!;
    for (const line of found) assertEquals(/"custom_id":"([^"]*)"/.exec(line)![1], `line-${next++}`);
  }
  assertEquals([next, rest], [lines, ""]);
}
