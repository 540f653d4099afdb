/**
 * Compares the GPU's matrix-vector products with the speed of copies (`deno task bench:webgpu`), and searches each
 * format's best tuning.
 */
import { dirname, fromFileUrl } from "@std/path";
import { GPU_TYPES } from "../engine/backend/webgpu/kernels/formats/registry.ts";
import { defaultTuning, missingFor } from "../engine/backend/webgpu/kernels/matmul.ts";
import { mergeTunings, TUNING_FILE, tuningKey } from "../engine/backend/webgpu/tuning/tuning.ts";
import { type Arithmetic, ARITHMETICS } from "../engine/backend/backend.ts";
import type { Tuning } from "../engine/backend/webgpu/kernels/types.ts";
import { readTunings } from "../engine/backend/webgpu/tuning/tuning_file.ts";
import type { TensorType } from "../engine/gguf/types.ts";
import { command, Options, print, say as tell, UsageError } from "../bench/shell.ts";
import { GpuProducts } from "./gpu_products.ts";

/** Weight formats that are measured by default. */
const TYPES = "Q4_0,MXFP4,Q8_0,Q4_K,Q6_K,F16";

const HELP = `Measure the GPU's matrix-vector products.

Usage: deno task bench:webgpu [options]

  --types LIST    formats (default ${TYPES})
  --modes LIST    arithmetics (default ${ARITHMETICS.join(",")})
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

interface Asked {
  readonly types: readonly TensorType[];
  readonly modes: readonly Arithmetic[];
  readonly rows: number;
  readonly columns: number;
  readonly bytes: number;
  readonly tune: boolean;
  readonly json: boolean;
}

const say = (text: string) => print(`${text}\n`);

/** Returns the words of a list that commas separate. Throws UsageError for a word that is not among `known`. */
function wordsOf<T extends string>(name: string, text: string, known: readonly T[]): T[] {
  return text.split(",").map((word) => {
    const found = known.find((one) => one === word);
    if (found !== undefined) return found;
    throw new UsageError(`--${name} must be among ${known.join(", ")} (got "${word}")`);
  });
}

function readOptions(): Asked {
  const options = new Options(Deno.args, ["types", "modes", "shape", "set"], ["tune"]);
  const shape = options.text("shape") ?? "4096x4096";
  const [, rows, columns] = (/^(\d{1,6})x(\d{1,6})$/.exec(shape) ?? [0, 0, 0]).map(Number);
  if (rows < 1 || columns < 256 || columns % 256 > 0) {
    throw new UsageError(`--shape must be RxC, such as 4096x4096, with C a multiple of 256 (got "${shape}")`);
  }
  return {
    types: wordsOf("types", options.text("types") ?? TYPES, GPU_TYPES),
    modes: wordsOf("modes", options.text("modes") ?? ARITHMETICS.join(","), ARITHMETICS),
    rows,
    columns,
    bytes: options.count("set", 1e5, 256) * MB,
    tune: options.switched("tune"),
    json: options.json,
  };
}

await command("bench:webgpu", HELP, async () => await measure(readOptions(), await GpuProducts.open()));

async function measure(chosen: Asked, products: GpuProducts): Promise<void> {
  const { name, kernels } = products.gpu;
  const kept = await readTunings(products.gpu, tell);
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

/** Stores an adapter's results in the tuning file, with those of other adapters. */
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
