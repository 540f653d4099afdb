/** Tests the refusals of drafters' files: their messages, and the report on a model whose drafter is refused. */
import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { readDflash } from "../../engine/architectures/drafters/dflash.ts";
import { readPlan } from "../../engine/architectures/registry.ts";
import { EngineError } from "../../engine/api/errors.ts";
import { GgufError } from "../../engine/gguf/errors.ts";
import { MetadataMap } from "../../engine/gguf/metadata.ts";
import { openGguf } from "../../engine/gguf/reader.ts";
import { changed, type Changes } from "../../engine/gguf/testing_changes.ts";
import type { GgufFile } from "../../engine/gguf/types.ts";
import { commonVocabulary } from "../../engine/load/draft_vocabulary.ts";
import { planIn } from "../../engine/load/drafters/fit.ts";
import { openGemma4Assistant } from "../../engine/load/drafters/gemma4_assistant.ts";
import { openRowDrafter } from "../../engine/load/drafters/row_drafter.ts";
import type { OpenDrafter } from "../../engine/load/drafters/types.ts";
import { inspectModel } from "../../engine/load/inspect.ts";
import { measureModel } from "../../engine/load/load.ts";
import type { Tokenizer } from "../../engine/tokenizer/types.ts";
import { synthesizeDflash } from "../../testing/synth/drafters/dflash.ts";
import { synthesizeGemma4Assistant } from "../../testing/synth/drafters/gemma4_assistant.ts";
import { type Architecture, synthesize } from "../../testing/synth/synth.ts";
import { fullTier } from "../../testing/tier.ts";
import { withFiles } from "./drafter_files.ts";

const model = (architecture: Architecture, context?: number) =>
  synthesize({ architecture, types: ["Q8_0"], seed: 1, layers: 4, context });
const LLAMA = model("llama");
const DFLASH = { type: "Q8_0", seed: 1, layers: [1, 4], mask: 498, tokens: [5, 6] } as const;

const openDflash: OpenDrafter = (file, model) => openRowDrafter(file, model, readDflash);

/** Opens a changed drafter and builds its plan. Returns the path of the drafter and its refusal. */
function refused(
  [model, drafter]: readonly [model: Uint8Array, drafter: Uint8Array],
  open: OpenDrafter,
  change: (file: GgufFile) => GgufFile,
): Promise<{ readonly draft: string; readonly error: GgufError | EngineError }> {
  return withFiles(model, drafter, async (path, draft) => {
    try {
      const opened = await open(change(await openGguf(draft)), await openGguf(path));
      await planIn(opened, readPlan(opened.joined, undefined, { drafter: opened.description }));
    } catch (error) {
      if (error instanceof GgufError || error instanceof EngineError) return { draft, error };
      throw error;
    }
    throw new Error("the drafter is accepted");
  });
}

/** Returns the code and the field of a GgufError. */
function placeOf(error: GgufError | EngineError) {
  return [error.code, "field" in error ? error.field : undefined];
}

const ASSISTANT = synthesizeGemma4Assistant(model("gemma4"), { type: "Q8_0", seed: 1 });
const FAULTS: readonly (readonly [Changes, field: string])[] = [
  [{ tensor: ["output.weight", undefined] }, 'tensor "output.weight"'],
  [{ tensor: ["blk.1.attn_q_norm.weight", undefined] }, 'tensor "blk.1.attn_q_norm.weight"'],
  [{ tensor: ["fc.weight", [32, 32]] }, 'tensor "fc.weight"'],
  [{ tensor: ["blk.2.attn_norm.weight", [256]] }, 'tensor "blk.2.attn_norm.weight"'],
  [{ tensor: ["blk.01.attn_norm.weight", [256]] }, 'tensor "blk.01.attn_norm.weight"'],
  [{ key: ["block_count", 1] }, 'tensor "blk.1.attn_norm.weight"'],
  [{ key: ["attention.value_length", 16] }, 'key "dflash.attention.value_length"'],
];

for (const [change, field] of FAULTS) {
  Deno.test(`drafters: names the drafter's file and ${field} in an error [${JSON.stringify(change)}]`, async () => {
    const files = [LLAMA, synthesizeDflash(LLAMA, DFLASH)] as const;
    const { draft, error } = await refused(files, openDflash, (file) => changed(file, change));
    assert(error.message.startsWith(`In "${draft}": GGUF_HPARAM ${field}: `), error.message);
    assertEquals(placeOf(error), ["GGUF_HPARAM", field]);
  });
}

Deno.test("drafters: names the drafter's file in an error of its vocabulary", async () => {
  const { draft, error } = await refused([LLAMA, synthesizeDflash(LLAMA, DFLASH)], openDflash, (file) => {
    const entries = new Map([...file.metadata.entries, ["tokenizer.ggml.model", "none"] as const]);
    return { ...file, metadata: new MetadataMap(entries) };
  });
  assert(error.message.startsWith(`In "${draft}": `), error.message);
});

Deno.test("drafters: refuses a token table that is larger than the vocabulary before reading it", async () => {
  const drafter = synthesizeDflash(LLAMA, { ...DFLASH, tokens: Array(501).fill(3) });
  const { error } = await refused([LLAMA, drafter], openDflash, (file) => ({
    ...file,
    open: () => Promise.reject(new Error("reads the table")),
  }));
  assertEquals(placeOf(error), ["GGUF_HPARAM", 'tensor "d2t"']);
});

const OTHER_KEYS = [
  ["rope.freq_base", 5e5],
  ["rope.freq_base_swa", 77],
  ["rope.dimension_count_swa", 16],
] as const;

for (const key of OTHER_KEYS) {
  Deno.test(`drafters: refuses a drafter for Gemma 4 whose ${key[0]} differs from the model's`, async () => {
    const files = [model("gemma4"), ASSISTANT] as const;
    const { error } = await refused(files, openGemma4Assistant, (file) => changed(file, { key }));
    assert(error.message.includes(`: its ${key[0]} is `), error.message);
  });
}

Deno.test("inspection: describes the model without a drafter that does not fit its plan", async () => {
  const drafter = synthesizeDflash(LLAMA, { ...DFLASH, shape: { headDim: 24 } });
  await withFiles(LLAMA, drafter, async (path, draft) => {
    const plain = await inspectModel({ model: path });
    const report = await inspectModel({ model: path, draft });
    assertStringIncludes(JSON.stringify(report.drafter), `{"refusal":"In \\"${draft}\\"`);
    assert("layers" in report.plan, JSON.stringify(report.plan));
    assertEquals({ ...report.plan, free: 0 }, { ...plain.plan, free: 0 });
    assertEquals([report.files, report.fileBytes], [1, plain.fileBytes]);
    await assertRejects(() => measureModel({ model: path, draft }), GgufError, draft);
  });
});

fullTier.test("inspection: reports the free memory with a draft model that needs more", async () => {
  const { runJson } = await import("../../testing/commands.ts");
  const large = model("llama", 2 ** 24);
  await withFiles(large, large, async (path, draft) => {
    const limits = ["--ctx", String(2 ** 24), "--parallel", "16"];
    const { memory_free, drafter } = await runJson("inspect", "--model", path, "--draft", draft, ...limits);
    assert(memory_free > 0 && memory_free < drafter.memory.kv, `${memory_free} of ${drafter.memory.kv}`);
  });
});

Deno.test("drafters: the event loop runs while large vocabularies are compared", async () => {
  const vocabSize = 200_000;
  const tokenizer = {
    vocabSize,
    bytes: () => new Uint8Array(8),
    isControl: () => false,
  } as unknown as Tokenizer;
  let ticks = 0;
  const timer = setInterval(() => ticks++, 1);
  try {
    assertEquals(await commonVocabulary("", tokenizer, tokenizer), vocabSize);
  } finally {
    clearInterval(timer);
  }
  assert(ticks > 1, `${ticks} ticks`);
});
