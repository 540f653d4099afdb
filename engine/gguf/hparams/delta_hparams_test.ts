import { assertEquals, assertThrows } from "@std/assert";
import { readDeltaHparams } from "./delta_hparams.ts";
import { GgufError } from "../errors.ts";
import { readHparams } from "./hparams.ts";
import { parseGguf } from "../reader.ts";
import { GgufBuilder } from "../testing.ts";

const KEYS = {
  block_count: 9,
  context_length: 128,
  embedding_length: 256,
  feed_forward_length: 512,
  "attention.head_count": 4,
  "attention.head_count_kv": 2,
  "rope.dimension_count": 16,
  "ssm.conv_kernel": 4,
  "ssm.inner_size": 192,
  "ssm.state_size": 32,
  "ssm.time_step_rank": 6,
  "ssm.group_count": 2,
  full_attention_interval: 3,
  nextn_predict_layers: 1,
};

/** Reads hyper-parameters after changes to keys; undefined removes a key. */
function read(changes: Record<string, number | undefined> = {}, sections = [3, 3, 2, 0]) {
  const builder = new GgufBuilder().set("general.architecture", "STRING", "qwen35");
  for (const [key, value] of Object.entries({ ...KEYS, ...changes })) {
    if (value !== undefined) builder.set(`qwen35.${key}`, "UINT32", value);
  }
  builder.set("qwen35.attention.layer_norm_rms_epsilon", "FLOAT32", 1e-6);
  builder.array("qwen35.rope.dimension_sections", "INT32", sections);
  builder.array("tokenizer.ggml.tokens", "STRING", ["a"]);
  const file = parseGguf(builder.build().bytes);
  return readDeltaHparams(file, readHparams(file));
}

Deno.test("delta hparams: reads the keys and does not count layers that draft", () => {
  assertEquals(read(), { layers: 8, attentionInterval: 3, keyHeads: 2, valueHeads: 6, headDim: 32 });
  const { layers, attentionInterval } = read({
    full_attention_interval: undefined,
    nextn_predict_layers: undefined,
  });
  assertEquals([layers, attentionInterval], [9, 4]);
});

const REFUSED: readonly (readonly [key: string, value: number | undefined])[] = [
  ["ssm.conv_kernel", 3],
  ["ssm.conv_kernel", undefined],
  ["ssm.group_count", 4],
  ["ssm.group_count", 0],
  ["ssm.time_step_rank", undefined],
  ["ssm.time_step_rank", 1_000_000],
  ["ssm.state_size", 48],
  ["ssm.state_size", 512],
  ["ssm.inner_size", 200],
  ["full_attention_interval", 0],
  ["nextn_predict_layers", 9],
];

for (const [key, value] of REFUSED) {
  Deno.test(`delta hparams: refuses ${key} ${value === undefined ? "missing" : `of ${value}`}`, () => {
    const error = assertThrows(() => read({ [key]: value }), GgufError);
    assertEquals([error.code, error.field], ["GGUF_HPARAM", `key "qwen35.${key}"`]);
  });
}

Deno.test("delta hparams: refuses sections that leave a rotated pair without a position", () => {
  for (const sections of [[3, 3, 1, 1], [2, 3, 3, 0], [3, 2, 3, 0], []]) {
    const error = assertThrows(() => read({}, sections), GgufError);
    assertEquals(error.field, 'key "qwen35.rope.dimension_sections"');
  }
});
