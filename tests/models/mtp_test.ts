/**
 * Drafts of a model's own draft layer with the kernels: answers must equal those without, for all drafts and concurrent
 * requests.
 */
import { assert, assertEquals, assertRejects } from "@std/assert";
import { buildPlan } from "../../engine/architectures/registry.ts";
import { GgufError } from "../../engine/gguf/errors.ts";
import { parseGguf } from "../../engine/gguf/reader.ts";
import type { GgufFile } from "../../engine/gguf/types.ts";
import { inspectModel } from "../../engine/load/inspect.ts";
import { carriesRows } from "../../engine/plan/ops/registry.ts";
import { blocksOfSequence } from "../../engine/cache/kv_blocks.ts";
import { loadEngine, measureModel, MemoryError } from "../../engine/load/load.ts";
import type { LoadOptions } from "../../engine/load/options.ts";
import { MtpDrafter } from "../../engine/speculation/mtp.ts";
import { Speculation } from "../../engine/speculation/speculation.ts";
import { StepCosts } from "../../engine/speculation/step_costs.ts";
import { engineOver } from "../../testing/engine.ts";
import type { Engine, GenerateRequest, KvType } from "../../engine/mod.ts";
import { KernelModel } from "../../testing/kernel_model.ts";
import { compareCrowd } from "./preemption.ts";
import { type Architecture, synthesize } from "../../testing/synth/synth.ts";
import { fullTier } from "../../testing/tier.ts";

const VOCABULARY = 500;
const CONTEXT = 256;
const PARALLEL = 6;

/**
 * A seeded model with a draft layer that repeats the last token. Seeded models whose output matrix is the embedding often repeat tokens, so
 * some drafts are accepted and most rejected.
 */
function repeating(architecture: Architecture = "qwen35"): Uint8Array<ArrayBuffer> {
  const bytes = synthesize({ architecture, types: ["F32"], seed: 1, layers: 4, drafts: 1 });
  const { tensors } = parseGguf(bytes);
  const floatsOf = (name: string) => {
    const { offset, byteLength } = tensors.get(name)!;
    return new Float32Array(bytes.buffer, offset, byteLength / 4);
  };
  const width = tensors.get("token_embd.weight")!.shape[0];
  if (tensors.has("output.weight")) floatsOf("output.weight").set(floatsOf("token_embd.weight"));
  // The projection returns the token's row, without the previous one, and the layer adds nothing.
  const projection = floatsOf("blk.4.nextn.eh_proj.weight").fill(0);
  for (let row = 0; row < width; row++) projection[row * 2 * width + row] = 1;
  floatsOf("blk.4.nextn.enorm.weight").fill(1);
  for (const name of tensors.keys()) {
    if (/^blk\.4\.(attn_output|ffn_down|ffn_latent_up).*weight$/.test(name)) floatsOf(name).fill(0);
  }
  return bytes;
}

/** Cost model of slow steps, so that drafts always pay off. */
class LongSteps extends StepCosts {
  override estimates(_sequences: number, from: number, to: number): Float64Array {
    return new Float64Array(to - from + 1).fill(1e6);
  }
}

async function engineOf(
  drafts: boolean,
  kvType: KvType,
  kvBlocks: number,
  architecture?: Architecture,
): Promise<Engine> {
  const bytes = repeating(architecture);
  const planOf = (file: GgufFile) => buildPlan(file, undefined, undefined, { drafts });
  const plan = planOf(parseGguf(bytes));
  const rows = carriesRows(plan);
  const draftSlots = rows ? 32 + PARALLEL : 3;
  const stateSlots = plan.states.length > 0 ? PARALLEL + draftSlots + 3 : undefined;
  const sizes = { kvBlocks, stateSlots, maxRows: 64, maxLogitRows: 32 };
  const { backend } = await KernelModel.loadAs(
    planOf,
    bytes,
    sizes,
    { kvType, threads: 1 },
  );
  const speculation = drafts ? new Speculation([new MtpDrafter(backend)], new LongSteps()) : undefined;
  const limits = { ...sizes, draftSlots, carriesRows: rows, parallel: PARALLEL, queue: 64 };
  return engineOver(backend, limits, CONTEXT, VOCABULARY, undefined, undefined, undefined, speculation);
}

const CROWDS: readonly (readonly [Architecture, KvType])[] = [
  ["qwen35", "f16"],
  ["qwen35", "q8_0"],
  ["qwen3next", "f16"],
  ["glm4moe", "f16"],
  ["deepseek2", "q4_0"],
  ["bailingmoe2", "f16"],
  ["hy_v3", "q4_0"],
  ["nemotron_h_moe", "f16"],
];

for (const [architecture, kvType] of CROWDS) {
  const answers = `${architecture}'s answers in ${kvType}`;
  fullTier.test(`mtp: ${answers} are bit-identical to those without drafts under memory pressure`, async () => {
    const kvBlocks = blocksOfSequence({ windows: [], maxRows: 64 }, CONTEXT) + 3;
    const plain = await engineOf(false, kvType, kvBlocks, architecture);
    const drafting = await engineOf(true, kvType, kvBlocks, architecture);
    try {
      const whole = architecture === "qwen35";
      const crowd = { requests: whole ? 60 : 40, company: 10, seed: 2 };
      const preemptions = await compareCrowd(plain, drafting, crowd);
      const { draftedTokens, acceptedTokens } = drafting.stats();
      const counts = `${preemptions} preemptions, ${acceptedTokens} of ${draftedTokens} drafted tokens`;
      // The seeded Nemotron seldom repeats tokens.
      const right = architecture === "nemotron_h_moe" ? 0 : 1;
      const [least, accepted, rejected] = whole ? [6, 51, 51] : [1, right, 20];
      assert(
        preemptions >= least && acceptedTokens >= accepted && draftedTokens >= acceptedTokens + rejected,
        counts,
      );
    } finally {
      await drafting.close();
      await plain.close();
    }
  });
}

async function tokensOf(engine: Engine, request: GenerateRequest): Promise<number[]> {
  const tokens: number[] = [];
  for await (const event of engine.submit(request)) if (event.type === "token") tokens.push(event.token);
  return tokens;
}

const long = (temperature: number): GenerateRequest => (
  { prompt: [40, 41, 42, 43], maxTokens: 120, ignoreEos: true, sampling: { temperature, seed: 7 } }
);

for (const architecture of ["qwen35", "glm4moe"] as const) {
  const what = `one answer of ${architecture} takes fewer steps, and its next turn continues from the cache`;
  const { test } = architecture === "qwen35" ? Deno : fullTier;
  test(`mtp: ${what}`, () => takesFewerSteps(architecture));
}

async function takesFewerSteps(architecture: Architecture): Promise<void> {
  const plain = await engineOf(false, "f16", 40, architecture);
  const drafting = await engineOf(true, "f16", 40, architecture);
  try {
    for (const temperature of [0, 0.8]) {
      const answer = await tokensOf(plain, long(temperature));
      assertEquals(await tokensOf(drafting, long(temperature)), answer);
      const next = { ...long(temperature), prompt: [...long(temperature).prompt, ...answer, 50, 51] };
      assertEquals(await tokensOf(drafting, next), await tokensOf(plain, next));
    }
    assertEquals(drafting.stats().cachedTokens, plain.stats().cachedTokens);
    assert(drafting.stats().steps < 0.8 * plain.stats().steps, `${drafting.stats().steps} steps`);
  } finally {
    await drafting.close();
    await plain.close();
  }
}

Deno.test("mtp: a request cancelled during its drafts ends, and others continue", async () => {
  const drafting = await engineOf(true, "f16", 40);
  try {
    const wanted = await tokensOf(drafting, long(0));
    for (let after = 1; after < 12; after++) {
      const abort = new AbortController();
      const other = tokensOf(drafting, { ...long(0), cacheSalt: `${after}` });
      let count = 0;
      for await (const { type } of drafting.submit({ ...long(1), signal: abort.signal })) {
        if (type === "token" && ++count === after) setTimeout(() => abort.abort(), after % 3);
      }
      assertEquals(await other, wanted);
    }
  } finally {
    await drafting.close();
  }
});

async function withFile(bytes: Uint8Array, test: (model: string) => Promise<void>): Promise<void> {
  const model = await Deno.makeTempFile({ prefix: "compy-test-", suffix: ".gguf" });
  try {
    await Deno.writeFile(model, bytes);
    await test(model);
  } finally {
    await Deno.remove(model);
  }
}

Deno.test("mtp: a prompt from the disk cache includes the draft layer's keys and values", async () => {
  const folder = await Deno.makeTempDir({ prefix: "compy-test-" });
  try {
    await withFile(repeating(), async (model) => {
      const prompt = Array.from({ length: 100 }, (_, i) => 40 + i % 7);
      const request: GenerateRequest = { ...long(0), prompt };
      const run = async (speculate: "mtp" | "off", kept: boolean) => {
        const promptCache = kept ? { folder, bytes: 1e9, eager: true } : undefined;
        const options = { model, speculate, contextLength: 512, parallel: 2, threads: 1, promptCache };
        const { engine } = await loadEngine(options);
        try {
          const tokens = await tokensOf(engine, request);
          return { tokens, cached: engine.stats().cachedTokens };
        } finally {
          await engine.close();
        }
      };
      const wanted = await run("off", false);
      assertEquals(await run("mtp", true), wanted);
      assertEquals(await run("mtp", true), { tokens: wanted.tokens, cached: 96 });
      // Without the draft layer, the cache identity differs.
      assertEquals(await run("off", true), wanted);
    });
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("mtp: --speculate says whether the layer is loaded, and its memory is counted", async () => {
  await withFile(repeating(), async (model) => {
    const memoryOf = async (options: Partial<LoadOptions>) =>
      (await measureModel({ model, contextLength: 512, parallel: 2, ...options })).memory;
    const off = await memoryOf({ speculate: "off" });
    const lookup = await memoryOf({ speculate: "lookup" });
    const mtp = await memoryOf({ speculate: "mtp" });
    assertEquals(await memoryOf({}), mtp);
    assertEquals(lookup.weights, off.weights);
    // A projection of two rows, and an attention layer.
    assert(mtp.weights - off.weights >= 4 * (512 * 256 + (512 + 2 * 128 + 256 + 3 * 768) * 256));
    assertEquals(mtp.kv, 2 * off.kv);
    assert(mtp.states > lookup.states);
    const { plan } = await inspectModel({ model });
    if ("refusal" in plan) throw new Error(plan.refusal);
    assertEquals(plan.leftOut, []);
    assert(plan.layers.some(({ kind }) => kind === "attention, drafts"));
    for (const speculate of ["mtp", "auto", "off"] as const) {
      const { engine } = await loadEngine({ model, speculate, contextLength: 512, parallel: 2, threads: 1 });
      try {
        await tokensOf(engine, long(0));
        assertEquals(engine.stats().draftedTokens > 0, speculate !== "off", speculate);
      } finally {
        await engine.close();
      }
    }
  });
});

Deno.test("mtp: a model that only fits without its draft layer loads without it, unless that is asked for", async () => {
  await withFile(repeating(), async (model) => {
    const sizes = { model, contextLength: 512, parallel: 2 };
    const total = (
      { memory: { weights, activations, states, kv } }: Awaited<ReturnType<typeof measureModel>>,
    ) => weights + activations + states + kv;
    const without = await measureModel({ ...sizes, speculate: "lookup" });
    const freeBytes = (total(without) + total(await measureModel(sizes))) / 2;
    assertEquals((await measureModel({ ...sizes, freeBytes })).memory, without.memory);
    await assertRejects(() => measureModel({ ...sizes, freeBytes, speculate: "mtp" }), MemoryError);
  });
});

Deno.test("mtp: a model without a usable draft layer is refused on request and else loads without drafts", async () => {
  const without = synthesize({ architecture: "qwen35", types: ["F32"], seed: 1, layers: 4 });
  const dense = synthesize({ architecture: "llama", types: ["F32"], seed: 1, layers: 2 });
  for (const [bytes, architecture] of [[without, "qwen35"], [dense, "llama"]] as const) {
    await withFile(bytes, async (model) => {
      const error = await assertRejects(() => measureModel({ model, speculate: "mtp" }), GgufError);
      assertEquals(error.field, `key "${architecture}.nextn_predict_layers"`);
      await measureModel({ model });
    });
  }
  await withFile(repeating(), async (model) => {
    await assertRejects(
      () => measureModel({ model, speculate: "mtp", backend: "webgpu" }),
      Error,
      'speculate: "mtp" is not supported on a GPU',
    );
    await measureModel({ model, backend: "webgpu" });
  });
});
