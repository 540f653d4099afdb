/** Decoders with LayerNorm: windows, norms and logit scales, and files that are refused. */
import { assertEquals, assertNotEquals, assertThrows } from "@std/assert";
import { type Architecture, synthesize } from "../../../testing/synth/synth.ts";
import { GgufError } from "../../gguf/errors.ts";
import { parseGguf } from "../../gguf/reader.ts";
import { GgufBuilder } from "../../gguf/testing.ts";
import { changed, type Changes } from "../../gguf/testing_changes.ts";
import type { GgufFile } from "../../gguf/types.ts";
import type { Plan } from "../../plan/plan.ts";
import { graphOf } from "../../plan/testing.ts";
import { buildPlan } from "../registry.ts";

const read = (architecture: Architecture, layers?: number): GgufFile =>
  parseGguf(synthesize({ architecture, types: ["F32"], seed: 1, layers }));
const FILES = {
  cohere2: read("cohere2"),
  "command-r": read("command-r", 2),
  "command-r-plus": read("command-r-plus", 2),
  starcoder2: read("starcoder2", 2),
  nemotron: read("nemotron", 2),
  gpt2: read("gpt2", 2),
};

const opsOf = <O extends Plan["ops"][number]["op"]>({ ops }: Plan, name: O) =>
  ops.filter((op): op is Extract<Plan["ops"][number], { op: O }> => op.op === name);
const windows = (plan: Plan) => opsOf(plan, "attention").map(({ window }) => window);
/** Rotated dimensions of each layer's heads. */
const turned = (plan: Plan) => opsOf(plan, "rope_append").map(({ rotated }) => rotated);

Deno.test("cohere2: every fourth layer has no window and no positions", () => {
  const plan = buildPlan(FILES.cohere2);
  assertEquals([windows(plan), turned(plan)], [[40, 40, 40, 0, 40], [32, 32, 32, 0, 32]]);
  const pattern = changed(FILES.cohere2, { key: ["attention.sliding_window_pattern", 2] });
  assertEquals(windows(buildPlan(pattern)), [40, 0, 40, 0, 40]);
});

Deno.test("command-r: no layer has a window, and all have positions", () => {
  const plan = buildPlan(FILES["command-r"]);
  assertEquals([windows(plan), turned(plan)], [[0, 0], [64, 64]]);
});

Deno.test("command-r: attention and feed-forward read the same norm output", () => {
  const plan = buildPlan(FILES["command-r"]);
  const [norm] = opsOf(plan, "layer_norm");
  const [queries] = opsOf(plan, "matmul");
  const [ffn] = opsOf(plan, "glu");
  assertEquals([queries.x.float, ffn.x.float], [norm.out.float, norm.out.float]);
  assertEquals(opsOf(plan, "layer_norm").length, 2 + 1 + 1); // norms of layers, of logits and of pooling
});

Deno.test("command-r: multiplies logits by the file's scale", () => {
  const scales = (file: GgufFile) => opsOf(buildPlan(file), "candidates").map(({ scale }) => scale);
  assertEquals(scales(FILES["command-r"]), [1.25]);
  assertEquals(scales(changed(FILES["command-r"], { key: ["logit_scale", 0.0625] })), [0.0625]);
});

Deno.test("command-r: norms each head when the file has the weights", () => {
  const groups = (file: GgufFile) => opsOf(buildPlan(file), "layer_norm").map(({ groups }) => groups);
  assertEquals(groups(FILES["command-r-plus"]), [1, 8, 2, 1, 8, 2, 1, 1]);
});

Deno.test("command-r: the norm follows last-row pooling, and precedes mean pooling", () => {
  const rows = (kind: "last" | "mean") => {
    const plan = buildPlan(FILES["command-r"], undefined, { kind, labels: 0 });
    return opsOf(plan, "layer_norm").map(({ x, out }) =>
      [x, out.float!].map((buffer) => plan.buffers[buffer].rows).join()
    ).slice(2);
  };
  assertEquals(rows("last"), ["step,logits", "pools,pools"]);
  assertEquals(rows("mean"), ["step,logits", "step,step"]);
});

Deno.test("starcoder2: has no gate, and adds the file's biases", () => {
  const plan = buildPlan(FILES.starcoder2);
  assertEquals(opsOf(plan, "activated").map(({ activation }) => activation), ["gelu", "gelu"]);
  const biases = [
    ...opsOf(plan, "layer_norm").map(({ bias }) => bias),
    ...opsOf(plan, "activated").map(({ bias }) => bias),
    ...opsOf(plan, "matmul").slice(0, -1).flatMap(({ parts }) => parts.map(({ bias }) => bias)),
  ];
  assertEquals(biases.filter((bias) => bias === undefined), []);
});

Deno.test("nemotron: uses a squared ReLU and rotates part of each head", () => {
  const plan = buildPlan(FILES.nemotron);
  assertEquals(opsOf(plan, "activated").map(({ activation }) => activation), [
    "squared_relu",
    "squared_relu",
  ]);
  assertEquals(turned(plan), [32, 32]);
});

/** Returns the file as one of another architecture with the same layers. */
const as = (architecture: string, file: GgufFile): GgufFile => {
  const of = file.metadata.getString("general.architecture");
  const builder = new GgufBuilder();
  for (const [key, value] of file.metadata.entries) {
    const name = key.replace(new RegExp(`^${of}\\.`), `${architecture}.`);
    if (typeof value === "number") builder.set(name, Number.isInteger(value) ? "UINT32" : "FLOAT64", value);
  }
  builder.set("general.architecture", "STRING", architecture);
  const { metadata } = parseGguf(builder.build().bytes);
  return { ...file, metadata };
};

Deno.test("starcoder: equals GPT-2's decoder", () => {
  const file = as("starcoder", FILES.gpt2);
  assertEquals(graphOf(buildPlan(file)), graphOf(buildPlan(as("gpt2", FILES.gpt2))));
});

Deno.test("jais2: equals StarCoder2's decoder but for the activation", () => {
  const [jais, starcoder] = ["jais2", "starcoder2"].map((name) =>
    graphOf(buildPlan(as(name, FILES.starcoder2)))
  );
  assertEquals(jais.replaceAll("squared_relu(", "gelu("), starcoder);
  assertNotEquals(jais, starcoder);
});

Deno.test("gpt2: adds a learned row for each position, and rotates no heads", () => {
  const plan = buildPlan(FILES.gpt2);
  assertEquals(opsOf(plan, "embed_positions").map(({ positions }) => plan.tensors[positions!].rows), [640]);
  assertEquals([turned(plan), plan.rope.length], [[0, 0], 0]);
});

Deno.test("gpt2: refuses another number of positions than the context length", () => {
  const file = changed(FILES.gpt2, { key: ["context_length", 639] });
  const error = assertThrows(() => buildPlan(file), GgufError);
  assertEquals(error.field, 'tensor "position_embd.weight"');
});

const NORM = "blk.1.attn_q_norm.weight";
const REFUSED: readonly (readonly [name: keyof typeof FILES, change: Changes, field: string])[] = [
  ["cohere2", { key: ["attention.sliding_window", undefined] }, "attention.sliding_window"],
  ["cohere2", { key: ["attention.sliding_window", 0] }, "attention.sliding_window"],
  ["cohere2", { key: ["attention.sliding_window_pattern", [true]] }, "attention.sliding_window_pattern"],
  ["cohere2", { key: ["rope.freq_base_swa", 5000] }, "rope.freq_base_swa"],
  ["cohere2", { key: ["logit_scale", undefined] }, "logit_scale"],
  ["cohere2", { key: ["expert_count", 8] }, "expert_count"],
  ["cohere2", { tensor: ["blk.0.attn_q_norm.weight", [32, 8]] }, "blk.0.attn_q_norm.weight"],
  ["cohere2", { tensor: ["blk.3.ffn_norm.weight", [256]] }, "blk.3.ffn_norm.weight"],
  ["command-r", { key: ["logit_scale", undefined] }, "logit_scale"],
  ["command-r", { key: ["logit_scale", -1] }, "logit_scale"],
  ["command-r", { key: ["logit_scale", 0] }, "logit_scale"],
  ["command-r", { key: ["attention.layer_norm_epsilon", undefined] }, "attention.layer_norm_epsilon"],
  ["command-r", { key: ["attention.causal", false] }, "attention.causal"],
  ["command-r", { tensor: ["output_norm.bias", [128]] }, "output_norm.bias"],
  ["command-r", { tensor: [NORM, [32, 8]] }, NORM],
  ["command-r-plus", { tensor: [NORM, undefined] }, NORM],
  ["command-r-plus", { tensor: [NORM, [32]] }, NORM],
  ["command-r-plus", { tensor: ["blk.0.attn_k_norm.weight", [32, 8]] }, "blk.0.attn_k_norm.weight"],
  ["starcoder2", { key: ["attention.layer_norm_epsilon", undefined] }, "attention.layer_norm_epsilon"],
  ["starcoder2", { key: ["expert_count", 8] }, "expert_count"],
  ["starcoder2", { tensor: ["blk.0.ffn_gate.weight", [256, 768]] }, "blk.0.ffn_gate.weight"],
  ["starcoder2", { tensor: ["blk.1.ffn_norm.weight", undefined] }, "blk.1.ffn_norm.weight"],
  ["starcoder2", { tensor: ["blk.1.attn_output.bias", [64]] }, "blk.1.attn_output.bias"],
  ["gpt2", { tensor: ["position_embd.weight", undefined] }, "position_embd.weight"],
  ["gpt2", { tensor: ["blk.0.attn_qkv.bias", [767]] }, "blk.0.attn_qkv.bias"],
  ["gpt2", { tensor: ["blk.1.ffn_norm.weight", undefined] }, "blk.1.ffn_norm.weight"],
  ["nemotron", { key: ["attention.layer_norm_epsilon", 0] }, "attention.layer_norm_epsilon"],
  ["nemotron", { key: ["rope.dimension_count", 33] }, "rope.dimension_count"],
  ["nemotron", { tensor: ["blk.0.ffn_gate.weight", [256, 768]] }, "blk.0.ffn_gate.weight"],
  ["nemotron", { tensor: ["output_norm.weight", undefined] }, "output_norm.weight"],
];

for (const [name, change, field] of REFUSED) {
  const [what, value] = change.key ?? change.tensor!;
  Deno.test(`${name}: refuses ${what} ${value === undefined ? "missing" : `of ${value}`}`, () => {
    const error = assertThrows(() => buildPlan(changed(FILES[name], change)), GgufError);
    const architecture = FILES[name].metadata.getString("general.architecture");
    assertEquals(error.field, change.key ? `key "${architecture}.${field}"` : `tensor "${field}"`);
  });
}
