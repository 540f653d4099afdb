/**
 * Writes a seeded model in the shape of a published one, with random weights. It takes the same time and memory as the
 * real model, in compy and in llama.cpp, but its answers are meaningless.
 *
 *   deno task synth SHAPE FORMAT OUT.gguf [--layers N] [--seed N]
 *
 * FORMAT is a type (Q4_K, Q8_0, F16 …), or two: MXFP4+Q8_0 writes experts in the first and all other matrices in the
 * second. A matrix whose columns are not whole blocks of that type is written in Q8_0 or, if they are not whole blocks
 * of Q8_0 either, in F16. Without SHAPE it lists the shapes.
 */
import { parseArgs } from "@std/cli/parse_args.js";
import { isAbsolute, join } from "@std/path";
import { writeGguf } from "../../convert/write/gguf_writer.ts";
import type { Entry } from "../../convert/write/metadata.ts";
import type { OutputTensor } from "../../convert/write/output_tensor.ts";
import { FORMATS } from "../../engine/gguf/formats.ts";
import { byteLengthOf, layoutOf } from "../../engine/gguf/tensor_types.ts";
import type { TensorType } from "../../engine/gguf/types.ts";
import type { SynthModel } from "../../testing/synth/model.ts";
import { writeDflash } from "../../testing/synth/drafters/dflash.ts";
import { type Sink, SynthFile } from "../../testing/synth/file.ts";
import { type Architecture, SYNTH_MODELS } from "../../testing/synth/registry.ts";
import { describeTokens } from "../../testing/synth/tokens.ts";
import { TOWERS, writeTower } from "../../tests/models/vision/files.ts";
import type { TowerFamily } from "../../tests/models/vision/tower_writer.ts";

interface Shape {
  readonly architecture: string;
  readonly layers: number;
  readonly write: (file: SynthFile, layers: number) => void;
}

/** The vision tower of Qwen3-VL-2B. Source: its config.json. */
const QWEN3_VL_2B: TowerFamily = {
  ...TOWERS.qwen3vl,
  width: 1024,
  heads: 16,
  feedForward: 4096,
  image: 768,
  points: 48,
  deep: [5, 11, 17],
};

const SHAPES = new Map<string, Shape>();
for (const [name, family] of Object.entries(SYNTH_MODELS) as [Architecture, SynthModel][]) {
  for (const [shape, dimensions] of Object.entries(family.real ?? {})) {
    SHAPES.set(shape, {
      architecture: family.architecture ?? name,
      layers: dimensions.layers,
      write(file, layers) {
        // llama.cpp treats the vocabulary differently if a model's name contains "phi3".
        file.sink.set("general.name", "STRING", "synthetic");
        family.write(file, { ...dimensions, layers });
        describeTokens(file, dimensions.vocabulary);
      },
    });
  }
}
SHAPES.set("qwen3-vl-2b-mmproj", {
  architecture: "clip",
  layers: 24,
  write: (file, layers) => writeTower(file, { ...QWEN3_VL_2B, layers }, "F32", 2048),
});

/** A drafter like z-lab/Qwen3-4B-DFlash-b16 (five layers of Qwen3-4B), but for Qwen3.5-4B and its vocabulary. */
SHAPES.set("qwen3.5-4b-dflash", {
  architecture: "dflash",
  layers: 5,
  write(file, blocks) {
    const vocabulary = 248_320;
    const shape = { blocks, heads: 32, kvHeads: 8, headDim: 128, feedForward: 9728 };
    const layers = [2, 9, 16, 23, 30];
    file.sink.set("general.name", "STRING", "synthetic");
    writeDflash(file, [2560, vocabulary], {
      shape,
      layers,
      mask: vocabulary - 1,
      rows: 16,
      sharesOutput: true,
    });
    describeTokens(file, vocabulary);
  },
});

/** Collects the file's keys and tensors, in order. */
class Contents implements Sink {
  readonly entries: Entry[] = [];
  readonly tensors: OutputTensor[] = [];

  set(key: string, type: Entry["type"], value: Exclude<Entry["value"], readonly unknown[]>): void {
    this.entries.push({ key, type, value });
  }

  array(key: string, type: Entry["type"], values: ArrayLike<number | boolean | string>): void {
    this.entries.push({ key, type, value: Array.from(values) });
  }

  tensor(name: string, type: TensorType, shape: readonly number[], make: () => ArrayBufferView): void {
    const byteLength = byteLengthOf(type, shape.reduce((product, n) => product * n));
    const chunks = function* () {
      const { buffer, byteOffset, byteLength } = make();
      yield new Uint8Array(buffer, byteOffset, byteLength);
    };
    this.tensors.push({ name, type, shape, byteLength, source: type, chunks });
  }
}

/** Returns the types of experts and of other matrices for a FORMAT. */
function typesOf(format: string) {
  const [first, rest = first] = format.split("+") as TensorType[];
  for (const type of [first, rest]) {
    if (!Object.hasOwn(FORMATS, type)) {
      throw new Error(`Unknown format "${type}": there are ${Object.keys(FORMATS).join(", ")}`);
    }
  }
  return (_index: number, _name: string, shape: readonly number[]): TensorType => {
    const wanted = shape.length > 2 ? first : rest;
    return ([wanted, "Q8_0"] as const).find((type) => shape[0] % layoutOf(type).elements === 0) ?? "F16";
  };
}

async function main(): Promise<void> {
  const flags = parseArgs(Deno.args, { string: ["layers", "seed"] });
  const [name, format, out] = flags._.map(String);
  const shape = SHAPES.get(name);
  if (!shape || out === undefined) {
    throw new Error(
      `Usage: deno task synth SHAPE FORMAT OUT.gguf [--layers N] [--seed N]\nShapes: ${
        [...SHAPES.keys()].join(", ")
      }`,
    );
  }
  const { architecture, write } = shape;
  const layers = flags.layers === undefined ? shape.layers : Number(flags.layers);
  const contents = new Contents();
  const file = new SynthFile(contents, architecture, {
    seed: `${name} ${flags.seed ?? 1}`,
    typeOf: typesOf(format),
  });
  contents.set("general.architecture", "STRING", architecture);
  write(file, layers);
  const path = isAbsolute(out) ? out : join(Deno.env.get("INIT_CWD") ?? Deno.cwd(), out);
  using target = await Deno.open(path, { write: true, create: true, truncate: true });
  await writeGguf(target, contents.entries, contents.tensors);
  const bytes = contents.tensors.reduce((sum, { byteLength }) => sum + byteLength, 0);
  await Deno.stdout.write(
    new TextEncoder().encode(
      `${path}: ${name}, ${layers} layers, ${(bytes / 1e6).toFixed()} MB of weights\n`,
    ),
  );
}

if (import.meta.main) await main();
