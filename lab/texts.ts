/**
 * Compares the speed of text embeddings with ONNX Runtime, on an encoder of the same shape (`deno task bench:texts`).
 */
import { resolve } from "@std/path";
import process from "node:process";
import { readHparams } from "../engine/gguf/hparams/hparams.ts";
import { openGguf } from "../engine/gguf/reader.ts";
import { loadEngine } from "../engine/load/load.ts";
import { median } from "../bench/samples.ts";
import { command, Options, print, UsageError } from "../bench/shell.ts";
import { asTable } from "../bench/table.ts";

const HELP = `Measure embeddings of texts beside ONNX Runtime's, int8 by its dynamic quantisation, in turn.

Usage: deno task bench:texts --model FILE.gguf [options]

  --tokens N     of each text (default 512)
  --texts N      that are computed at once (default 2)
  --threads N    (default 1)
  --rounds N     after one that does not count (default 5)
  --help         this text

The model must be of architecture nomic-bert, as deno task synth makes it (nomic-embed-text-v1.5): the peer computes a graph of its
shape with random weights, once with one scale a tensor and once with one a column. $COMPY_PYTHON is a Python that has onnxruntime,
onnx and numpy (default python3). Times are for one text; CPU time is of all threads, and hardly changes with what else runs. Exit
code: 0 done, 1 failed, 2 wrong usage.
`;

/** Milliseconds for one text. */
interface Spent {
  readonly cpu_ms: number;
  readonly wall_ms: number;
}

interface Runner {
  readonly name: string;
  run(texts: number): Promise<Spent>;
  close(): Promise<void>;
}

async function compy(model: string, tokens: number, threads: number): Promise<Runner> {
  const { engine } = await loadEngine({ model, threads, backend: "cpu" });
  const { vocabSize } = engine.model;
  const text = (t: number) =>
    Array.from({ length: tokens }, (_, i) => 10 + (i * i * 7 + t * 13 + i) % (vocabSize - 10));
  return {
    name: "compy",
    async run(texts) {
      const inputs = Array.from({ length: texts }, (_, t) => text(t));
      const [cpu, wall] = [process.cpuUsage(), performance.now()];
      await engine.embed({ inputs });
      const { user, system } = process.cpuUsage(cpu);
      return { cpu_ms: (user + system) / 1000, wall_ms: performance.now() - wall };
    },
    close: () => engine.close(),
  };
}

async function onnxRuntime(shape: Readonly<Record<string, number | boolean>>): Promise<Runner> {
  const script = new URL("peers/onnx_texts.py", import.meta.url).pathname;
  const child = new Deno.Command(Deno.env.get("COMPY_PYTHON") ?? "python3", {
    args: [script, JSON.stringify(shape)],
    stdin: "piped",
    stdout: "piped",
    stderr: "null",
  }).spawn();
  const lines = linesOf(child.stdout);
  const answer = async () => {
    const { value } = await lines.next();
    if (value === undefined) {
      throw new Error(`${script} ended: $COMPY_PYTHON needs onnxruntime, onnx and numpy`);
    }
    return JSON.parse(value);
  };
  const stdin = child.stdin.getWriter();
  const { version } = await answer();
  return {
    name: `ONNX Runtime ${version}, a scale a ${shape.per_channel ? "column" : "tensor"}`,
    async run(texts) {
      await stdin.write(new TextEncoder().encode(`${texts}\n`));
      return await answer();
    },
    async close() {
      await stdin.close();
      await child.status;
    },
  };
}

async function* linesOf(stream: ReadableStream<Uint8Array<ArrayBuffer>>): AsyncGenerator<string, undefined> {
  let rest = "";
  for await (const part of stream.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + part).split("\n");
    rest = lines.pop()!;
    yield* lines;
  }
  return undefined;
}

await command("bench:texts", HELP, async () => {
  const options = new Options(Deno.args, ["model", "tokens", "texts", "threads", "rounds"]);
  const path = options.text("model");
  if (path === undefined) throw new UsageError("--model must name a GGUF file");
  const model = resolve(Deno.env.get("INIT_CWD") ?? ".", path);
  const [tokens, texts] = [options.count("tokens", 2048, 512), options.count("texts", 64, 2)];
  const [threads, rounds] = [options.count("threads", 256, 1), options.count("rounds", 100, 5)];
  const file = await openGguf(model);
  const h = readHparams(file, { bothDirections: true, layerNorm: true });
  if (h.architecture !== "nomic-bert") {
    throw new UsageError(`--model must be a nomic-bert (got ${h.architecture})`);
  }
  const shape = {
    layers: h.blockCount,
    width: h.embeddingLength,
    heads: h.headCount,
    inner: h.feedForwardLength,
    vocabulary: h.vocabSize,
    tokens,
    threads,
  };
  const runners = [
    await compy(model, tokens, threads),
    await onnxRuntime({ ...shape, per_channel: false }),
    await onnxRuntime({ ...shape, per_channel: true }),
  ];
  const spent: Spent[][] = runners.map(() => []);
  for (let round = 0; round <= rounds; round++) {
    for (const [i, runner] of runners.entries()) {
      const took = await runner.run(texts);
      if (round > 0) spent[i].push({ cpu_ms: took.cpu_ms / texts, wall_ms: took.wall_ms / texts });
    }
  }
  for (const runner of runners) await runner.close();
  const row = (
    name: string,
    own: readonly Spent[],
  ) => [name, ...times(own, spent[0], "cpu_ms"), ...times(own, spent[0], "wall_ms")];
  print(
    `texts of ${tokens} tokens, ${texts} at once; threads: ${threads}, rounds: ${rounds}\n`,
  );
  print(asTable([
    ["", "CPU ms a text", "of compy's", "ms a text", "of compy's"],
    ...runners.map(({ name }, i) => row(name, spent[i])),
  ]));
});

/** Returns the median of the own times, and the median and range of the rounds' ratios to the other runner. */
function times(own: readonly Spent[], other: readonly Spent[], key: keyof Spent): string[] {
  const ratios = own.map((spent, i) => spent[key] / other[i][key]);
  const [least, most] = [Math.min(...ratios), Math.max(...ratios)].map((ratio) => ratio.toFixed(2));
  return [
    median(own.map((spent) => spent[key])).toFixed(0),
    `${median(ratios).toFixed(2)} (${least}-${most})`,
  ];
}
