import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { delay } from "@std/async/delay.js";
import { fromFileUrl } from "@std/path";
import { type Backend, greedyRequest, type StepInput, StepStopped } from "../../engine/backend/backend.ts";
import { WasmBackend } from "../../engine/backend/wasm/wasm.ts";
import { parseGguf } from "../../engine/gguf/reader.ts";
import { loadEngine } from "../../engine/load/load.ts";
import { MemoryError } from "../../engine/load/memory_error.ts";
import { KernelModel, shuffledBlocks } from "../../testing/kernel_model.ts";
import { compare, judge } from "../models/parity_judge.ts";
import { PARITY_FILES } from "../models/parity_cases.ts";
import { synthesize } from "../../testing/synth/synth.ts";
import { fullTier } from "../../testing/tier.ts";

/* The WebAssembly kernels. `deno task test:wasm` runs the other kernel tests with them. */

const root = fromFileUrl(new URL("../..", import.meta.url));
const MODEL = `${root}models/demo.gguf`;
const LIMITS = { kvBlocks: 16, maxRows: 512, maxLogitRows: 4 };

const model = (architecture: "llama" | "qwen35" = "llama") =>
  synthesize({ architecture, seed: 9, types: ["Q8_0", "Q4_K", "F16"], vocabulary: 500 });

const SLICE = ["Q4_0", "Q8_0", "Q6_K", "IQ2_XS", "IQ4_XS", "TQ1_0", "NVFP4", "Q1_0"];

fullTier.test("wasm: with each kind of format, log-probabilities are at least as near to the exact ones as llama.cpp's", async () => {
  for (const format of SLICE) {
    const file = PARITY_FILES.find((file) => file.format === format)!;
    const { ours, llamaCpp } = compare(await judge(file, { kind: "wasm", threads: 1 }));
    assert(ours.mean <= 1.1 * llamaCpp.mean, `${format}: ${ours.mean} off, llama.cpp ${llamaCpp.mean}`);
  }
});

/** A step with this many prompt tokens and results for the last two. */
function prompt(length: number, cached = 0): StepInput {
  return {
    tokens: Int32Array.from({ length }, (_, i) => (7 * (i + cached) + 3) % 500),
    sequences: [{ start: 0, length, cached, blockTable: shuffledBlocks(0, 16), state: undefined }],
    logits: [{ ...greedyRequest(length - 1), candidates: 20 }],
  };
}

fullTier.test("wasm: answers are bit-identical with one or two threads and in one or two steps", async () => {
  const bytes = model();
  using one = await KernelModel.load(bytes, LIMITS, { kind: "wasm", threads: 1 });
  using two = await KernelModel.load(bytes, LIMITS, { kind: "wasm", threads: 2 });
  const { rows } = await one.backend.step(prompt(300));
  assertEquals((await two.backend.step(prompt(300))).rows, rows);
  await two.backend.step(prompt(171));
  assertEquals((await two.backend.step(prompt(129, 171))).rows, rows);
});

fullTier.test("wasm: F16 weights work with infinite weights and with activations too large for the fast path", async () => {
  const scaled = (names: RegExp, change: (half: number, i: number) => number) => {
    const bytes = synthesize({ architecture: "llama", seed: 9, types: ["F16"], vocabulary: 500 });
    for (const { name, type, offset, byteLength } of parseGguf(bytes).tensors.values()) {
      if (type !== "F16" || !names.test(name)) continue;
      const halves = new Uint16Array(bytes.slice(offset, offset + byteLength).buffer);
      bytes.set(new Uint8Array(halves.map(change).buffer), offset);
    }
    return bytes;
  };
  const cases = {
    // With these weights the gated product of a feed-forward layer exceeds the range of F16.
    large: scaled(/^blk\.0\.ffn_(gate|up)/, (half) => (half & 0x7c00) === 0 ? half : half + (11 << 10)),
    infinite: scaled(/^blk\.0\.ffn_down/, (half, i) => i === 1000 ? 0x7c00 : half),
  };
  for (const [name, bytes] of Object.entries(cases)) {
    using kernels = await KernelModel.load(bytes, LIMITS, { kind: "wasm", threads: 1 });
    // Many rows use the plain path.
    const { rows } = await kernels.backend.step(prompt(20));
    await kernels.backend.step(prompt(19));
    assertEquals((await kernels.backend.step(prompt(1, 19))).rows, rows, name);
    assertEquals([...rows[0].logits].filter(Number.isFinite).length, name === "large" ? 20 : 0, name);
  }
});

fullTier.test("wasm: a step does not block the caller and can be stopped", async () => {
  using kernels = await KernelModel.load(model(), { ...LIMITS, kvBlocks: 64, maxRows: 2048 }, {
    kind: "wasm",
  });
  const { backend } = kernels;
  const long = {
    ...prompt(2000),
    sequences: [{ ...prompt(2000).sequences[0], blockTable: shuffledBlocks(0, 64) }],
  };
  await backend.step(prompt(8)); // compiles the kernels
  let ticks = 0;
  const timer = setInterval(() => ticks++, 1);
  try {
    const step = backend.step(long);
    const stopped = assertRejects(() => step, StepStopped);
    while (ticks < 3) await delay(1);
    backend.requestStop();
    await stopped;
    const atOnce = assertRejects(() => backend.step(long), StepStopped);
    backend.requestStop();
    await atOnce;
  } finally {
    clearInterval(timer);
  }
  const again = (await backend.step(prompt(8))).rows;
  assertEquals((await backend.step(prompt(8))).rows, again);
});

fullTier.test("wasm: KV blocks and recurrent states are copied out and back", async () => {
  for (const architecture of ["llama", "qwen35"] as const) {
    const bytes = model(architecture);
    using kernels = await KernelModel.load(bytes, LIMITS, { kind: "wasm", threads: 2 });
    const { backend } = kernels as { backend: Backend };
    const table = shuffledBlocks(0, 16);
    const state = architecture === "llama" ? undefined : 2;
    const step = async (length: number, cached: number) => {
      const input = prompt(length, cached);
      const [sequence] = input.sequences;
      const slots = state === undefined
        ? undefined
        : { read: cached === 0 ? undefined : state, write: state, saves: [] };
      return (await backend.step({ ...input, sequences: [{ ...sequence, state: slots }] })).rows;
    };
    await step(64, 0);
    const parts = {
      blocks: [{ group: 0, block: table[0] }, { group: 0, block: table[1] }],
      slots: state === undefined ? [] : [state],
    };
    const kept = await backend.abilities.copies!.readCache(parts);
    const expected = await step(5, 64);
    await step(70, 0);
    await step(70, 70); // overwrites these blocks and states
    await backend.abilities.copies!.writeCache(parts, [kept.subarray(0, 100), kept.subarray(100)]);
    assertEquals(await step(5, 64), expected, architecture);
  }
});

fullTier.test("wasm: a refused step throws the kernels' message, and later steps work", async () => {
  using kernels = await KernelModel.load(model(), LIMITS, { kind: "wasm", threads: 2 });
  const wrong = { ...prompt(4), tokens: Int32Array.of(1, 2, 3, 500) };
  const error = await assertRejects(() => kernels.backend.step(wrong), Error);
  assertEquals([error.name, error.message.includes("500")], ["WasmError", true]);
  assertEquals((await kernels.backend.step(prompt(4))).rows.length, 1);
  kernels.backend.close();
  await assertRejects(() => kernels.backend.step(prompt(4)), Error, "closed");
});

fullTier.test("wasm: a model too large for a 32-bit memory is refused with the figures", async () => {
  const load = () =>
    loadEngine({ model: MODEL, backend: "wasm", parallel: 2, kvBytes: 5e9, freeBytes: 64e9 });
  const { message } = await assertRejects(load, MemoryError);
  assertStringIncludes(message, "and WebAssembly's 32-bit memory has room for 4,22");
  assertStringIncludes(message, "5,000.0 MB");
});

fullTier.test("wasm: concurrent greedy and seeded answers equal the native ones", async () => {
  const answers = async (backend: "cpu" | "wasm") => {
    const { engine, backend: { info } } = await loadEngine({
      model: MODEL,
      backend,
      threads: 2,
      contextLength: 256,
    });
    assertEquals(info.name, backend);
    try {
      const prompt = engine.encodePrompt("Hello");
      return await Promise.all([0, 0.8].map(async (temperature) => {
        const request = { prompt, maxTokens: 12, sampling: { temperature, seed: 5 } };
        const events = await Array.fromAsync(engine.submit(request));
        return events.map((event) => "token" in event ? event.token : undefined);
      }));
    } finally {
      await engine.close();
    }
  };
  assertEquals(await answers("wasm"), await answers("cpu"));
});

/** Runs a program of this repository with only these permissions. */
async function runWith(
  permissions: string[],
  args: string[],
): Promise<{ code: number; out: string; err: string }> {
  const command = new Deno.Command(Deno.execPath(), {
    args: ["run", "-q", "--no-check", "--no-prompt", ...permissions, ...args],
    cwd: root,
    env: { NO_COLOR: "1" },
    stdin: "null",
  });
  const { code, stdout, stderr } = await command.output();
  const [out, err] = [stdout, stderr].map((bytes) => new TextDecoder().decode(bytes));
  return { code, out, err };
}

fullTier.test("wasm: a command without FFI permission works, and says in one line that WebAssembly is slower", async () => {
  const generate = [
    "main.ts",
    "generate",
    "--model",
    MODEL,
    "--prompt",
    "Hello",
    "-n",
    "4",
    "--temperature",
    "0",
  ];
  const native = await runWith([
    "--allow-read",
    "--allow-env=INIT_CWD",
    "--allow-ffi=rust-kernels/target/release",
  ], generate);
  const { code, out, err } = await runWith(["--allow-read", "--allow-env=INIT_CWD"], generate);
  assertEquals([code, out], [0, native.out], err);
  const lines = err.split("\n").filter((line) => line.includes("WebAssembly"));
  assertEquals(lines.length, 1, err);
  assertStringIncludes(lines[0], "as fast");
  assert(!native.err.includes("WebAssembly"), native.err);
});

fullTier.test("wasm: a server of several models without FFI permission says so once", async () => {
  const folder = await Deno.makeTempDir();
  const models = ["one", "two"].map((name) => `${folder}/${name}.gguf`);
  for (const path of models) await Deno.copyFile(MODEL, path);
  const permissions = [
    "--allow-read",
    "--allow-env",
    "--allow-net=127.0.0.1",
    "--allow-sys=systemMemoryInfo",
  ];
  const options = [...models.flatMap((path) => ["--model", path]), "--port", "0", "--data", "none"];
  const child = new Deno.Command(Deno.execPath(), {
    args: ["run", "-q", "--no-check", "--no-prompt", ...permissions, "main.ts", "serve", ...options],
    cwd: root,
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
  const told = new Response(child.stderr).text();
  for await (const text of child.stdout.pipeThrough(new TextDecoderStream())) {
    if (text.includes("listening on ")) child.kill("SIGTERM");
  }
  assertEquals((await child.status).code, 0, await told);
  assertEquals((await told).match(/Computing in WebAssembly/g)?.length, 1, await told);
  await Deno.remove(folder, { recursive: true });
});

fullTier.test("wasm: without FFI permission, constrained requests are refused and other requests are answered", async () => {
  const { out, err } = await runWith(["--allow-read"], ["tests/kernels/wasm_child.ts"]);
  assertEquals(JSON.parse(out || "null"), { name: "wasm", tokens: 4, code: "not_supported" }, err);
});

fullTier.test("wasm: two backends have separate memories", async () => {
  const [one, two] = await Promise.all([WasmBackend.open({ threads: 1 }), WasmBackend.open({ threads: 2 })]);
  assertEquals([one.info.threads, two.info.threads], [1, 2]);
  one.close();
  assertEquals((await two.kernelsDigest()).length, 64);
  two.close();
});

fullTier.test("wasm: a closed backend frees its memory at once, even if it is still referenced", async () => {
  const { Memory } = WebAssembly;
  const made: WeakRef<WebAssembly.Memory>[] = [];
  WebAssembly.Memory = class extends Memory {
    constructor(descriptor: WebAssembly.MemoryDescriptor) {
      super(descriptor);
      made.push(new WeakRef(this));
    }
  };
  try {
    const backend = await WasmBackend.open({ threads: 2 });
    made[0].deref()!.grow(8192); // the size of a model of half a gigabyte
    await delay(0);
    backend.close();
    for (let tries = 0; made[0].deref() !== undefined && tries < 100; tries++) await delay(50);
    assertEquals([made.length, made[0].deref(), backend.info.name], [1, undefined, "wasm"]);
  } finally {
    WebAssembly.Memory = Memory;
  }
});
