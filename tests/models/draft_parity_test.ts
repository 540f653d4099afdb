/** The draft layer on the kernels: against the exact pass, and bit-identical in every chunking and batch. */
import { assert, assertEquals } from "@std/assert";
import { buildPlan } from "../../engine/architectures/registry.ts";
import type { GgufFile } from "../../engine/gguf/types.ts";
import {
  ASSISTANT_MODELS,
  DFLASH_MODELS,
  DRAFT_MODELS,
  DRAFT_PROMPTS,
  DRAFT_TABLE_URL,
  type DraftModel,
  type DraftTable,
  EAGLE3_MODELS,
} from "./draft_cases.ts";
import {
  type CpuModelOptions,
  instructionSets,
  KernelModel,
  shuffledBlocks,
} from "../../testing/kernel_model.ts";
import { digest, type ExactStep, prompt, unpackStep } from "./parity_cases.ts";
import { loadWithDrafter } from "./drafter_files.ts";
import { synthesize } from "../../testing/synth/synth.ts";
import { everyNth, fullTier } from "../../testing/tier.ts";

const TABLE: DraftTable = JSON.parse(await Deno.readTextFile(DRAFT_TABLE_URL));
const SIZE = { kvBlocks: 64, maxRows: 512, maxLogitRows: 8 };
const BLOCKS = 12;

const plan = (file: GgufFile) => buildPlan(file, undefined, undefined, { drafts: true });
const open = async (
  { options, drafter }: DraftModel,
  cpu: CpuModelOptions = {},
  bytes = synthesize(options),
) => {
  return drafter
    ? (await loadWithDrafter(bytes, drafter.make(bytes), SIZE, { threads: 2, ...cpu })).model
    : await KernelModel.loadAs(plan, bytes, SIZE, { threads: 2, ...cpu });
};
/** Models with drafters in their own files, by kind. The first tier tests one of each kind. */
const DRAFTED = [EAGLE3_MODELS, ASSISTANT_MODELS, DFLASH_MODELS];
const ALL = [...DRAFT_MODELS, ...DRAFTED.flat()];
const MODELS = [
  ...everyNth(3, DRAFT_MODELS),
  ...DRAFTED.flatMap((models) => everyNth(models.length, models)),
];
const modelOf = (name: string) => ALL.find((model) => model.name === name)!;

/** Returns the tier that tests a model. Drafters in their own files are tested only in the full tier. */
const tierOf = (name: string) => modelOf(name).drafter ? fullTier : Deno;

/** Returns the number of entries that precede a draft's token, and the token's position. */
function placeOf(name: string, position: number, drafted: number) {
  return modelOf(name).drafter?.onePosition
    ? { cached: position - 1, position }
    : { cached: position + drafted };
}

/**
 * Returns compy's log-probabilities of the tokens in the exact steps, from consecutive drafts or from one pass with
 * mask tokens.
 */
async function drafted(
  name: string,
  model: KernelModel,
  tokens: readonly number[],
  steps: readonly ExactStep[],
  cut = 0,
) {
  const { tokens: vocabulary, mask } = modelOf(name).drafter ?? {};
  const blockTable = shuffledBlocks(0, BLOCKS);
  if (cut > 0) await model.step([{ tokens: tokens.slice(0, cut), blockTable }]);
  await model.step([{ tokens: tokens.slice(cut, -1), cached: cut, blockTable }]);
  if (mask !== undefined) {
    const block = [tokens.at(-1)!, ...steps.map(() => mask)];
    const wanted = steps.map(({ ids }) => ({ candidates: 1, probe: ids }));
    const [rows] = await model.draftBlocks([{
      tokens: block,
      cached: tokens.length - 1,
      blockTable,
      wanted,
    }]);
    return rows.map((row) => Array.from(row.probed, (logit) => logit - row.logSumExp));
  }
  const found: number[][] = [];
  let token = tokens.at(-1)!;
  for (const [i, { ids }] of steps.entries()) {
    const wanted = [{ candidates: 1, probe: ids }];
    const place = placeOf(name, tokens.length - 1, i);
    const [row] = await model.draft([{ token, ...place, from: tokens.length - 2 - cut, blockTable, wanted }]);
    found.push(Array.from(row.probed, (logit) => logit - row.logSumExp));
    token = vocabulary?.[ids[0]] ?? ids[0];
  }
  return found;
}

interface Distances {
  readonly max: number;
  readonly mean: number;
  /** Limit of the distance for the five most probable tokens. */
  readonly topFive: number;
}

async function distances(
  name: string,
  cpu: CpuModelOptions,
  bytes: Uint8Array<ArrayBuffer>,
): Promise<Distances> {
  using model = await open(modelOf(name), cpu, bytes);
  const all: number[] = [];
  const topFive: number[] = [];
  for (const [i, length] of DRAFT_PROMPTS.entries()) {
    const steps = TABLE[name].cases[i].map(unpackStep);
    const found = await drafted(name, model, prompt(length), steps);
    for (const [s, { logprobs }] of steps.entries()) {
      const off = logprobs.map((exact, k) => Math.abs(exact - found[s][k]));
      all.push(...off);
      topFive.push(...off.slice(0, 5));
    }
  }
  return {
    max: Math.max(...all),
    mean: all.reduce((a, b) => a + b) / all.length,
    topFive: Math.max(...topFive),
  };
}

/** Limits of distances. Float formats store keys and values in f16; block formats also round activations to 8 bits. */
const LIMITS: Readonly<Record<string, Partial<Distances>>> = {
  "F32": { topFive: 0.003 },
  "BF16": { topFive: 0.003 },
  "Q8_0": { mean: 0.04, max: 0.2 },
  "Q4_K": { mean: 0.01, max: 0.06 },
};

for (const { name, options } of MODELS) {
  Deno.test(`drafts: ${name} matches the exact pass`, async () => {
    const bytes = synthesize(options);
    assertEquals(await digest(bytes), TABLE[name].sha256, "another model: deno task parity:drafts");
    for (const isa of name === "qwen35-F32" ? instructionSets() : [undefined]) {
      const found = await distances(name, { isa }, bytes);
      for (const [which, limit] of Object.entries(LIMITS[options.types[0]]) as [keyof Distances, number][]) {
        assert(found[which] <= limit, `${isa}: ${which} is ${found[which]}, must be at most ${limit}`);
      }
    }
  });
}

for (const name of ["qwen35-Q8_0", "eagle3-qwen35-Q8_0", "assistant-gemma4-Q8_0", "dflash-qwen35-Q8_0"]) {
  tierOf(name).test(`drafts: ${name}'s are bit-identical for every chunking of the prompt`, async () => {
    const steps = TABLE[name].cases.at(-1)!.map(unpackStep);
    using model = await open(modelOf(name));
    const whole = await drafted(name, model, prompt(300), steps);
    for (const cut of [1, 31, 32, 200, 298]) {
      assertEquals(await drafted(name, model, prompt(300), steps, cut), whole, `cut after ${cut}`);
    }
    using alone = await open(modelOf(name), { threads: 1 });
    assertEquals(await drafted(name, alone, prompt(300), steps), whole);
  });
}

for (const name of ["qwen35-Q8_0", "eagle3-qwen35-Q8_0", "assistant-gemma4-Q8_0"]) {
  const what = `${name}'s sequences have the same drafts and answers as when each runs alone`;
  tierOf(name).test(`drafts: ${what}`, () => sameAsAlone(name));
}

async function sameAsAlone(name: string): Promise<void> {
  const wanted = [{ candidates: 5 }];
  using model = await open(modelOf(name));
  const runs = [3, 40, 7].map((length, slot) => (
    { tokens: prompt(length), blockTable: shuffledBlocks(2 * slot, 2), slot, wanted }
  ));
  const from = (run: number) =>
    runs.slice(0, run + 1).reduce((sum, { tokens }) => sum + tokens.length, 0) - 1;
  const next = runs.map(({ tokens, blockTable }, i) => (
    { token: 50 + i, ...placeOf(name, tokens.length, 0), from: from(i), blockTable, wanted }
  ));
  const second = (run: typeof next[number], i: number) => (
    { ...run, token: 60, ...placeOf(name, runs[i].tokens.length, 1) }
  );
  const answer = ({ token, blockTable }: typeof next[number], slot: number) => (
    { tokens: [token], cached: runs[slot].tokens.length, blockTable, slot, wanted }
  );
  const prompts = await model.step(runs);
  const together = await model.draft(next);
  const later = await model.draft(next.map(second));
  const after = await model.step(next.map(answer));
  for (const [i, run] of runs.entries()) {
    assertEquals(await model.step([run]), [prompts[i]]);
    const row = { ...next[i], from: run.tokens.length - 1 };
    assertEquals(await model.draft([row]), [together[i]]);
    assertEquals(await model.draft([second(row, i)]), [later[i]]);
    // The answer overwrites the blocks of the drafts.
    assertEquals(await model.step([answer(next[i], i)]), [after[i]]);
  }
}

fullTier.test("drafts: a pass over several sequences gives the same drafts as a pass per sequence", async () => {
  const { drafter } = modelOf("dflash-qwen35-Q8_0");
  using model = await open(modelOf("dflash-qwen35-Q8_0"));
  const runs = [3, 40, 70].map((length, slot) => (
    { tokens: prompt(length), blockTable: shuffledBlocks(3 * slot, 3), slot }
  ));
  const blocks = runs.map(({ tokens, blockTable }, i) => ({
    tokens: [50 + i, ...Array<number>(i + 1).fill(drafter!.mask!)],
    cached: tokens.length,
    blockTable,
    wanted: Array.from({ length: i + 1 }, () => ({ candidates: 5 })),
  }));
  await model.step(runs);
  const together = await model.draftBlocks(blocks);
  for (const [i, run] of runs.entries()) {
    await model.step([run]);
    assertEquals(await model.draftBlocks([blocks[i]]), [together[i]]);
  }
});

Deno.test("drafts: from the first tokens of the vocabulary have the same logits as from all tokens", async () => {
  const [few, probe] = [160, [0, 50, 159, 160, 499]];
  const wanted = [{ candidates: 20, probe }];
  const tokens = prompt(40);
  const answers = [];
  for (const draftTokens of [few, Infinity]) {
    const options = { drafts: true, draftTokens };
    using model = await KernelModel.loadAs(
      (file) => buildPlan(file, undefined, undefined, options),
      synthesize(modelOf("qwen35-Q8_0").options),
      SIZE,
      { threads: 2 },
    );
    const blockTable = shuffledBlocks(0, 2);
    await model.step([{ tokens, blockTable }]);
    const draft = { token: 50, cached: tokens.length, from: tokens.length - 1, blockTable, wanted };
    answers.push((await model.draft([draft]))[0]);
  }
  const [some, all] = answers;
  assert(some.ids.length === 20 && some.ids.every((id) => id < few));
  assertEquals([...some.probed], [...all.probed].map((logit, i) => probe[i] < few ? logit : -Infinity));
  assert(some.logSumExp < all.logSumExp);
});

for (
  const name of [
    "qwen35-Q8_0",
    "eagle3-llama-F32",
    "eagle3-qwen35-Q8_0",
    "assistant-gemma4-Q8_0",
    "dflash-qwen35-Q8_0",
  ]
) {
  tierOf(name).test(
    `drafts: ${name}'s answers are the same with and without the layer that drafts`,
    async () => {
      using drafting = await open(modelOf(name));
      using plain = await KernelModel.load(synthesize(modelOf(name).options), SIZE, { threads: 2 });
      for (const length of [1, 33, 70]) {
        const run = {
          tokens: prompt(length),
          blockTable: shuffledBlocks(0, 4),
          wanted: [{ candidates: 20 }],
        };
        assertEquals(await drafting.step([run]), await plain.step([run]));
      }
    },
  );
}
