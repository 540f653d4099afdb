/** OLMo 2 and 3 and EXAONE 4: windows and rotation of their layers, and files that are refused. */
import { assertAlmostEquals, assertEquals, assertThrows } from "@std/assert";
import { synthesize } from "../../../testing/synth/synth.ts";
import { GgufError } from "../../gguf/errors.ts";
import { MetadataMap } from "../../gguf/metadata.ts";
import { parseGguf } from "../../gguf/reader.ts";
import type { GgufFile, MetadataValue } from "../../gguf/types.ts";
import type { Plan } from "../../plan/plan.ts";
import { buildPlan } from "../registry.ts";

const read = (architecture: "olmo2" | "olmo3" | "exaone4" | "glm4") =>
  parseGguf(synthesize({ architecture, seed: 1, types: ["Q8_0"] }));
const FILES = { olmo2: read("olmo2"), olmo3: read("olmo3"), exaone4: read("exaone4"), glm4: read("glm4") };

function withKeys(file: GgufFile, keys: Readonly<Record<string, MetadataValue>>): GgufFile {
  const prefix = file.metadata.getString("general.architecture");
  const entries = Object.entries(keys).map(([key, value]) => [`${prefix}.${key}`, value] as const);
  return { ...file, metadata: new MetadataMap(new Map([...file.metadata.entries, ...entries])) };
}

/** Adds a tensor with that name, and the place and shape of the tensor `like`. */
function withTensor(file: GgufFile, name: string, like: string): GgufFile {
  const info = { ...file.tensors.get(like)!, name };
  return { ...file, tensors: new Map([...file.tensors, [name, info]]) };
}

const windows = ({ ops }: Plan) => ops.flatMap((op) => op.op === "attention" ? [op.window] : []);
/** Rotated dimensions of each layer's heads. */
const turned = ({ ops }: Plan) => ops.flatMap((op) => op.op === "rope_append" ? [op.rotated] : []);

Deno.test("olmo3: every fourth layer has no window and uses YaRN", () => {
  const plan = buildPlan(FILES.olmo3);
  assertEquals(windows(plan), [40, 40, 40, 0, 40]);
  assertEquals(plan.rope.length, 2);
  const [full, near] = plan.rope;
  assertAlmostEquals(full.magnitude, 1 + 0.1 * Math.log(8), 1e-12);
  assertEquals(near.magnitude, 1);
  const slowest = near.frequencies.length - 1;
  assertAlmostEquals(near.frequencies[slowest] / full.frequencies[slowest], 8, 1e-12);
});

Deno.test("olmo2: layers without a window multiply rotary values by the file's attention factor only", () => {
  const [full, near] = buildPlan(withKeys(FILES.olmo3, { "rope.scaling.attn_factor": 1.25 })).rope;
  assertEquals([full.magnitude, near.magnitude], [1.25, 1]);
});

Deno.test("exaone4: all layers have positions, or with windows only the layers that have one", () => {
  const plain = buildPlan(FILES.exaone4);
  assertEquals([windows(plain), turned(plain)], [[0, 0, 0, 0], [64, 64, 64, 64]]);
  const hybrid = buildPlan(withKeys(FILES.exaone4, { "attention.sliding_window": 40 }));
  assertEquals([windows(hybrid), turned(hybrid)], [[40, 40, 40, 0], [64, 64, 64, 0]]);
});

for (const name of ["exaone4", "glm4"] as const) {
  Deno.test(`${name}: leaves out layers that draft tokens`, () => {
    const drafting = withKeys(FILES[name], { nextn_predict_layers: 1 });
    assertEquals(windows(buildPlan(drafting)), [0, 0, 0]);
  });
}

const BAD: readonly (readonly [what: string, field: string, file: GgufFile])[] = [
  [
    "olmo2 with norms of single heads",
    'tensor "blk.1.attn_q_norm.weight"',
    withTensor(FILES.olmo2, "blk.1.attn_q_norm.weight", "blk.1.attn_k_norm.weight"),
  ],
  [
    "olmo2 with a norm before attention",
    'tensor "blk.0.attn_norm.weight"',
    withTensor(FILES.olmo2, "blk.0.attn_norm.weight", "blk.0.post_attention_norm.weight"),
  ],
  [
    "olmo2 with a base of its own for windows",
    'key "olmo2.rope.freq_base_swa"',
    withKeys(FILES.olmo3, { "rope.freq_base_swa": 10_000 }),
  ],
  [
    "olmo2 with a pattern of fewer layers",
    'key "olmo2.attention.sliding_window_pattern"',
    withKeys(FILES.olmo3, { "attention.sliding_window_pattern": [true, true, true, false] }),
  ],
  [
    "olmo2 with experts",
    'key "olmo2.expert_count"',
    withKeys(FILES.olmo2, { expert_count: 4 }),
  ],
  [
    "exaone4 with norms of whole rows",
    'tensor "blk.1.attn_q_norm.weight"',
    withTensor(FILES.exaone4, "blk.1.attn_q_norm.weight", "blk.1.post_attention_norm.weight"),
  ],
  [
    "glm4 whose pairs take positions from images",
    'key "glm4.rope.dimension_sections"',
    withKeys(FILES.glm4, { "rope.dimension_sections": Int32Array.of(8, 12, 12, 0) }),
  ],
  [
    "exaone4 whose layers all draft",
    'key "exaone4.nextn_predict_layers"',
    withKeys(FILES.exaone4, { nextn_predict_layers: 4 }),
  ],
];

for (const [what, field, file] of BAD) {
  Deno.test(`post-normed decoders: refuses ${what}`, () => {
    const error = assertThrows(() => buildPlan(file), GgufError);
    assertEquals([error.code, error.field], ["GGUF_HPARAM", field]);
  });
}
