import { basename } from "@std/path";
import { CpuBackend } from "../engine/backend/cpu/cpu.ts";
import { readFloats } from "../engine/gguf/float_tensor.ts";
import { openGguf } from "../engine/gguf/reader.ts";
import type { PlanTensor } from "../engine/plan/plan.ts";
import { patchesOf } from "../engine/vision/patches.ts";
import { scaled } from "../engine/vision/scaling.ts";
import { positionTensors, readTower } from "../engine/vision/shape.ts";
import { type StepParts, stepsOf, towerSize } from "../engine/vision/tower.ts";
import { buildTower } from "../engine/vision/tower_plan.ts";
import { type EvenStep, opFloor } from "./floors.ts";
import { type BenchOptions, type BenchReport, better } from "./model.ts";
import { profile, profileRows } from "./profile.ts";
import { median, type Sample } from "./samples.ts";

const SAMPLES = 5;

/** Width and height of an image in pixels. */
export interface ImageSize {
  readonly width: number;
  readonly height: number;
}

/**
 * Returns a vision tower's speed for one image, and the share of the machine's limits that it reaches. The time starts
 * with the patches, so it excludes scaling. `options.model` is the tower's `mmproj` file. Throws the errors of loading
 * a model.
 */
export async function benchTower(options: BenchOptions, image: ImageSize): Promise<BenchReport> {
  const { model, threads, isa, onPhase = () => {} } = options;
  onPhase("loading");
  const start = performance.now();
  const file = await openGguf(model);
  const shape = readTower(file);
  const plan = buildTower(file, shape);
  const tables = positionTensors(file, shape);
  const positions = await Promise.all(tables.map((table) => readFloats(file, table)));
  const backend = new CpuBackend({ threads, isa });
  try {
    await backend.loadWeights(file, plan);
    await backend.compile(plan, towerSize(shape));
    const loadMs = performance.now() - start;
    onPhase("this machine's limits");
    const before = await backend.measureLimits();
    const { sample, run } = measurement(image, { shape, positions }, backend);
    onPhase("warming up");
    await run();
    for (let i = 0; i < SAMPLES; i++) {
      onPhase(`image ${i + 1} of ${SAMPLES}`);
      sample.seconds.push(await run());
    }
    const profiled = options.profile ? await profile(backend, plan, sample, run) : undefined;
    onPhase("this machine's limits, again");
    const limits = better(before, await backend.measureLimits());
    const bytesOf = (tensor: PlanTensor) => backend.tensorBytes(tensor);
    const floorOf = (step: EvenStep) =>
      plan.ops.reduce((sum, op) => sum + opFloor(plan, op, bytesOf, step, limits), 0);
    const floor = sample.steps.reduce((sum, step) => sum + floorOf(step), 0);
    const took = median(sample.seconds);
    const { work, sequences, context, tokens } = sample;
    const bytes = plan.tensors.reduce((sum, tensor) => sum + bytesOf(tensor), 0);
    return {
      model: basename(model).replace(/\.gguf$/, ""),
      architecture: plan.architecture,
      backend: backend.info.name,
      choice: "",
      isa: backend.info.isa,
      threads: backend.info.threads,
      kv: { type: plan.kv.type, bytesPerToken: 0 },
      weights: { bytes, token: bytes },
      limits,
      rows: [{ work, sequences, context, tokensPerSecond: tokens / took, shareOfLimit: floor / took }],
      profile: profiled ? profileRows(profiled, plan, bytesOf, limits) : [],
      rssMb: Deno.memoryUsage().rss / 1e6,
      loadMs,
    };
  } finally {
    backend.close();
  }
}

/** Returns the workload of a grey image, and a function that runs the tower on it once and returns the seconds. */
function measurement(size: ImageSize, parts: StepParts, backend: CpuBackend) {
  const { shape } = parts;
  const grey = { ...size, pixels: new Uint8Array(3 * size.width * size.height).fill(100) };
  const pictures = scaled(grey, shape.scaling, shape.patch * shape.merged);
  const { values, rows, columns } = patchesOf(pictures, shape);
  const grid = { rows: rows / shape.merged, columns: columns / shape.merged, patches: values };
  const sample = sampleOf(rows * columns, shape.merged ** 2, pictures.pictures.length);
  const run = async () => {
    const start = performance.now();
    for await (const step of stepsOf(grid, parts)) await backend.step(step);
    return (performance.now() - start) / 1000;
  };
  return { sample, run };
}

/** Returns a sample of `pictures` pictures with `patches` patches each. The tower merges `merged` patches into a row. */
function sampleOf(patches: number, merged: number, pictures: number): Sample {
  const pooledRows = patches / merged;
  const step: EvenStep = { sequences: 1, rows: patches, cached: 0, logitRows: 0, pooledRows };
  return {
    work: "image",
    sequences: pictures,
    context: patches,
    tokens: pictures * pooledRows,
    seconds: [],
    steps: new Array(pictures).fill(step),
  };
}
