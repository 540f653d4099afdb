/** Steps that return one row per sequence instead of candidates. */
import { assert, assertEquals, assertRejects, assertThrows } from "@std/assert";
import { greedyRequest, type StepInput } from "../../engine/backend/backend.ts";
import { lower } from "../../engine/backend/webgpu/lowering.ts";
import { candidates } from "../../engine/plan/ops/candidates.ts";
import { pool, type Pooling, POOLINGS } from "../../engine/plan/ops/pool.ts";
import { returnPooled } from "../../engine/plan/ops/return_pooled.ts";
import { rmsNorm } from "../../engine/plan/ops/rms_norm.ts";
import { printPlan } from "../../engine/plan/print.ts";
import { instructionSets, kernelBackend, KernelModel, shuffledBlocks } from "../../testing/kernel_model.ts";
import {
  distance,
  type Ending,
  exactRows,
  LAYERS as MIXED,
  mixedFile,
  mixedPlan,
  mixedPlanOf,
  prompt,
  VOCABULARY,
} from "../../testing/mixed_model.ts";
import { wholeTables } from "../../engine/plan/plan.ts";

const EPSILON = 2 ** -20;
/** One layer with a window, one without. Rounding errors of more layers could not be compared. */
const LAYERS = MIXED.slice(0, 2);
const { bytes, values } = mixedFile(LAYERS);
/** Compile options of steps without rows of logits. */
const SIZE = { kvBlocks: 40, maxRows: 256, maxLogitRows: 0 };

const NORM = { name: "output_norm", eps: EPSILON };
const pooled = (way: Pooling): Ending => (b, x) => returnPooled(b, pool(b, x, way, NORM));
const open = (way: Pooling, isa?: string, threads = 2) =>
  KernelModel.loadAs(mixedPlan(LAYERS, pooled(way)), bytes, SIZE, { isa, threads });

const PLAN = await mixedPlanOf(LAYERS);
const tables = (first: number) => wholeTables(PLAN, shuffledBlocks(first, 8));

/** A step of whole sequences that pools some of the sequences. */
function stepOf(texts: readonly (readonly number[])[], pools: readonly number[]): StepInput {
  let start = 0;
  const sequences = texts.map((tokens, i) => {
    start += tokens.length;
    return { start: start - tokens.length, length: tokens.length, cached: 0, ...tables(8 * i) };
  });
  return { tokens: Int32Array.from(texts.flat()), sequences, logits: [], pools };
}

const REFERENCE: Readonly<Record<Pooling, (rows: Float64Array[]) => Float64Array>> = {
  mean: (rows) => rows[0].map((_, i) => rows.reduce((sum, row) => sum + row[i], 0) / rows.length),
  cls: (rows) => rows[0],
  last: (rows) => rows.at(-1)!,
};

for (const way of POOLINGS) {
  Deno.test(`pool: ${way} matches float64 on every instruction set and is the same in any batch`, async () => {
    const texts = [prompt(1, "one"), prompt(37, "some"), prompt(150, "many"), prompt(33, "unwanted")];
    const exact = texts.map((tokens) => REFERENCE[way](exactRows(values, tokens, LAYERS)));
    for (const isa of instructionSets()) {
      using model = await open(way, isa);
      const together = await model.backend.step(stepOf(texts, [2, 0, 1]));
      assertEquals(together.rows, []);
      for (const [i, of] of [2, 0, 1].entries()) {
        const found = together.pooled![i];
        const error = distance(found, exact[of]);
        assert(found.length === exact[of].length && error < 1e-4, `${isa}, text ${of}: ${error}`);
        const alone = await model.backend.step(stepOf([texts[of]], [0]));
        assertEquals(alone.pooled, [found]);
      }
    }
  });
}

Deno.test("pool: the last row is the same for every chunking; other ways need all rows in one step", async () => {
  const tokens = prompt(90, "cut");
  const part = (from: number, to: number, pools?: number[]): StepInput => ({
    tokens: Int32Array.from(tokens.slice(from, to)),
    sequences: [{ start: 0, length: to - from, cached: from, ...tables(0) }],
    logits: [],
    pools,
  });
  using last = await open("last");
  const whole = await last.backend.step(part(0, 90, [0]));
  assertEquals((await last.backend.step(part(0, 33))).pooled, undefined);
  assertEquals((await last.backend.step(part(33, 90, [0]))).pooled, whole.pooled);
  for (const way of ["mean", "cls"] as const) {
    using model = await open(way);
    await model.backend.step(part(0, 33));
    await assertRejects(
      () => model.backend.step(part(33, 90, [0])),
      Error,
      "Sequence 0 must begin in the step that pools it",
    );
  }
});

Deno.test("pool: results that the plan lacks are refused", async () => {
  using model = await open("last");
  const step = stepOf([prompt(5, "five")], [0]);
  await assertRejects(
    () => model.backend.step({ ...step, pools: [1] }),
    Error,
    "A pooled row of sequence 1, which is out of range 0..1",
  );
  const many = { ...step, pools: [0, 0] };
  await assertRejects(() => model.backend.step(many), Error, "2 of 1 sequences cannot be pooled");
  using other = await KernelModel.loadAs(mixedPlan(LAYERS), bytes, { ...SIZE, maxLogitRows: 1 });
  await assertRejects(() => other.backend.step(step), Error, "A pooled row needs a plan that pools");
  const plan = await mixedPlanOf([{ ...LAYERS[1], window: 0 }], pooled("mean"));
  assertThrows(
    () => lower(plan),
    Error,
    'Cannot run this model on the GPU: it has no "pool"; use backend: "cpu"',
  );
});

Deno.test("pool: a plan may have pooled rows, logits or both", async () => {
  const text = printPlan(await mixedPlanOf(LAYERS, pooled("mean")));
  assert(
    text.includes("; mean)") && text.includes("return_pooled(pooled#") && !text.includes("candidates") &&
      !text.includes("logits]"),
    text,
  );
  const both: Ending = (b, x) => {
    candidates(b, rmsNorm(b, x, "output_norm", EPSILON, "logits"), VOCABULARY);
    pooled("last")(b, x);
  };
  const size = { ...SIZE, maxLogitRows: 2 };
  using model = await KernelModel.loadAs(mixedPlan(LAYERS, both), bytes, size);
  using alone = await open("last");
  using logits = await KernelModel.loadAs(mixedPlan(LAYERS), bytes, size);
  const tokens = prompt(40, "both");
  const run = { tokens, blockTable: shuffledBlocks(0, 8), wanted: [{ candidates: 3 }] };
  const [[wanted]] = await logits.step([run]);
  const [[found]] = await model.step([run]);
  assertEquals(found, wanted);
  const { pooled: row } = await alone.backend.step(stepOf([tokens], [0]));
  assertEquals((await model.backend.step(stepOf([tokens], [0]))).pooled, row);
});

Deno.test("pool: a step skips ops of unwanted pooled rows and logits", async () => {
  const both: Ending = (b, x) => {
    candidates(b, rmsNorm(b, x, "output_norm", EPSILON, "logits"), VOCABULARY);
    pooled("last")(b, x);
  };
  const plan = await mixedPlanOf(LAYERS, both);
  const backend = await kernelBackend({ threads: 2 });
  using model = await KernelModel.loadAs(
    mixedPlan(LAYERS, both),
    bytes,
    { ...SIZE, maxLogitRows: 1 },
    backend,
  );
  const tokens = prompt(20, "idle");
  const ran = async (step: StepInput) => {
    await backend.profile(plan);
    await model.backend.step(step);
    const times = await backend.profile(plan);
    return new Set(plan.ops.map(({ op }) => op).filter((_, i) => times[i] > 0));
  };
  const text = await ran(stepOf([tokens], [0]));
  assertEquals([text.has("pool"), text.has("return_pooled"), text.has("candidates")], [true, true, false]);
  const answer = await ran({ ...stepOf([tokens], []), logits: [greedyRequest(19)] });
  assertEquals([answer.has("pool"), answer.has("return_pooled"), answer.has("candidates")], [
    false,
    false,
    true,
  ]);
});
