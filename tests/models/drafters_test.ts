/**
 * Tests drafters in their own files with the kernels: drafts do not change answers, and drafters for other models are
 * refused.
 */
import { assert, assertEquals, assertRejects, assertThrows } from "@std/assert";
import { GgufError } from "../../engine/gguf/errors.ts";
import { buildPlan, readPlan } from "../../engine/architectures/registry.ts";
import { blocksOfSequence } from "../../engine/cache/kv_blocks.ts";
import { parseGguf } from "../../engine/gguf/reader.ts";
import { inspectModel, type InspectOptions } from "../../engine/load/inspect.ts";
import { loadEngine, measureModel } from "../../engine/load/load.ts";
import type { LoadOptions } from "../../engine/load/options.ts";
import type { Engine, GenerateRequest, KvType } from "../../engine/mod.ts";
import {
  type Case,
  LAYERS,
  loadWithDrafter,
  repeating,
  REVERSED,
  VOCABULARY,
  withFiles,
} from "./drafter_files.ts";
import { carriesRows } from "../../engine/plan/ops/registry.ts";
import type { Plan } from "../../engine/plan/plan.ts";
import { layerDrafter } from "../../engine/speculation/choose.ts";
import { Speculation } from "../../engine/speculation/speculation.ts";
import { FreeRows } from "../../engine/speculation/testing.ts";
import { engineOver } from "../../testing/engine.ts";
import { KernelModel } from "../../testing/kernel_model.ts";
import { synthesizeDflash } from "../../testing/synth/drafters/dflash.ts";
import { synthesizeEagle3 } from "../../testing/synth/drafters/eagle3.ts";
import { synthesizeGemma4Assistant } from "../../testing/synth/drafters/gemma4_assistant.ts";
import { type Architecture, synthesize } from "../../testing/synth/synth.ts";
import { fullTier } from "../../testing/tier.ts";
import { compareCrowd } from "./preemption.ts";

const SIZE = { contextLength: 256, threads: 1 };

async function withEngine<T>(options: LoadOptions, use: (engine: Engine) => Promise<T>): Promise<T> {
  const { engine } = await loadEngine({ ...SIZE, ...options });
  try {
    return await use(engine);
  } finally {
    await engine.close();
  }
}

async function tokensOf(engine: Engine, request: GenerateRequest): Promise<number[]> {
  const tokens: number[] = [];
  for await (const event of engine.submit(request)) if (event.type === "token") tokens.push(event.token);
  return tokens;
}

const PROMPT = [40, 41, 42, 43];
const SCHEMA = { type: "object", properties: { a: { type: "string" } } };
const REQUESTS: readonly GenerateRequest[] = [
  { prompt: PROMPT, maxTokens: 100, ignoreEos: true, sampling: { temperature: 0 } },
  { prompt: PROMPT, maxTokens: 60, ignoreEos: true, sampling: { temperature: 0.8, seed: 7 } },
  {
    prompt: [50, 51],
    maxTokens: 40,
    sampling: { seed: 3 },
    constraint: { kind: "json_schema", schema: SCHEMA },
  },
];

async function answers(engine: Engine): Promise<number[][]> {
  const alone: number[][] = [];
  for (const request of REQUESTS) alone.push(await tokensOf(engine, request));
  const together = await Promise.all(REQUESTS.map((request) => tokensOf(engine, request)));
  assertEquals(together, alone);
  // The next turn continues from cached blocks.
  const next = { ...REQUESTS[0], prompt: [...PROMPT, ...alone[0], 50, 51] };
  return [...alone, await tokensOf(engine, next)];
}

for (
  const architecture of ["llama", "qwen35", "gemma4", "llama with DFlash", "qwen35 with DFlash"] as const
) {
  const { test } = architecture.startsWith("llama") ? Deno : fullTier;
  test(`drafters: ${architecture}'s answers take fewer steps and equal answers without drafts`, async () => {
    const { model, drafter } = repeating(architecture);
    await withFiles(model, drafter, async (model, draft) => {
      const run = (options: Partial<LoadOptions>) =>
        withEngine({ model, parallel: 3, ...options }, async (engine) => ({
          answers: await answers(engine),
          stats: engine.stats(),
        }));
      const plain = await run({ speculate: "off" });
      const drafted = await run({ speculate: "draft", draft });
      assertEquals(drafted.answers, plain.answers);
      const { acceptedTokens, draftedTokens } = drafted.stats;
      // The cost model may stop drafting for texts whose drafts are wrong. Under memory pressure, all texts have
      // drafts.
      assert(acceptedTokens > 10, `${acceptedTokens} of ${draftedTokens}`);
      assert(drafted.stats.steps < plain.stats.steps, `${drafted.stats.steps} steps`);
      assertEquals(drafted.stats.cachedTokens, plain.stats.cachedTokens);
    });
  });
}

const SCARCE = [
  ["llama", "f16"],
  ["llama", "q8_0"],
  ["qwen35", "q4_0"],
  ["gemma4", "q8_0"],
  ["gemma4", "q4_0"],
  ["llama with DFlash", "f16"],
  ["llama with DFlash", "q8_0"],
  ["qwen35 with DFlash", "q4_0"],
] as const;

for (const [architecture, kvType] of SCARCE) {
  const what = `${architecture}'s answers in ${kvType} equal answers without drafts under memory pressure`;
  fullTier.test(`drafters: ${what}`, () => underPressure(architecture, kvType));
}

async function underPressure(architecture: Case, kvType: KvType): Promise<void> {
  const files = repeating(architecture);
  const plain = await scarceEngine(files.model, undefined, kvType);
  const drafting = await scarceEngine(files.model, files.drafter, kvType);
  try {
    const preemptions = await compareCrowd(plain, drafting, { requests: 40, company: 10, seed: 2 });
    const { draftedTokens, acceptedTokens } = drafting.stats();
    const counts = `${preemptions} preemptions, ${acceptedTokens} of ${draftedTokens} drafted tokens`;
    assert(preemptions > 0 && acceptedTokens > 0 && draftedTokens > acceptedTokens + 20, counts);
  } finally {
    await drafting.close();
    await plain.close();
  }
}

/** Returns an engine whose KV cache holds a few sequences, and whose drafts always seem to pay off. */
async function scarceEngine(
  bytes: Uint8Array<ArrayBuffer>,
  drafter: Uint8Array | undefined,
  kvType: KvType,
): Promise<Engine> {
  const parallel = 6;
  const limitsOf = (plan: Plan) => {
    const rows = carriesRows(plan);
    const windows = plan.kv.windows.slice(1);
    const kvBlocks = blocksOfSequence({ windows, maxRows: 64 }, SIZE.contextLength) + 3;
    const draftSlots = rows ? 32 + parallel : 3;
    const stateSlots = plan.states.length > 0 ? parallel + draftSlots + 3 : undefined;
    return {
      kvBlocks,
      kvWindows: windows,
      stateSlots,
      maxRows: 64,
      maxLogitRows: 32,
      draftSlots,
      carriesRows: rows,
      parallel,
      queue: 64,
    };
  };
  const cpu = { kvType, threads: 1 };
  const plan = await readPlan(parseGguf(bytes));
  const loaded = drafter
    ? await loadWithDrafter(bytes, drafter, limitsOf, cpu)
    : { plan, model: await KernelModel.load(bytes, limitsOf(plan), cpu), opened: undefined };
  const { backend } = loaded.model;
  const speculation = drafter
    ? new Speculation([layerDrafter(backend, limitsOf(loaded.plan), loaded.opened)], new FreeRows())
    : undefined;
  const limits = limitsOf(loaded.plan);
  return engineOver(
    backend,
    limits,
    SIZE.contextLength,
    VOCABULARY,
    undefined,
    undefined,
    undefined,
    speculation,
  );
}

Deno.test("drafters: stored prompts include the drafter's keys and values, and other drafters do not use them", async () => {
  const { model, drafter } = repeating("llama");
  const other = synthesizeEagle3(model, { type: "F32", seed: 2, layers: [1, 2, LAYERS], tokens: REVERSED });
  await storedWith(model, drafter, other);
});

fullTier.test("drafters: stored prompts include the keys and values of all of DFlash's layers", async () => {
  const { model, drafter } = repeating("llama with DFlash");
  await storedWith(
    model,
    drafter,
    synthesizeDflash(model, { type: "F32", seed: 2, layers: [1, LAYERS], mask: 498 }),
  );
});

/**
 * Compares answers with and without stored prompts. After a restart, `drafter` reads the stored prompts and `other`
 * does not.
 */
async function storedWith(model: Uint8Array, drafter: Uint8Array, other: Uint8Array): Promise<void> {
  const folder = await Deno.makeTempDir({ prefix: "compy-test-" });
  try {
    const prompt = Array.from({ length: 100 }, (_, i) => 40 + i % 7);
    const run = (drafter: Uint8Array, kept: boolean) =>
      withFiles(model, drafter, (model, draft) => {
        const promptCache = kept ? { folder, bytes: 1e9, eager: true } : undefined;
        return withEngine({ model, draft, parallel: 2, promptCache }, async (engine) => {
          const tokens = await tokensOf(engine, { ...REQUESTS[0], prompt });
          return { tokens, cached: engine.stats().cachedTokens };
        });
      });
    const wanted = await run(drafter, false);
    assertEquals(await run(drafter, true), wanted);
    assertEquals(await run(drafter, true), { tokens: wanted.tokens, cached: 96 });
    assertEquals(await run(other, true), wanted);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

Deno.test("drafters: a drafter's memory is counted, and its layer is part of the model's plan", async () => {
  const { model, drafter } = repeating("llama");
  await withFiles(model, drafter, async (model, draft) => {
    const plain = await measureModel({ ...SIZE, model });
    const drafting = await measureModel({ ...SIZE, model, draft });
    assert(drafting.memory.weights > plain.memory.weights && drafting.memory.kv > plain.memory.kv);
    const joined = await inspectedDrafter({ ...SIZE, model, draft });
    assert(joined.joined && joined.architecture === "eagle3", JSON.stringify(joined));
    assertEquals(joined.memory.weights, drafting.memory.weights - plain.memory.weights);
    assert(0 < joined.tokenWeights && joined.tokenWeights < joined.memory.weights);
    const smaller = await inspectedDrafter({ ...SIZE, model, draft: model });
    assertEquals(smaller.memory.weights, plain.memory.weights);
    assertEquals([smaller.joined, smaller.architecture, smaller.tokenWeights], [
      false,
      "llama",
      plain.tokenBytes,
    ]);
    const { plan } = await inspectModel({ model: draft });
    assert(
      "refusal" in plan && plan.refusal.includes("this drafts tokens for a model"),
      JSON.stringify(plan),
    );
  });
});

async function inspectedDrafter(options: InspectOptions) {
  const { drafter } = await inspectModel(options);
  if (drafter && !("refusal" in drafter)) return drafter;
  throw new Error(drafter?.refusal ?? "no drafter");
}

const LLAMA = { architecture: "llama", types: ["Q8_0"], seed: 1, layers: LAYERS } as const;
const DRAFTER = { type: "Q8_0", seed: 1, layers: [1, 2, LAYERS] } as const;
const other = (architecture: Architecture, more = {}) => synthesize({ ...LLAMA, architecture, ...more });

const GEMMA4 = other("gemma4");
const ASSISTANT = { type: "Q8_0", seed: 1 } as const;
const assistant = (counts: Record<string, number>) =>
  synthesizeGemma4Assistant(GEMMA4, { ...ASSISTANT, counts });

const REFUSED: readonly (readonly [what: string, model: Uint8Array, drafter: Uint8Array, message: string])[] =
  [
    [
      "rows of another width",
      other("llama"),
      synthesizeEagle3(other("seed_oss"), { ...DRAFTER, columns: 128, width: 512 }),
      "it reads hidden rows of 512 columns, the model's have 256",
    ],
    [
      "layers that the model lacks",
      other("llama"),
      synthesizeEagle3(other("llama"), { ...DRAFTER, layers: [1, 2, LAYERS + 1] }),
      "it reads rows of layer 5, the model has 4 layers",
    ],
    [
      "another vocabulary",
      other("llama"),
      synthesizeEagle3(other("llama", { vocabulary: 2000 }), { ...DRAFTER, columns: 128 }),
      "its vocabulary has 2000 tokens, the model's has 500",
    ],
    [
      "a token that the model lacks",
      other("llama"),
      synthesizeEagle3(other("llama"), { ...DRAFTER, tokens: [1, VOCABULARY] }),
      "must have only tokens below 500 (got 500)",
    ],
    [
      "two layers",
      other("llama"),
      synthesizeEagle3(other("llama"), { ...DRAFTER, layers: [1, 2] }),
      "must be 3 numbers of layers (got 1, 2)",
    ],
    [
      "an architecture without hidden rows for drafters",
      other("gemma3n"),
      synthesizeEagle3(other("gemma3n"), DRAFTER),
      'architecture "gemma3n" hands out no rows for a drafter',
    ],
    [
      "a model that is not Gemma 4",
      other("llama"),
      assistant({}),
      'it drafts for "gemma4", the model is "llama"',
    ],
    ["a narrower model of Gemma 4", GEMMA4, assistant({ embedding_length_out: 128 }), "rows of 128 columns"],
    [
      "another window",
      GEMMA4,
      assistant({ "attention.sliding_window": 20 }),
      "its attention.sliding_window is 20, the model's is 24",
    ],
    [
      "heads that the model's KV heads do not divide",
      GEMMA4,
      assistant({ "attention.head_count": 3 }),
      "must be a divisor",
    ],
  ];

for (const [what, model, drafter, message] of REFUSED) {
  Deno.test(`drafters: a drafter is refused for ${what}`, async () => {
    await withFiles(model, drafter, async (model, draft) => {
      await assertRejects(() => measureModel({ ...SIZE, model, draft }), Error, message);
      await assertRejects(() => inspectedDrafter({ ...SIZE, model, draft }), Error, message);
    });
  });
}

Deno.test("drafters: refuses a model's file that has a table of integers", () => {
  const file = parseGguf(other("llama"));
  const integers = new Map([["d2t", { path: "", offset: 0, length: 1 }]]);
  const error = assertThrows(() => buildPlan({ ...file, integers }), GgufError);
  assertEquals(error.field, 'tensor "d2t"');
});

Deno.test("drafters: a drafter is refused as a model, and on a GPU", async () => {
  await withFiles(other("llama"), synthesizeEagle3(other("llama"), DRAFTER), async (model, draft) => {
    await assertRejects(() => measureModel({ model: draft }), Error, "this drafts tokens for a model");
    await assertRejects(
      () => measureModel({ model, draft, backend: "webgpu" }),
      Error,
      "not supported on a GPU",
    );
  });
});
