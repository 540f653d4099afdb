/** LoRA adapters at run time: answers are as exact as with merged weights, and bit-identical beside any requests. */
import { assert, assertEquals, assertMatch, assertNotEquals, assertRejects } from "@std/assert";
import { loadEngine } from "../../engine/load/load.ts";
import type { LoadOptions } from "../../engine/load/options.ts";
import type { GgufBuilder } from "../../engine/gguf/testing.ts";
import type { TensorType } from "../../engine/gguf/types.ts";
import type { Engine, GenerateRequest, Models } from "../../engine/mod.ts";
import { identityDifference, type ModelIdentity } from "../../jobs/model_identity.ts";
import type { BatchRequest } from "../../jobs/request.ts";
import { bodyExaminer } from "../../lib/batch/check_body.ts";
import { identifyModel } from "../../lib/identity.ts";
import { servedIdentities } from "../../lib/pool.ts";
import { CompyError, type GenerateOptions, loadModel } from "../../mod.ts";
import { adapterBuilder, merged, synthAdapter } from "./lora_files.ts";
import { type Architecture, synthesize } from "../../testing/synth/synth.ts";
import { TEST_BACKEND } from "../../testing/kernel_model.ts";
import { everyNth, fullTier } from "../../testing/tier.ts";

/** Each token and its alternatives, with log-probabilities. */
type Answer = number[][];
type Asked = Partial<GenerateRequest>;

const PROMPT = Array.from({ length: 40 }, (_, i) => (i * 37) % 250);
const TOKENS = 8;

async function ask(engine: Engine, asked: Asked = {}): Promise<Answer> {
  const answer: Answer = [];
  const request = { prompt: PROMPT, maxTokens: TOKENS, ignoreEos: true, logprobs: 5, ...asked };
  for await (const event of engine.submit({ sampling: { temperature: 0 }, ...request })) {
    if (event.type !== "token") continue;
    answer.push([
      event.token,
      event.logprob!,
      ...event.top!.flatMap(({ token, logprob }) => [token, logprob]),
    ]);
  }
  return answer;
}

/** Writes files, loads the first file as model and the others as adapters, and removes all files at the end. */
async function withEngine<T>(
  files: { model: Uint8Array; adapters?: readonly Uint8Array[] },
  run: (engine: Engine) => Promise<T>,
  options: Omit<Partial<LoadOptions>, "model" | "lora"> & { readonly scales?: readonly number[] } = {},
): Promise<T> {
  const folder = await Deno.makeTempDir({ prefix: "compy-lora-" });
  try {
    const { model, adapters = [] } = files;
    const { scales, ...others } = options;
    await Deno.writeFile(`${folder}/model.gguf`, model);
    const lora = await Promise.all(adapters.map(async (bytes, i) => {
      await Deno.writeFile(`${folder}/adapter${i}.gguf`, bytes);
      return `${folder}/adapter${i}.gguf=${scales?.[i] ?? 1}`;
    }));
    const { engine } = await loadEngine({
      model: `${folder}/model.gguf`,
      lora,
      parallel: 8,
      backend: TEST_BACKEND,
      threads: 2,
      ...others,
    });
    try {
      return await run(engine);
    } finally {
      await engine.close();
    }
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

/** The largest difference of a log-probability, if both answers have the same tokens. */
function distance(one: Answer, other: Answer): number {
  assertEquals(one.map(([token]) => token), other.map(([token]) => token));
  return Math.max(...one.map((row, i) => Math.abs(row[1] - other[i][1])));
}

const MODELS: readonly Architecture[] = [
  "llama",
  "gemma3",
  "phi3",
  "qwen3next",
  "deepseek2",
  "granitehybrid",
  "falcon-h1",
  "qwen3moe",
];

for (const architecture of everyNth(8, MODELS)) {
  Deno.test(`LoRA, ${architecture}: answers are as close to merged weights as rounding allows`, async () => {
    const model = synthesize({ architecture, types: ["F32"], seed: 1 });
    const adapters = [
      synthAdapter(model, { seed: 2, rank: 8 }),
      synthAdapter(model, {
        seed: 3,
        rank: 20,
        type: "F16",
        alpha: 0,
        targets: /attn_(q|qkv|output)\.weight$/,
      }),
    ];
    const together = merged(model, [[adapters[0], 0.5], [adapters[1], 16]]);
    const [wanted, plain] = await Promise.all(
      [together, model].map((model) => withEngine({ model }, (e) => ask(e))),
    );
    assertNotEquals(wanted, plain);
    const scales = [0.5, 16];
    const got = await withEngine({ model, adapters }, (engine) => ask(engine), { scales });
    const far = distance(got, wanted);
    assert(far < 3e-4, `${architecture}: ${far}`);
  });
}

for (const [architecture, pooling] of [["qwen3", 3], ["nomic-bert", undefined]] as const) {
  fullTier.test(
    `LoRA, ${architecture}: text vectors equal those of merged weights, apart from rounding`,
    async () => {
      const model = synthesize({ architecture, types: ["F32"], seed: 1, texts: { pooling } });
      const adapter = synthAdapter(model, { seed: 2, rank: 8 });
      const embed = async (engine: Engine) => (await engine.embed({ inputs: [PROMPT] })).rows[0];
      const wanted = await withEngine({ model: merged(model, [[adapter, 0.5]]) }, embed);
      const got = await withEngine({ model, adapters: [adapter] }, embed, { scales: [0.5] });
      const plain = await withEngine({ model, adapters: [adapter] }, embed, { scales: [0] });
      const far = (row: Float32Array) =>
        Math.hypot(...row.map((v, i) => v - wanted[i])) / Math.hypot(...wanted);
      assert(far(got) < 1e-4, `${far(got)}`);
      assert(far(plain) > 0.1, `${far(plain)}`);
    },
  );
}

const BASE: Asked = { adapters: [] };
const OWN: readonly Asked[] = [
  BASE,
  { adapters: [{ id: 0, scale: 1 }] },
  { adapters: [{ id: 1, scale: 1 }] },
  { adapters: [{ id: 0, scale: 0.5 }] },
  { adapters: [{ id: 1, scale: -1 }, { id: 0, scale: 2 }] },
  {},
];

/** A model and two adapters whose ranks and matrices differ. */
function crowdFiles(architecture: Architecture, type: TensorType) {
  const model = synthesize({ architecture, types: [type], seed: 4 });
  return {
    model,
    adapters: [
      synthAdapter(model, { seed: 5, rank: 4 }),
      synthAdapter(model, { seed: 6, rank: 24, targets: /(attn_output|ffn_down)\.weight$/ }),
    ],
  };
}

for (const type of ["F32", "Q4_0"] as const) {
  Deno.test(`LoRA, ${type}: concurrent requests get the same answers, bit for bit, as alone, also from cached prompts`, async () => {
    await withEngine(crowdFiles("llama", type), async (engine) => {
      const alone: Answer[] = [];
      for (const asked of OWN) {
        alone.push(await ask(engine, { ...asked, cacheSalt: `alone ${alone.length}` }));
      }
      assertEquals(new Set(alone.map(String)).size, OWN.length);
      assertEquals(alone[5], await ask(engine, { adapters: [{ id: 0, scale: 1 }, { id: 1, scale: 1 }] }));
      for (let round = 0; round < 2; round++) {
        const before = engine.stats().cachedTokens;
        const crowd = await Promise.all(OWN.map((asked) => ask(engine, { ...asked, cacheSalt: "crowd" })));
        assertEquals(crowd, alone, `round ${round}`);
        // Only a request with the same adapters and scales may reuse a prompt.
        assertEquals(engine.stats().cachedTokens - before, round * OWN.length * 32);
      }
    });
  });
}

Deno.test("LoRA: answers stay the same after preemption", async () => {
  const maxTokens = 150;
  const asked = OWN.slice(0, 4).map((one, i) => ({ ...one, maxTokens, cacheSalt: `${i}` }));
  const files = crowdFiles("llama", "F32");
  const alone = await withEngine(files, async (engine) => {
    const answers: Answer[] = [];
    for (const one of asked) answers.push(await ask(engine, one));
    return answers;
  });
  await withEngine(files, async (engine) => {
    assertEquals(await Promise.all(asked.map((one) => ask(engine, one))), alone);
    assert(engine.stats().preemptions > 0);
  }, { contextLength: 256, kvBytes: 900_000 });
});

Deno.test("LoRA: a request without adapters has the answer of the model alone", async () => {
  const { model, adapters } = crowdFiles("llama", "F32");
  // The second adapter does not change the fused ops.
  const plain = await withEngine({ model }, (engine) => ask(engine));
  assertEquals(await withEngine({ model, adapters: [adapters[1]] }, (engine) => ask(engine, BASE)), plain);
});

Deno.test("LoRA: the prompt cache on a disk keeps prompts of other adapters and scales apart", async () => {
  const folder = await Deno.makeTempDir({ prefix: "compy-lora-" });
  const files = crowdFiles("llama", "F32");
  const options = { promptCache: { folder, bytes: 1e8, eager: true } };
  const [first, other] = [OWN[1], OWN[3]];
  try {
    const wanted = await withEngine(
      files,
      async (engine) => [await ask(engine, first), await ask(engine, other)],
    );
    await withEngine(files, (engine) => ask(engine, first), options);
    await withEngine(files, async (engine) => {
      assertEquals(await ask(engine, other), wanted[1]);
      assertEquals(engine.stats().cachedTokens, 0);
      assertEquals(await ask(engine, first), wanted[0]);
      assertEquals(engine.stats().cachedTokens, 32);
    }, options);
    // Another adapter with the same id has other cached prompts.
    const swapped = {
      ...files,
      adapters: [synthAdapter(files.model, { seed: 7, rank: 4 }), files.adapters[1]],
    };
    await withEngine(swapped, async (engine) => {
      assertNotEquals(await ask(engine, first), wanted[0]);
      assertEquals(engine.stats().cachedTokens, 0);
    }, options);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("LoRA: the check of a batch accepts lines that name the model with one of its adapters", async () => {
  const examine = bodyExaminer({ models: ["m", "alias"], lora: ["folder/poet.gguf=2"] });
  const refusalOf = (model: string) =>
    examine({ url: "/v1/completions", customId: "1", body: { model, prompt: "Hi" } } as BatchRequest);
  assertEquals(await refusalOf("m:poet"), undefined);
  assertEquals((await refusalOf("m:cook"))?.code, "model_not_found");
});

Deno.test("LoRA: library calls choose adapters, and a job's identity includes the adapters", async () => {
  const { model, adapters } = crowdFiles("llama", "F32");
  const folder = await Deno.makeTempDir({ prefix: "compy-lora-" });
  try {
    const [file, poet] = [`${folder}/model.gguf`, `${folder}/poet.gguf`];
    await Deno.writeFile(file, model);
    await Deno.writeFile(poet, adapters[0]);
    const identities: ModelIdentity[] = [];
    for (const lora of [undefined, [poet], [`${poet}=0`]]) {
      identities.push(await identifyModel({ path: file, lora }));
    }
    assertEquals(identityDifference(identities[0], identities[0]), undefined);
    assertMatch(identityDifference(identities[1], identities[0])!, /^adapters "poet x 1 \([0-9a-f]{16}\)"/);
    assert(identityDifference(identities[1], identities[2]) !== undefined);
    const models = { list: () => [{ id: "model", path: file }] } as unknown as Models;
    const identify = servedIdentities(models, { lora: [poet] });
    assertEquals(await identify([""]), identities[1]);
    await Deno.writeFile(poet, adapters[1]);
    assertEquals(await identify([""]), await identifyModel({ path: file, lora: [poet] }));
    await using loaded = await loadModel(file, { lora: [`${poet}=0`], threads: 2, ctx: 64 });
    const textOf = async (options: GenerateOptions) =>
      (await loaded.generate([1, 2, 3], { maxTokens: 8, temperature: 0, ignoreEos: true, ...options })
        .answer()).text;
    assertEquals(await textOf({}), await textOf({ lora: [] }));
    assertNotEquals(await textOf({}), await textOf({ lora: [{ id: 0, scale: 1 }] }));
    await assertRejects(() => textOf({ lora: [{ id: 1, scale: 1 }] }), CompyError, "from 0 to 0 (got 1)");
    await assertRejects(() => loadModel(file, { lora: [`${folder}/none.gguf`] }), CompyError, "none.gguf");
    await assertRejects(
      () => loadModel(file, { lora: [`${poet}=NaN`] }),
      CompyError,
      "lora must be FILE or FILE=SCALE",
    );
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

const SMALL = synthesize({ architecture: "llama", types: ["F32"], seed: 4 });
const GOOD = { seed: 5, rank: 4 };
const Q = "blk.0.attn_q.weight";

/** Changes of an adapter's file, each with the message that refuses the changed file. */
const HOSTILE: Readonly<Record<string, readonly [change: (file: GgufBuilder) => void, message: string]>> = {
  "a model": [(f) => f.set("general.type", "STRING", "model"), '"general.type": must be "adapter"'],
  "another kind of adapter": [
    (f) => f.set("adapter.type", "STRING", "control_vector"),
    '"adapter.type": must be "lora"',
  ],
  "another architecture": [
    (f) => f.set("general.architecture", "STRING", "qwen3"),
    '"general.architecture": must be "llama", as in the model that it adapts (got "qwen3")',
  ],
  "an activated adapter": [
    (f) => f.array("adapter.alora.invocation_tokens", "UINT32", Uint32Array.of(1, 2)),
    "activated adapters (aLoRA)",
  ],
  "an alpha that is not a number": [
    (f) => f.set("adapter.lora.alpha", "FLOAT32", NaN),
    "adapter.lora.alpha",
  ],
  "a missing half": [(f) => f.deleteTensor(`${Q}.lora_b`), `"${Q}.lora_b": missing from the adapter`],
  "a tensor that is no half": [
    (f) => f.tensor("blk.0.attn_norm.weight", "F32", [4], new Float32Array(4)),
    "must end in .lora_a or .lora_b",
  ],
  "a tensor that the model lacks": [
    (f) => pair(f, "blk.99.attn_q.weight", [256, 4, 256]),
    "the adapter belongs to another model",
  ],
  "other columns": [(f) => pair(f, Q, [32, 4, 256]), "must have the shape [256, rank]"],
  "other rows": [(f) => pair(f, Q, [256, 4, 96]), "must have the shape [4, 256]"],
  "halves of different ranks": [
    (f) => f.tensor(`${Q}.lora_b`, "F32", [5, 256], new Float32Array(1280)),
    "must have the shape [4, 256]",
  ],
  "a huge rank": [(f) => pair(f, Q, [256, 1000, 256]), "the rank must be at most 256 (got 1000)"],
  "a type of weights": [
    (f) => f.tensor(`${Q}.lora_a`, "Q4_0", [256, 4], new Uint8Array(576)),
    "must be of type F32, F16, BF16 or Q8_0 (got Q4_0)",
  ],
  "embeddings": [
    (f) => pair(f, "token_embd.weight", [256, 4, 300]),
    "adapters of this tensor are not supported",
  ],
  "a vector": [
    (f) => pair(f, "output_norm.weight", [256, 4, 1]),
    "adapters of this tensor are not supported",
  ],
  "an alpha that makes numbers too large": [
    (f) =>
      f.set("adapter.lora.alpha", "FLOAT32", 3e38).tensor(
        `${Q}.lora_b`,
        "F32",
        [4, 256],
        new Float32Array(1024).fill(9),
      ),
    "makes its numbers too large",
  ],
  "values that are not numbers": [
    (f) => f.tensor(`${Q}.lora_a`, "F32", [256, 4], new Float32Array(1024).fill(NaN)),
    "must have only finite numbers",
  ],
};

Deno.test("LoRA: refuses adapters of experts, and names the tensor", async () => {
  const model = synthesize({ architecture: "qwen3moe", types: ["F32"], seed: 4 });
  const name = "blk.0.ffn_gate_exps.weight";
  const file = adapterBuilder(model, GOOD);
  pair(file, name, [256, 4, 64]);
  const files = { model, adapters: [file.build().bytes] };
  const message = `tensor "${name}": adapters of this tensor are not supported`;
  await assertRejects(() => withEngine(files, () => Promise.resolve()), Error, message);
});

/** Replaces an adapter's pair for a tensor. */
function pair(
  file: GgufBuilder,
  name: string,
  [columns, rank, rows]: readonly [number, number, number],
): void {
  file.tensor(`${name}.lora_a`, "F32", [columns, rank], new Float32Array(columns * rank));
  file.tensor(`${name}.lora_b`, "F32", [rank, rows], new Float32Array(rank * rows));
}

Deno.test("LoRA: hostile files are refused, and the message names the file or the tensor", async () => {
  for (const [name, [change, message]] of Object.entries(HOSTILE)) {
    const file = adapterBuilder(SMALL, GOOD);
    change(file);
    const files = { model: SMALL, adapters: [file.build().bytes] };
    const error = await assertRejects(() => withEngine(files, () => Promise.resolve()), Error, message, name);
    assert(
      error.message.includes(name === "values that are not numbers" ? "lora_a" : "adapter0.gguf"),
      error.message,
    );
  }
});
