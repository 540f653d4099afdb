import { assert, assertEquals, assertThrows } from "@std/assert";
import { inspectModel } from "../load/inspect.ts";
import { GgufError } from "../gguf/errors.ts";
import { parseGguf } from "../gguf/reader.ts";
import { type GgufBuilder, smallModel as tinyModel } from "../gguf/testing.ts";
import { isLeftOut } from "./left_out.ts";
import { buildPlan } from "./registry.ts";

/** A small model whose heads of 16 the kernels support. */
function smallModel(): GgufBuilder {
  const keys = { head_count: 2, head_count_kv: 1, key_length: 16, value_length: 16 };
  const model = tinyModel();
  for (const [key, value] of Object.entries(keys)) model.set(`llama.attention.${key}`, "UINT32", value);
  return model.set("llama.rope.dimension_count", "UINT32", 16);
}

/** Builds the plan of a small model after a change to its file. */
function plan(change: (model: GgufBuilder) => GgufBuilder) {
  return buildPlan(parseGguf(change(smallModel()).build().bytes));
}

const EXTRA = {
  "v.patch_embd.weight": 64,
  "v.blk.0.attn_q.weight": 32,
  "mm.0.weight": 32,
  "a.conv1d.1.weight": 96,
  "blk.7.nextn.eh_proj.weight": 32,
};

Deno.test("left-out parts: ignores parts that texts do not need, and refuses other unread tensors", () => {
  const usual = plan((model) => model);
  const more = plan((model) => {
    for (const [name, length] of Object.entries(EXTRA)) model.tensor(name, "F32", [length]);
    return model;
  });
  assertEquals(more.tensors.map(({ info }) => info.name), usual.tensors.map(({ info }) => info.name));
  assertThrows(
    () => plan((model) => model.tensor("blk.0.extra.weight", "F32", [32])),
    GgufError,
    "blk.0.extra.weight",
  );
  assert(!isLeftOut("vector.weight") && !isLeftOut("output.weight") && !isLeftOut("attn.weight"));
});

Deno.test("inspection: lists left-out parts, largest first", async () => {
  const path = await Deno.makeTempFile({ suffix: ".gguf" });
  try {
    const model = smallModel();
    for (const [name, length] of Object.entries(EXTRA)) model.tensor(name, "F32", [length]);
    await Deno.writeFile(path, model.build().bytes);
    const { plan } = await inspectModel({ model: path });
    if ("refusal" in plan) throw new Error(plan.refusal);
    assertEquals(plan.leftOut, [
      { part: "vision", tensors: 3, bytes: 512 },
      { part: "audio", tensors: 1, bytes: 384 },
      { part: "drafting (MTP)", tensors: 1, bytes: 128 },
    ]);
  } finally {
    await Deno.remove(path);
  }
});

Deno.test("file type: explains files that are not models and what to do", () => {
  for (
    const [type, words] of [["mmproj", "vision"], ["adapter", "an adapter with lora"], [
      "imatrix",
      "statistics",
    ]]
  ) {
    const error = assertThrows(
      () =>
        plan((model) =>
          model.set("general.type", "STRING", type).set("general.architecture", "STRING", "clip")
        ),
      GgufError,
    );
    for (const part of ["general.type", `"${type}"`, words]) {
      assert(error.message.includes(part), error.message);
    }
  }
  assertThrows(() => plan((model) => model.set("general.type", "UINT32", 3)), GgufError, "general.type");
});

Deno.test("file type: accepts a model with metadata about quantization and tags", () => {
  plan((model) =>
    model.set("general.type", "STRING", "model")
      .set("quantize.imatrix.file", "STRING", "imatrix.gguf")
      .set("quantize.imatrix.dataset", "STRING", "calibration.txt")
      .set("quantize.imatrix.entries_count", "INT32", 224)
      .set("quantize.imatrix.chunks_count", "INT32", 123)
      .array("general.tags", "STRING", ["text-generation"])
      .array("general.languages", "STRING", ["en"])
  );
});
