import { assert, assertEquals } from "@std/assert";
import type { ActivationPrecision, KvType } from "../../engine/backend/backend.ts";
import { type CpuModelOptions, instructionSets } from "../../testing/kernel_model.ts";
import {
  CPU_FORMATS,
  DECODERS,
  type Distance,
  FORMATS,
  PARITY_FILES,
  type ParityFile,
} from "./parity_cases.ts";
import {
  compare,
  describeDistances,
  judge,
  type Judged,
  maxOfTopFive,
  wrongChoices,
} from "./parity_judge.ts";
import { fullTier, isFullTier } from "../../testing/tier.ts";

/*
 * Compares log-probabilities with exact ones along the exact greedy tokens. Float formats must stay within an absolute
 * distance. Other formats round activations to 8 bits, so llama.cpp's distance is the limit.
 */

/** Largest distance among the five most probable tokens. */
const FLOAT_LIMITS: Readonly<Record<string, number>> = { F32: 0.01, F16: 0.01, BF16: 0.03 };
/** Limit as a multiple of llama.cpp's distance, over all cases of a format. */
const MEAN_LIMIT = 1.1;
const MAX_LIMIT = 1.25;
/** Lead of the exact choice from which compy must choose it too. */
const CLEAR_MARGIN = 0.3;

/**
 * Recurrent states make seeded hybrids about eight times as sensitive to rounding, and in mixtures rounding may select
 * another expert. There the choice must be exact only if it leads by more than twice llama.cpp's largest distance.
 */
const isHybrid = ({ options }: ParityFile) => options.architecture === "qwen35";
const isMixture = ({ options }: ParityFile) => options.architecture === "qwen3moe";
const isOther = ({ options }: ParityFile) => DECODERS.includes(options.architecture);
const DENSE = PARITY_FILES.filter((file) => !isHybrid(file) && !isMixture(file) && !isOther(file));
const HYBRIDS = PARITY_FILES.filter(isHybrid);
const MIXTURES = PARITY_FILES.filter(isMixture);

function assertFloats(format: string, judged: readonly Judged[]): void {
  const [max, limit] = [maxOfTopFive(judged), FLOAT_LIMITS[format]];
  assert(max <= limit, `${format}: the five most likely are up to ${max.toFixed(4)} off, allowed ${limit}`);
}

function assertNoWorseThanLlamaCpp(format: string, judged: readonly Judged[]): void {
  assertNear(format, compare(judged));
}

function assertNear(format: string, { ours, llamaCpp }: ReturnType<typeof compare>): void {
  const found = describeDistances(format, { ours, llamaCpp });
  assert(ours.mean <= MEAN_LIMIT * llamaCpp.mean, `${found}; allowed is ${MEAN_LIMIT} times its mean`);
  assert(ours.max <= MAX_LIMIT * llamaCpp.max, `${found}; allowed is ${MAX_LIMIT} times its maximum`);
}

function assertParity(format: string, judged: readonly Judged[]): void {
  assertEquals(wrongChoices(judged, () => CLEAR_MARGIN), []);
  if (format in FLOAT_LIMITS) assertFloats(format, judged);
  else assertNoWorseThanLlamaCpp(format, judged);
}

async function judgeAll(
  files: readonly ParityFile[],
  on: CpuModelOptions = {},
  activations?: ActivationPrecision,
): Promise<Judged[]> {
  const judged: Judged[] = [];
  for (const file of files) judged.push(...await judge(file, on, activations));
  return judged;
}

for (const format of [...FORMATS, ...CPU_FORMATS]) {
  fullTier.test(`parity: ${format} is at least as near to the exact answer as llama.cpp`, async () => {
    assertParity(format, await judgeAll(DENSE.filter((file) => file.format === format)));
  });
}

/** Limit as a multiple of the distance with 8-bit activations; the rest is the KV cache's rounding. */
const FINE_MEAN = 0.25;

for (const [i, isa] of instructionSets().entries()) {
  fullTier.test(`parity: activations in two planes are much nearer to the exact answer on ${isa}`, async () => {
    for (const format of i === 0 ? ["Q8_0", "Q4_0", "Q4_K"] : ["Q4_0"]) {
      const files = DENSE.filter((file) => file.format === format).slice(0, 1);
      const [fast, fine] = [await judgeAll(files, { isa }), await judgeAll(files, { isa }, "fine")]
        .map((judged) => compare(judged).ours);
      assert(fine.mean <= FINE_MEAN * fast.mean, `${format}: ${fine.mean} fine, ${fast.mean} fast`);
      assert(fine.max <= FLOAT_LIMITS.F16, `${format}: up to ${fine.max}`);
    }
  });
}

// With the best instruction set the second tier tests each format alone, on all models.
for (const isa of isFullTier ? instructionSets().slice(1) : instructionSets().slice(0, 1)) {
  Deno.test(`parity: every format on ${isa}, on one model each, is as near to the exact answer as llama.cpp`, async () => {
    const rest: Judged[] = [];
    for (const [i, format] of [...FORMATS, ...CPU_FORMATS].entries()) {
      const files = DENSE.filter((file) => file.format === format);
      const judged = await judgeAll([files[i % files.length]], { isa });
      if (format in FLOAT_LIMITS) assertParity(format, judged);
      else rest.push(...judged);
    }
    assertParity("the other formats", rest);
  });
}

fullTier.test("parity: hybrids in every format are at least as near to the exact answer as llama.cpp", async () => {
  for (const format of FORMATS) {
    const judged = await judgeAll(HYBRIDS.filter((file) => file.format === format));
    assertEquals(wrongChoices(judged, (one) => 2 * one.llamaCpp.max), []);
    if (format in FLOAT_LIMITS) assertFloats(format, judged);
    else assertNoWorseThanLlamaCpp(format, judged);
  }
});

/** One row with another expert determines a format's largest distance, so only the formats' means are compared. */
fullTier.test("parity: mixtures in every format are at least as near to the exact answer as llama.cpp", async () => {
  const all: Judged[] = [];
  for (const format of FORMATS) {
    const judged = await judgeAll(MIXTURES.filter((file) => file.format === format));
    const { ours, llamaCpp } = compare(judged);
    if (format in FLOAT_LIMITS) assertFloats(format, judged);
    else assert(ours.mean <= MEAN_LIMIT * llamaCpp.mean, describeDistances(format, { ours, llamaCpp }));
    all.push(...judged);
  }
  assertNoWorseThanLlamaCpp("all formats", all);
  const { llamaCpp } = compare(all);
  assertEquals(wrongChoices(all, () => 2 * llamaCpp.max), []);
});

type Distances = Readonly<Record<string, readonly [dense: Distance, hybrid: Distance]>>;

/**
 * llama.cpp's distances from the exact answers with its own KV cache in Q8_0, for dense models and hybrids.
 * tools/parity/README.md describes the measurement.
 */
const LLAMA_CPP_8_BITS: Distances = {
  F32: [{ mean: 0.0105, max: 0.0846 }, { mean: 0.0058, max: 0.05 }],
  F16: [{ mean: 0.0103, max: 0.0649 }, { mean: 0.0083, max: 0.0498 }],
  Q8_0: [{ mean: 0.0202, max: 0.1231 }, { mean: 0.1433, max: 1.6746 }],
  Q4_K: [{ mean: 0.027, max: 0.198 }, { mean: 0.0532, max: 0.3022 }],
};

/** The same with its own KV cache in Q4_0. */
const LLAMA_CPP_4_BITS: Distances = {
  F32: [{ mean: 0.1494, max: 0.7991 }, { mean: 0.077, max: 0.7493 }],
  Q8_0: [{ mean: 0.1624, max: 0.8576 }, { mean: 0.1754, max: 1.7619 }],
};

/** Returns the answers in a format with a cache of codes, and compares them with llama.cpp's. */
async function judgeCache(kvType: KvType, format: string, kind: 0 | 1, isa?: string): Promise<Judged[]> {
  const files = [DENSE, HYBRIDS][kind].filter((file) => file.format === format);
  const judged = await judgeAll(files, { isa, kvType });
  const llamaCpp = (kvType === "q8_0" ? LLAMA_CPP_8_BITS : LLAMA_CPP_4_BITS)[format][kind];
  assertNear(`${format}, cache in ${kvType}`, { ours: compare(judged).ours, llamaCpp });
  return judged;
}

async function assertEightBitCache(format: string, kind: 0 | 1, isa?: string): Promise<void> {
  const judged = await judgeCache("q8_0", format, kind, isa);
  if (kind === 0) assertEquals(wrongChoices(judged, () => CLEAR_MARGIN), []);
}

fullTier.test("parity: an 8-bit KV cache is at least as near to the exact answer as llama.cpp's", async () => {
  for (const format of Object.keys(LLAMA_CPP_8_BITS)) {
    for (const kind of [0, 1] as const) await assertEightBitCache(format, kind);
  }
});

fullTier.test("parity: a KV cache in q4_0 is at least as near to the exact answer as llama.cpp's", async () => {
  for (const format of Object.keys(LLAMA_CPP_4_BITS)) {
    for (const kind of [0, 1] as const) {
      const { ours } = compare(await judgeCache("q4_0", format, kind));
      assert(ours.mean <= LLAMA_CPP_4_BITS[format][kind].mean, `${format}: mean ${ours.mean}`);
    }
  }
});

for (const isa of instructionSets().slice(1)) {
  fullTier.test(`parity: an 8-bit KV cache with F32 weights on ${isa} is as near as llama.cpp's`, async () => {
    await assertEightBitCache("F32", 0, isa);
  });
}

for (const isa of instructionSets().slice(1)) {
  fullTier.test(`parity: float hybrids and mixtures on ${isa} are near the exact answer`, async () => {
    for (const format of Object.keys(FLOAT_LIMITS)) {
      for (const files of [HYBRIDS, MIXTURES]) {
        const first = files.filter((file) => file.format === format).slice(0, 1);
        assertFloats(format, await judgeAll(first, { isa }));
      }
    }
  });
}
