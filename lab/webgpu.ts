/**
 * Compares the GPU's matrix-vector products with the speed of copies (`deno task bench:webgpu`), and searches each
 * format's best tuning.
 */
import { parseArgs } from "@std/cli/parse_args.js";
import { dirname, fromFileUrl } from "@std/path";
import { GpuError } from "../engine/backend/webgpu/errors.ts";
import { GPU_FORMATS } from "../engine/backend/webgpu/kernels/formats/registry.ts";
import { defaultTuning, missingFor } from "../engine/backend/webgpu/kernels/matmul.ts";
import { mergeTunings, TUNING_FILE, tuningKey } from "../engine/backend/webgpu/tuning/tuning.ts";
import { type Arithmetic, ARITHMETICS } from "../engine/backend/backend.ts";
import type { Tuning } from "../engine/backend/webgpu/kernels/types.ts";
import { readTunings } from "../engine/backend/webgpu/tuning/tuning_file.ts";
import type { TensorType } from "../engine/gguf/types.ts";
import { GpuProducts } from "./gpu_products.ts";

const HELP = `Measure the GPU's matrix-vector products.

Usage: deno task bench:webgpu [options]

  --types LIST    formats (default Q4_0,MXFP4,Q8_0,Q4_K,Q6_K,F16)
  --modes LIST    arithmetics (default f32,f16)
  --shape RxC     rows and columns of the matrix (default 4096x4096)
  --set MB        use matrices of so many megabytes in turn, more than caches hold (default 256)
  --tune          sweep matrix rows per eight lanes and lanes per workgroup; store the best in
                  ${TUNING_FILE}
  --json          one JSON object: {"adapter", "copy_gbps", "shape", "rows": [{"type", "mode", "tuning", "gbps",
                  "share", "spread"}, …]}
  --help          this text

GB/s are bytes of the matrix on the GPU over the median time of five rounds, by the GPU's clock where it has one.
The share compares with the adapter's copies, bytes read and written both counted. The spread is slowest over
fastest round.
Exit code: 0 done, 1 no adapter, 2 wrong usage.
`;

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

/** Returns the options, or what is wrong with them. */
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
  if (type !== undefined) {
    return `--types must be among ${Object.keys(GPU_FORMATS).join(", ")} (got "${type}")`;
  }
  const mode = modes.find((m) => !(ARITHMETICS as readonly string[]).includes(m));
  if (mode !== undefined) return `--modes must be among ${ARITHMETICS.join(", ")} (got "${mode}")`;
  const [rows, columns] = shape ? [Number(shape[1]), Number(shape[2])] : [0, 0];
  if (rows < 1 || columns < 256 || columns % 256 > 0) {
    return `--shape must be RxC, such as 4096x4096, with C a multiple of 256 (got "${flags.shape}")`;
  }
  if (!(set >= 1 && set <= 1e5)) return `--set must be megabytes from 1 to 100000 (got "${flags.set}")`;
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
  try {
    await measure(chosen, await GpuProducts.open());
    return 0;
  } catch (error) {
    if (!(error instanceof GpuError)) throw error;
    complain(error.message);
    return 1;
  }
}

async function measure(chosen: Options, products: GpuProducts): Promise<void> {
  const { name, kernels } = products.gpu;
  const kept = await readTunings(products.gpu, complain);
  const copy = await products.copy();
  if (!chosen.json) say(`${name}: copies ${copy.toFixed(1)} GB/s; ${chosen.rows} x ${chosen.columns}`);
  const best: Row[] = [];
  for (const type of chosen.types) {
    const matrices = products.matrices(type, chosen);
    for (const mode of chosen.modes.filter((m) => !missingFor(m, kernels))) {
      const known = kept.get(tuningKey(type, mode)) ??
        defaultTuning(chosen.rows, { type, epilogue: "store" });
      const rows: Row[] = [];
      for (const tuning of chosen.tune ? products.tunings() : [known]) {
        const speed = await products.measure(type, mode, matrices, tuning);
        rows.push({ type, mode, tuning, ...speed, share: speed.gbps / copy });
      }
      best.push(rows.reduce((a, b) => b.gbps > a.gbps ? b : a));
      if (!chosen.json) say(line(best[best.length - 1]));
    }
    products.destroy(matrices);
  }
  if (chosen.tune) await keep(name, best);
  const shape = [chosen.rows, chosen.columns];
  if (chosen.json) say(JSON.stringify({ adapter: name, copy_gbps: copy, shape, rows: best }));
}

/** Stores the results in the file, beside those of other adapters. */
async function keep(adapter: string, best: readonly Row[]): Promise<void> {
  const file = fromFileUrl(new URL(`../${TUNING_FILE}`, import.meta.url));
  const before = await Deno.readTextFile(file).catch(() => "");
  const found = new Map(best.map(({ type, mode, tuning }) => [tuningKey(type, mode), tuning]));
  await Deno.mkdir(dirname(file), { recursive: true });
  await Deno.writeTextFile(file, mergeTunings(before, adapter, found));
}

function line({ type, mode, tuning, gbps, share, spread }: Row): string {
  const how = `${tuning.rows} rows, ${tuning.lanes} lanes`;
  const speed = `${gbps.toFixed(2).padStart(8)} GB/s ${(100 * share).toFixed(0).padStart(4)} %`;
  return `${type.padEnd(7)} ${mode.padEnd(16)} ${speed}  (spread ${spread.toFixed(2)}; ${how})`;
}

if (import.meta.main) Deno.exit(await main(Deno.args));
