import { assertEquals, assertMatch, assertRejects, assertStringIncludes } from "@std/assert";
import { join } from "@std/path";
import { readPlan } from "../../engine/architectures/registry.ts";
import { GpuError } from "../../engine/backend/webgpu/errors.ts";
import { lower } from "../../engine/backend/webgpu/lowering.ts";
import { parseGguf } from "../../engine/gguf/reader.ts";
import { loadEngine } from "../../engine/load/load.ts";
import { EngineError } from "../../engine/mod.ts";
import { openPool } from "../../lib/pool.ts";
import { gpuTest } from "../../testing/gpu.ts";
import { SYNTH_MODELS } from "../../testing/synth/registry.ts";
import { type Architecture, synthesize, type SynthTexts } from "../../testing/synth/synth.ts";
import { fullTier } from "../../testing/tier.ts";

/* A model that the GPU cannot run is refused at load, before a device is opened. Most of these tests need
   no device. */

const NO_VECTORS = 'The GPU does not support embeddings and ranking yet: use backend: "cpu"';
const NO_PROMPTS =
  'Prompts are kept on a disk with the CPU backend only: leave out promptCache, or compute with backend: "cpu"';
const SIZE = { contextLength: 64, parallel: 1, threads: 1 };

async function withModel(
  architecture: Architecture,
  texts: SynthTexts | undefined,
  test: (model: string, folder: string) => Promise<void>,
): Promise<void> {
  const folder = await Deno.makeTempDir({ prefix: "gpu-refusals-" });
  try {
    const model = join(folder, "m.gguf");
    await Deno.writeFile(model, synthesize({ architecture, types: ["Q8_0"], seed: 1, layers: 1, texts }));
    await test(model, folder);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

fullTier.test("refusals: embedding and reranking models are refused at load, and the message says what to do", async () => {
  const cases: [Architecture, SynthTexts | undefined][] = [
    ["qwen3", { pooling: 3 }],
    ["qwen3", { pooling: 4, labels: 1 }],
    ["bert", undefined],
  ];
  for (const [architecture, texts] of cases) {
    await withModel(architecture, texts, async (model) => {
      await assertRejects(() => loadEngine({ ...SIZE, model, backend: "webgpu" }), GpuError, NO_VECTORS);
    });
  }
  await withModel("qwen3", undefined, async (model) => {
    const asked = { ...SIZE, model, backend: "webgpu", pooling: "mean" } as const;
    await assertRejects(() => loadEngine(asked), GpuError, NO_VECTORS);
  });
});

fullTier.test("refusals: the GPU runs the architectures that docs/MODELS.md lists, and errors name what it lacks for others", async () => {
  const runs: string[] = [];
  for (const architecture of Object.keys(SYNTH_MODELS) as Architecture[]) {
    const file = await parseGguf(synthesize({ architecture, types: ["Q8_0"], seed: 1 }));
    const plan = await readPlan(file);
    try {
      lower(plan);
      runs.push(architecture);
    } catch (error) {
      assertMatch((error as Error).message, /^Cannot run .*use backend: "cpu"$/);
    }
  }
  const page = await Deno.readTextFile(new URL("../../docs/MODELS.md", import.meta.url));
  const [, row] = /^\| decoders on the CPU and the GPU \| (.*)$/m.exec(page)!;
  // The row's other names are architectures that use the decoder of one of these families.
  const named = new Set(row.match(/\w+/g)!.filter((name) => name in SYNTH_MODELS));
  assertEquals(runs.sort(), [...named].sort());
});

fullTier.test("auto: takes the CPU for an embedding model and says why", () =>
  withModel("qwen3", { pooling: 3 }, async (model) => {
    const { engine, backend, choice } = await loadEngine({ ...SIZE, model, backend: "auto" });
    try {
      assertEquals(backend.info.name, "cpu");
      assertStringIncludes(choice, NO_VECTORS);
      assertEquals((await engine.embed({ inputs: [[1, 2, 3]] })).rows.length, 1);
    } finally {
      await engine.close();
    }
  }));

fullTier.test("refusals: a disk cache on the GPU is refused before the server listens, also for several models", () =>
  withModel("qwen3", undefined, async (_, folder) => {
    const promptCache = { folder: join(folder, "prompts"), bytes: 1e6 };
    const load = { ...SIZE, backend: "webgpu", promptCache } as const;
    const quiet = { aliases: () => [], reloads: false, note: () => {}, describe: () => {} };
    await assertRejects(() => openPool({ ...quiet, files: [], folder, load }), Error, NO_PROMPTS);
  }));

fullTier.test("auto: takes the CPU for a disk cache and says why", () =>
  withModel("qwen3", undefined, async (model, folder) => {
    const promptCache = { folder: join(folder, "prompts"), bytes: 1e6 };
    const { engine, backend, choice } = await loadEngine({ ...SIZE, model, backend: "auto", promptCache });
    await engine.close();
    assertEquals(backend.info.name, "cpu");
    assertStringIncludes(choice, NO_PROMPTS);
  }));

fullTier.test("auto: takes the CPU for drafts and says why", () =>
  withModel("qwen3", undefined, async (model) => {
    for (
      const [asked, option] of [[{ speculate: "lookup" }, 'speculate: "lookup"'], [
        { draft: model },
        "draft",
      ]] as const
    ) {
      const { engine, backend, choice } = await loadEngine({ ...SIZE, model, backend: "auto", ...asked });
      await engine.close();
      assertEquals([backend.info.name, choice], [
        "cpu",
        `auto: ${option} is not supported on a GPU: leave it out, or compute with backend: "cpu"`,
      ]);
    }
  }));

gpuTest(
  "refusals: a generating model refuses embedding requests and keeps generating",
  () =>
    withModel("qwen3", undefined, async (model) => {
      const { engine } = await loadEngine({ ...SIZE, model, backend: "webgpu" });
      try {
        const refused = await assertRejects(
          () => engine.embed({ inputs: [[1, 2]] }),
          EngineError,
          NO_VECTORS,
        );
        assertEquals(refused.code, "not_supported");
        const events = await Array.fromAsync(
          engine.submit({ prompt: [1, 2], maxTokens: 2, ignoreEos: true }),
        );
        assertEquals(events.at(-1)?.type, "finish");
      } finally {
        await engine.close();
      }
    }),
);
