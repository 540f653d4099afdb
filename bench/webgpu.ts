/**
 * Speed of the GPU's matrix-vector products against what the adapter copies (`deno task bench:webgpu`), and the sweep
 * that finds each format's tuning.
 */
import { parseArgs } from "@std/cli/parse_args.js";
import { dirname, fromFileUrl } from "@std/path";
import { GPU_FORMATS } from "../engine/backend/webgpu/kernels/formats/registry.ts";
import { DEFAULT_TUNING, matMulKernels } from "../engine/backend/webgpu/kernels/matmul.ts";
import { planeRowBytes } from "../engine/backend/webgpu/kernels/planes.ts";
import {
  mergeTunings,
  parseTunings,
  ROWS,
  SUBGROUPS,
  TUNING_FILE,
  tuningKey,
} from "../engine/backend/webgpu/kernels/tuning.ts";
import {
  type Arithmetic,
  ARITHMETICS,
  type Kernel,
  type KernelDevice,
  type Tuning,
} from "../engine/backend/webgpu/kernels/types.ts";
import type { TensorType } from "../engine/gguf/types.ts";
import { median } from "./samples.ts";

const HELP = `Measure the GPU's matrix-vector products.

Usage: deno task bench:webgpu [options]

  --types LIST    formats (default Q4_0,MXFP4,Q8_0,Q4_K,Q6_K,F16)
  --modes LIST    arithmetics (default f32,f16-activations,f16)
  --shape RxC     rows and columns of the matrix (default 4096x4096)
  --set MB        matrices are taken in turn out of so many megabytes, so that no cache holds them (default 256)
  --tune          sweep rows a subgroup, subgroups a workgroup and the way of adding up; keep the best in
                  ${TUNING_FILE}
  --json          one JSON object: {"adapter", "copy_gbps", "shape", "rows": [{"type", "mode", "tuning", "gbps",
                  "share", "spread"}, …]}
  --help          this text

GB/s are bytes of the matrix as it lies on the GPU, over the median time of five rounds; the share is of what the adapter
copies, read and written bytes both counted; the spread is slowest over fastest round.
Exit code: 0 done, 1 no adapter, 2 wrong usage.
`;

const ROUNDS = 5;
/** A round lasts about so long, so that the clock and the submit do not count. */
const ROUND_MS = 50;
const MB = 1e6;

interface Row {
  readonly type: TensorType;
  readonly mode: Arithmetic;
  readonly tuning: Tuning;
  readonly gbps: number;
  readonly share: number;
  readonly spread: number;
}

interface Options {
  readonly types: readonly TensorType[];
  readonly modes: readonly Arithmetic[];
  readonly rows: number;
  readonly columns: number;
  readonly bytes: number;
  readonly tune: boolean;
  readonly json: boolean;
}

const say = (text: string) => Deno.stdout.writeSync(new TextEncoder().encode(`${text}\n`));
const complain = (text: string) => Deno.stderr.writeSync(new TextEncoder().encode(`${text}\n`));

/** The options, or what is wrong with them. */
function options(args: string[]): Options | string {
  const flags = parseArgs(args, {
    string: ["types", "modes", "shape", "set"],
    boolean: ["tune", "json"],
    default: {
      types: "Q4_0,MXFP4,Q8_0,Q4_K,Q6_K,F16",
      modes: ARITHMETICS.join(","),
      shape: "4096x4096",
      set: "256",
    },
  });
  const types = String(flags.types).split(",");
  const modes = String(flags.modes).split(",");
  const shape = /^(\d{1,6})x(\d{1,6})$/.exec(String(flags.shape));
  const set = Number(flags.set);
  const type = types.find((t) => !Object.hasOwn(GPU_FORMATS, t));
  if (type !== undefined) return `--types: "${type}"; allowed are ${Object.keys(GPU_FORMATS).join(", ")}`;
  const mode = modes.find((m) => !(ARITHMETICS as readonly string[]).includes(m));
  if (mode !== undefined) return `--modes: "${mode}"; allowed are ${ARITHMETICS.join(", ")}`;
  const [rows, columns] = shape ? [Number(shape[1]), Number(shape[2])] : [0, 0];
  if (rows < 1 || columns < 256 || columns % 256 > 0) {
    return `--shape: "${flags.shape}"; allowed is RxC, such as 4096x4096, with C a multiple of 256`;
  }
  if (!(set >= 1 && set <= 1e5)) return `--set: "${flags.set}"; allowed are megabytes from 1 to 100000`;
  const { tune, json } = flags;
  return {
    types: types as TensorType[],
    modes: modes as Arithmetic[],
    rows,
    columns,
    bytes: set * MB,
    tune,
    json,
  };
}

/** Runs kernels by turns over copies of a matrix. */
class Bench {
  constructor(readonly device: GPUDevice, readonly kernels: KernelDevice, readonly adapter: string) {}

  static async open(): Promise<Bench | undefined> {
    const adapter = await globalThis.navigator.gpu?.requestAdapter({ powerPreference: "high-performance" });
    if (!adapter) return undefined;
    const f16 = adapter.features.has("shader-f16");
    const { maxBufferSize, maxStorageBufferBindingSize } = adapter.limits;
    const requiredLimits = { maxBufferSize, maxStorageBufferBindingSize };
    // Deno does not list "subgroups", and gives it where the driver has it.
    for (const subgroups of [true, false]) {
      const names = [...(f16 ? ["shader-f16"] : []), ...(subgroups ? ["subgroups"] : [])];
      const requiredFeatures = names as GPUFeatureName[];
      const device = await adapter.requestDevice({ requiredFeatures, requiredLimits }).catch(() => undefined);
      if (!device) continue;
      const subgroupSize = subgroups ? await measureSubgroup(device) : 0;
      return new Bench(
        device,
        { f16, subgroups, subgroupSize },
        adapter.info.description || adapter.info.vendor,
      );
    }
    return undefined;
  }

  /** GB/s of `bytes` a repetition, and slowest over fastest round. */
  async time(bytes: number, record: (encoder: GPUCommandEncoder, turn: number) => void) {
    const run = async (count: number) => {
      const encoder = this.device.createCommandEncoder();
      for (let turn = 0; turn < count; turn++) record(encoder, turn);
      const start = performance.now();
      this.device.queue.submit([encoder.finish()]);
      await this.device.queue.onSubmittedWorkDone();
      return (performance.now() - start) / count;
    };
    await run(1);
    const count = Math.max(1, Math.min(2000, Math.round(ROUND_MS / await run(1))));
    // What a submit costs by itself is no part of a repetition.
    const times: number[] = [];
    for (let i = 0; i < ROUNDS; i++) times.push(await run(count));
    return { gbps: bytes / median(times) / 1e6, spread: Math.max(...times) / Math.min(...times) };
  }

  async copy(bytes: number): Promise<number> {
    const size = 4 * Math.floor(Math.min(bytes / 2, this.device.limits.maxBufferSize) / 4);
    const usage = GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
    const [from, to] = [0, 1].map(() => this.device.createBuffer({ size, usage }));
    const { gbps } = await this.time(2 * size, (e) => e.copyBufferToBuffer(from, 0, to, 0, size));
    from.destroy();
    to.destroy();
    return gbps;
  }

  /** Planes of as many matrices as `bytes` hold, with x, y and what else a product binds. */
  matrices(type: TensorType, { rows, columns, bytes }: Options) {
    const sizes = planeRowBytes(type, columns).map((n) => n * rows);
    const weight = sizes.reduce((a, b) => a + b, 0);
    const buffer = (size: number, usage: number = GPUBufferUsage.STORAGE) =>
      this.device.createBuffer({ size, usage: usage | GPUBufferUsage.COPY_DST });
    const codes = crypto.getRandomValues(new Uint8Array(65536));
    const copies = Array.from({ length: Math.max(1, Math.ceil(bytes / weight)) }, () =>
      sizes.map((size) => {
        const plane = buffer(size);
        for (let at = 0; at < size; at += codes.length) {
          this.device.queue.writeBuffer(plane, at, codes, 0, Math.min(codes.length, size - at));
        }
        return plane;
      }));
    const words = (values: number[]) => {
      const uniform = buffer(32, GPUBufferUsage.UNIFORM);
      this.device.queue.writeBuffer(uniform, 0, new Uint32Array(values));
      return uniform;
    };
    const shared = [
      words([columns, rows, columns, rows, 0, 0, 0, 0]),
      words([1, 0, 0, 0]),
      buffer(4 * columns),
      buffer(4 * rows),
    ];
    const destroy = () => [...shared, ...copies.flat()].forEach((b) => b.destroy());
    return { weight, shared, copies, destroy };
  }

  async product(kernel: Kernel, rows: number, matrices: ReturnType<Bench["matrices"]>) {
    const module = this.device.createShaderModule({ code: kernel.code });
    const { entryPoint } = kernel;
    const constants = { ...kernel.constants };
    const pipeline = await this.device.createComputePipelineAsync({
      layout: "auto",
      compute: { module, entryPoint, constants },
    });
    const groups = matrices.copies.map((planes) =>
      this.device.createBindGroup({
        layout: pipeline.getBindGroupLayout(0),
        entries: [...matrices.shared, ...planes].map((buffer, binding) => ({
          binding,
          resource: { buffer },
        })),
      })
    );
    return await this.time(matrices.weight, (encoder, turn) => {
      const pass = encoder.beginComputePass();
      pass.setPipeline(pipeline);
      pass.setBindGroup(0, groups[turn % groups.length]);
      pass.dispatchWorkgroups(...kernel.workgroups(rows, 1));
      pass.end();
    });
  }
}

async function measureSubgroup(device: GPUDevice): Promise<number> {
  const code = `@group(0) @binding(0) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(subgroup_size) size: u32) { y[0] = size; }`;
  const { STORAGE, COPY_SRC, COPY_DST, MAP_READ } = GPUBufferUsage;
  const buffer = device.createBuffer({ size: 4, usage: STORAGE | COPY_SRC });
  const back = device.createBuffer({ size: 4, usage: COPY_DST | MAP_READ });
  const pipeline = device.createComputePipeline({
    layout: "auto",
    compute: { module: device.createShaderModule({ code }) },
  });
  const encoder = device.createCommandEncoder();
  const pass = encoder.beginComputePass();
  pass.setPipeline(pipeline);
  const entries = [{ binding: 0, resource: { buffer } }];
  pass.setBindGroup(0, device.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries }));
  pass.dispatchWorkgroups(1);
  pass.end();
  encoder.copyBufferToBuffer(buffer, 0, back, 0, 4);
  device.queue.submit([encoder.finish()]);
  await back.mapAsync(GPUMapMode.READ);
  return new Uint32Array(back.getMappedRange())[0];
}

function candidates(tune: boolean, kept: Tuning | undefined, device: KernelDevice): Tuning[] {
  if (!tune) return [kept ?? DEFAULT_TUNING];
  const ways: Tuning["reduce"][] = device.subgroups ? ["subgroup", "workgroup"] : ["workgroup"];
  return ways.flatMap((reduce) =>
    ROWS.flatMap((rows) => SUBGROUPS.map((subgroups): Tuning => ({ rows, subgroups, reduce })))
  );
}

async function main(args: string[]): Promise<number> {
  if (args.includes("--help")) {
    say(HELP);
    return 0;
  }
  const chosen = options(args);
  if (typeof chosen === "string") {
    complain(`Wrong usage: ${chosen}\n\n${HELP}`);
    return 2;
  }
  const bench = await Bench.open();
  if (!bench) {
    complain("Cannot measure: no WebGPU adapter was found; install a Vulkan or Metal driver");
    return 1;
  }
  const file = fromFileUrl(new URL(`../${TUNING_FILE}`, import.meta.url));
  const kept = await Deno.readTextFile(file).catch(() => "");
  const tunings = parseTunings(kept, bench.adapter);
  const copy = await bench.copy(chosen.bytes);
  if (!chosen.json) {
    say(`${bench.adapter}: copies ${copy.toFixed(1)} GB/s; ${chosen.rows} x ${chosen.columns}`);
  }
  const best: Row[] = [];
  for (const type of chosen.types) {
    const matrices = bench.matrices(type, chosen);
    for (const mode of chosen.modes.filter((m) => m === "f32" || bench.kernels.f16)) {
      const rows: Row[] = [];
      for (const tuning of candidates(chosen.tune, tunings.get(tuningKey(type, mode)), bench.kernels)) {
        const spec = {
          type,
          arithmetic: mode,
          columns: chosen.columns,
          epilogue: "store",
          bias: false,
        } as const;
        const [kernel] = matMulKernels(spec, bench.kernels, tuning);
        const { gbps, spread } = await bench.product(kernel, chosen.rows, matrices);
        rows.push({ type, mode, tuning, gbps, share: gbps / copy, spread });
      }
      best.push(rows.reduce((a, b) => b.gbps > a.gbps ? b : a));
      if (!chosen.json) say(line(best[best.length - 1]));
    }
    matrices.destroy();
  }
  if (chosen.tune) {
    await Deno.mkdir(dirname(file), { recursive: true });
    const found = new Map(best.map(({ type, mode, tuning }) => [tuningKey(type, mode), tuning]));
    await Deno.writeTextFile(file, mergeTunings(kept, bench.adapter, found));
  }
  if (chosen.json) {
    const shape = [chosen.rows, chosen.columns];
    say(JSON.stringify({ adapter: bench.adapter, copy_gbps: copy, shape, rows: best }));
  }
  return 0;
}

function line({ type, mode, tuning, gbps, share, spread }: Row): string {
  const how = `${tuning.rows} rows, ${tuning.subgroups} subgroups, by ${tuning.reduce}`;
  const speed = `${gbps.toFixed(2).padStart(8)} GB/s ${(100 * share).toFixed(0).padStart(4)} %`;
  return `${type.padEnd(7)} ${mode.padEnd(16)} ${speed}  (spread ${spread.toFixed(2)}; ${how})`;
}

if (import.meta.main) Deno.exit(await main(Deno.args));
