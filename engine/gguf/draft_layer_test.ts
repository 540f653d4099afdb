/** Layers that draft: optional parts, and files that are refused. */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { synthesize } from "../../testing/synth/synth.ts";
import { buildPlan, hasDraftLayer } from "../architectures/registry.ts";
import { lower } from "../backend/webgpu/lowering.ts";
import { planCost } from "../plan/cost.ts";
import { layerKinds } from "../plan/layers.ts";
import { canDraft } from "../plan/ops/registry.ts";
import { kvBytesPerToken, stateBytes } from "../plan/plan.ts";
import { printPlan } from "../plan/print.ts";
import { GgufError } from "./errors.ts";
import { parseGguf } from "./reader.ts";
import { changed } from "./testing_changes.ts";
import type { GgufFile } from "./types.ts";

const synthetic = (architecture: "qwen35" | "qwen35moe", drafts?: number) =>
  parseGguf(synthesize({ architecture, types: ["F32"], seed: 1, layers: 4, drafts }));
const FILE = synthetic("qwen35", 1);
const MIXTURE = synthetic("qwen35moe", 1);
const drafting = (file: GgufFile) => buildPlan(file, undefined, undefined, { drafts: true });

const TENSORS: readonly (readonly [name: string, shape: number[] | undefined])[] = [
  ["nextn.eh_proj.weight", undefined],
  ["nextn.eh_proj.weight", [256, 256]],
  ["nextn.eh_proj.weight", [512, 512]],
  ["nextn.enorm.weight", undefined],
  ["nextn.enorm.weight", [512]],
  ["nextn.hnorm.weight", undefined],
  ["nextn.hnorm.weight", [255]],
  ["nextn.shared_head_norm.weight", [257]],
  ["nextn.shared_head_head.weight", [256, 499]],
  ["nextn.embed_tokens.weight", [256, 501]],
  ["nextn.embed_tokens.weight", [128, 500]],
  ["attn_norm.weight", undefined],
  ["attn_q.weight", [256, 256]],
  ["attn_k.weight", undefined],
  ["attn_v.weight", [256, 64]],
  ["attn_k_norm.weight", [32]],
  ["attn_output.weight", undefined],
  ["post_attention_norm.weight", undefined],
  ["ffn_down.weight", [256, 768]],
  ["ssm_a.weight", [8]],
];

for (const [name, shape] of TENSORS) {
  const how = shape ? `of ${shape.join(" x ")}` : "missing";
  Deno.test(`draft layer: refuses the tensor ${name} ${how}`, () => {
    const file = changed(FILE, { tensor: [`blk.4.${name}`, shape] });
    const error = assertThrows(() => drafting(file), GgufError);
    assertEquals([error.code, error.field], ["GGUF_HPARAM", `tensor "blk.4.${name}"`]);
    buildPlan(file); // the plan without drafts is valid
  });
}

for (const count of [-1, 0.5, 5, 2 ** 31, "one"]) {
  Deno.test(`draft layer: refuses nextn_predict_layers of ${count}`, () => {
    const error = assertThrows(
      () => drafting(changed(FILE, { key: ["nextn_predict_layers", count] })),
      GgufError,
    );
    assertEquals(error.field, 'key "qwen35.nextn_predict_layers"');
  });
}

Deno.test("draft layer: exists if the file has all its parts, and leaves the plan without drafts unchanged", () => {
  for (const file of [FILE, MIXTURE]) {
    assert(hasDraftLayer(file));
    assert(canDraft(drafting(file)) && !canDraft(buildPlan(file)));
  }
  for (const name of ["nextn.eh_proj", "nextn.enorm", "nextn.hnorm", "attn_q"]) {
    assert(!hasDraftLayer(changed(FILE, { tensor: [`blk.4.${name}.weight`, undefined] })), name);
  }
  assert(!hasDraftLayer(synthetic("qwen35")));
  assert(!hasDraftLayer(parseGguf(synthesize({ architecture: "llama", types: ["F32"], seed: 1 }))));
  assertEquals(printPlan(buildPlan(FILE)), printPlan(buildPlan(synthetic("qwen35"))));
});

Deno.test("draft layer: uses the first of several draft layers and leaves out the others", () => {
  const several = synthetic("qwen35", 3);
  assertEquals(printPlan(drafting(several)), printPlan(drafting(FILE)));
});

Deno.test("draft layer: shares the model's embedding, output and norm, or has its own tensors", () => {
  const text = (file: GgufFile) => printPlan(drafting(file)).split("recall(")[1];
  const shared = text(changed(FILE, { tensor: ["blk.4.nextn.shared_head_norm.weight", undefined] }));
  for (
    const name of ["embed(token_embd.weight", " output_norm.weight:F32", " token_embd.weight:F32:500x256 of"]
  ) {
    assert(shared.includes(name), name);
  }
  let file = changed(FILE, { tensor: ["blk.4.nextn.shared_head_head.weight", [256, 500]] });
  file = changed(file, { tensor: ["blk.4.nextn.embed_tokens.weight", [256, 500]] });
  const own = text(file);
  for (const name of ["embed_tokens", "shared_head_head", "shared_head_norm"]) {
    assert(own.includes(`blk.4.nextn.${name}.weight`), name);
  }
  assert(!own.includes("token_embd") && !own.includes("output_norm"));
});

Deno.test("draft layer: chooses from a quarter of a large vocabulary, and the model from all of it", () => {
  const file = parseGguf(
    synthesize({
      architecture: "qwen35",
      types: ["Q8_0"],
      seed: 1,
      layers: 4,
      drafts: 1,
      vocabulary: 40_008,
      hollow: true,
    }),
  );
  const [step, draft] = printPlan(drafting(file)).split("recall(");
  assert(step.includes(" = token_embd.weight:Q8_0:40008x256 of"));
  assert(draft.includes(" = token_embd.weight[0:10016]:Q8_0:10016x256 of"), draft);
  const few = buildPlan(FILE, undefined, undefined, { drafts: true, draftTokens: 160 });
  assert(printPlan(few).includes("token_embd.weight[0:160]:F32:160x256"));
});

Deno.test("draft layer: takes memory in the KV cache and the states, and is listed as a drafting layer", () => {
  const [plain, plan] = [buildPlan(FILE), drafting(FILE)];
  assertEquals(kvBytesPerToken(plan), 2 * kvBytesPerToken(plain));
  assertEquals(stateBytes(plan) - stateBytes(plain), 4 * 256);
  assertEquals(layerKinds(plan).map(({ kind, count }) => `${count} of ${kind}`), [
    "3 of Gated DeltaNet",
    "1 of attention",
    "1 of attention, drafts",
  ]);
  const cost = (p: typeof plan) => planCost(p, ({ rows, columns }) => rows * columns);
  assertEquals(cost(plan).kvBytesPerToken, cost(plain).kvBytesPerToken);
  // The draft layer computes keys and values for each token, and the rows that they come from.
  assertEquals(cost(plan).weightBytes - cost(plain).weightBytes, 512 * 256 + 2 * 256 * 128);
  assertThrows(() => lower(plan), Error, 'it has no "shift"; use backend: "cpu"');
});
