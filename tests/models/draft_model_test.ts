/** A draft model (`--draft`) with the kernels: answers stay the same, and invalid combinations are refused. */
import { assert, assertEquals, assertRejects } from "@std/assert";
import { fromFileUrl } from "@std/path";
import { loadEngine, measureModel } from "../../engine/load/load.ts";
import type { LoadOptions } from "../../engine/load/options.ts";
import type { GenerateRequest } from "../../engine/mod.ts";
import { synthesize } from "../../testing/synth/synth.ts";

const DEMO = fromFileUrl(new URL("../../models/demo.gguf", import.meta.url));

async function answersWith(
  options: Partial<LoadOptions>,
): Promise<{ texts: string[]; drafted: number; accepted: number }> {
  const { engine } = await loadEngine({
    model: DEMO,
    contextLength: 512,
    parallel: 3,
    threads: 2,
    ...options,
  });
  try {
    const prompt = engine.encodeChat([{ role: "user", content: "Tell me a story." }]);
    const requests: GenerateRequest[] = [
      { prompt, maxTokens: 40, sampling: { temperature: 0 } },
      { prompt, maxTokens: 40, sampling: { temperature: 0.9, seed: 3, repetitionPenalty: 1.1 } },
      {
        prompt,
        maxTokens: 60,
        sampling: { temperature: 0.7, seed: 5 },
        constraint: {
          kind: "json_schema",
          schema: { type: "object", properties: { said: { type: "string" } } },
        },
      },
    ];
    const texts = await Promise.all(requests.map(async (request) => {
      let text = "";
      for await (const event of engine.submit(request)) {
        if (event.type === "token" || event.type === "finish") text += event.text;
      }
      return text;
    }));
    const { draftedTokens: drafted, acceptedTokens: accepted } = engine.stats();
    return { texts, drafted, accepted };
  } finally {
    await engine.close();
  }
}

Deno.test("draft model: answers equal the answers without a draft model", async () => {
  const plain = await answersWith({ speculate: "off" });
  const drafted = await answersWith({ speculate: "draft", draft: DEMO });
  assertEquals(drafted.texts, plain.texts);
  assertEquals(plain.drafted, 0);
  assert(drafted.accepted <= drafted.drafted);
});

Deno.test("draft model: the memory size includes the draft model before and after loading", async () => {
  const size = { model: DEMO, contextLength: 256, parallel: 2 };
  const sum = (memory: object) =>
    Object.values(memory).reduce((all: number, bytes: number) => all + bytes, 0);
  const plain = await measureModel(size);
  const drafting = await measureModel({ ...size, draft: DEMO });
  assert(drafting.memory.weights === 2 * plain.memory.weights, `${drafting.memory.weights}`);
  assert(sum(drafting.memory) > sum(plain.memory) + plain.memory.weights);
  await assertRejects(
    () => measureModel({ ...size, draft: DEMO, freeBytes: sum(drafting.memory) - 1e6 }),
    Error,
    "The model needs",
  );
});

Deno.test("draft model: another vocabulary, an encoder and contradictory options are refused", async () => {
  const other = await Deno.makeTempFile({ prefix: "compy-test-", suffix: ".gguf" });
  try {
    await Deno.writeFile(other, synthesize({ architecture: "llama", seed: 3, types: ["Q8_0"], layers: 2 }));
    const refused = (options: Partial<LoadOptions>, message: string) =>
      assertRejects(() => measureModel({ model: DEMO, ...options }), Error, message);
    await refused({ draft: other }, `Cannot draft with ${other}:`);
    await refused({ draft: other }, "name a smaller model of the same family and version (draft)");
    await refused(
      { draft: DEMO, speculate: "lookup" },
      'is for speculate: "auto" or speculate: "draft" (got "lookup")',
    );
    await refused({ speculate: "draft" }, "name its file with draft");
    await refused(
      { speculate: "lookup", backend: "webgpu" },
      'speculate: "lookup" is not supported on a GPU',
    );
    await refused({ draft: DEMO, backend: "webgpu" }, "draft is not supported on a GPU");
  } finally {
    await Deno.remove(other);
  }
});
