/** Bytes and arithmetic of the GPU's kernels, counted over their text (`deno task bench:gpu-bytes`): no GPU is needed. */
import { parseArgs } from "@std/cli/parse_args.js";
import { buildPlan } from "../engine/architectures/registry.ts";
import { type Arithmetic, ARITHMETICS } from "../engine/backend/backend.ts";
import { GPU_TYPES, type GpuType } from "../engine/backend/webgpu/kernels/formats/registry.ts";
import { openGguf } from "../engine/gguf/reader.ts";
import type { Plan } from "../engine/plan/plan.ts";
import { inType, planOf, SHAPES } from "./gpu_shapes.ts";
import { type CountedStep, countStep, type TrafficRow } from "./gpu_traffic.ts";
import { asTable } from "../bench/table.ts";

const HELP = `Count what the GPU's kernels load and compute in a step, over their text: no GPU is needed.

Usage: deno task bench:gpu-bytes [options]

  --model FILE        count this model; by default the shapes of Qwen3-0.6B (Q8_0) and Qwen3-4B (Q4_0, MXFP4, F16)
  --type TYPE         count the shape of Qwen3-4B in this format; may be repeated
  --arithmetic NAME   f32 (default), f16-activations, f16 or int16-activations
  --context N         tokens of each sequence after the step (default 4096)
  --json              one JSON object: {"context", "arithmetic", "steps": [{"model", "step", "rows": [{"op", "dispatches",
                      "loaded", "stored", "floor", "floats", "integers"}, …]}, …]}
  --help              this text

Loaded are the bytes that lanes ask for; what all lanes of a workgroup ask for at one place counts once. A cache may give
some of them, so a GPU's memory gives at most these. The floor is each byte once: weights, inputs and outputs of
products, keys, values, queries and outputs of attention.
Exit code: 0 done, 2 wrong usage.
`;

interface Counted {
  readonly model: string;
  readonly step: string;
  readonly rows: readonly TrafficRow[];
}

const say = (text: string) => Deno.stdout.writeSync(new TextEncoder().encode(text));

function wrong(message: string): never {
  Deno.stderr.writeSync(new TextEncoder().encode(`${message}\n\n${HELP}`));
  Deno.exit(2);
}

/** The steps that are counted: a token of one sequence and of sixteen, and a long prompt's last chunk. */
function stepsOf(context: number): readonly [string, CountedStep][] {
  const chunk = Math.min(512, context);
  return [
    ["1 sequence, 1 row", { sequences: 1, rows: 1, cached: context - 1 }],
    ["16 sequences, 1 row each", { sequences: 16, rows: 1, cached: context - 1 }],
    [`1 sequence, ${chunk} rows`, { sequences: 1, rows: chunk, cached: context - chunk }],
  ];
}

async function plansOf(path: string | undefined, types: readonly GpuType[]): Promise<[string, () => Plan][]> {
  if (path === undefined) {
    const shapes = types.length === 0 ? SHAPES : types.map(inType);
    return shapes.map((shape) => [`${shape.name} ${shape.type}`, () => planOf(shape)]);
  }
  const file = await openGguf(path);
  return [[path, () => buildPlan(file)]];
}

function asText({ model, step, rows }: Counted): string {
  const mega = (bytes: number) => (bytes / 1e6).toFixed(bytes < 1e7 ? 2 : 0);
  const cells = rows.map((row) => {
    const moved = row.loaded + row.stored;
    return [
      row.op,
      `${row.dispatches}`,
      mega(row.loaded),
      mega(row.stored),
      row.floor === undefined ? "" : mega(row.floor),
      row.floor === undefined ? "" : (moved / row.floor).toFixed(2),
      mega(row.floats),
      mega(row.integers),
    ];
  });
  const head = [
    "op",
    "dispatches",
    "loaded MB",
    "stored MB",
    "floor MB",
    "of floor",
    "float ops M",
    "integer ops M",
  ];
  return `${model}, ${step}\n${asTable([head, ...cells])}\n`;
}

const args = parseArgs(Deno.args, {
  string: ["model", "type", "arithmetic", "context"],
  collect: ["type"],
  boolean: ["json", "help"],
  default: { arithmetic: "f32", context: "4096" },
  unknown: (name: string) => wrong(`Unknown option ${name}`),
});
if (args.help) {
  say(HELP);
  Deno.exit(0);
}
const arithmetic = args.arithmetic as Arithmetic;
if (!ARITHMETICS.includes(arithmetic)) {
  wrong(`--arithmetic must be one of ${ARITHMETICS.join(", ")} (got ${args.arithmetic})`);
}
const types = (args.type as string[]).map((name) => {
  return GPU_TYPES.find((type) => type === name) ??
    wrong(`--type must be one of ${GPU_TYPES.join(", ")} (got ${name})`);
});
if (types.length > 0 && args.model !== undefined) wrong("--type is for shapes: leave out --model");
const context = Number(args.context);
if (!Number.isInteger(context) || context < 1) wrong(`--context must be at least 1 (got ${args.context})`);

const steps: Counted[] = [];
for (const [model, plan] of await plansOf(args.model, types)) {
  for (const [step, size] of stepsOf(context)) {
    const counted = {
      model,
      step,
      rows: await countStep(plan(), size, { f16: true, dot4: true }, arithmetic),
    };
    steps.push(counted);
    if (!args.json) say(asText(counted));
  }
}
if (args.json) say(JSON.stringify({ context, arithmetic, steps }, null, 2) + "\n");
