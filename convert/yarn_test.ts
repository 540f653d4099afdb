import { assertAlmostEquals, assertEquals, assertRejects } from "@std/assert";
import { FAMILIES } from "../engine/architectures/families.ts";
import { buildPlan } from "../engine/architectures/registry.ts";
import { parseGguf } from "../engine/gguf/reader.ts";
import { changed } from "../engine/gguf/testing_changes.ts";
import type { GgufFile, MetadataValue } from "../engine/gguf/types.ts";
import type { TinyCheckpoint } from "../testing/checkpoints.ts";
import { type Architecture, SYNTH_MODELS } from "../testing/synth/registry.ts";
import { synthesize } from "../testing/synth/synth.ts";
import { everyNth } from "../testing/tier.ts";
import { yarn } from "../tests/convert/yarn.ts";
import { Fields } from "./checkpoint/json.ts";
import { decoderEntries, readDecoderConfig } from "./decoder_config.ts";
import { ConvertError } from "./errors.ts";
import { BF16, CheckpointFolder, Written } from "./testing.ts";

const SCALING = {
  rope_type: "yarn",
  factor: 6,
  original_max_position_embeddings: 300,
  beta_fast: 20,
  beta_slow: 0.5,
};
const CONFIG = {
  hidden_size: 128,
  intermediate_size: 256,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  vocab_size: 100,
  max_position_embeddings: 300,
  rms_norm_eps: 1e-6,
  rope_scaling: SCALING,
};

/** Families with a synthetic model whose checkpoints may use YaRN in the usual way. */
const USUAL = [...FAMILIES.values()].filter(({ architecture, checkpoints = {} }) =>
  Object.hasOwn(SYNTH_MODELS, architecture) &&
  Object.values(checkpoints).some(({ scalings = ["yarn"], encoder }) => scalings.includes("yarn") && !encoder)
);

/** Returns the tables of angles in the plan of the file with the converter's keys for the scaling. */
function anglesOf(file: GgufFile, architecture: string) {
  const decoder = readDecoderConfig(new Fields("config.json", CONFIG), { scalings: ["yarn"] });
  let scaled = changed(file, { key: ["rope.scaling.attn_factor", undefined] });
  for (const { key, value } of decoderEntries(architecture, decoder)) {
    const name = key.slice(architecture.length + 1);
    if (name.startsWith("rope.scaling.")) scaled = changed(scaled, { key: [name, value as MetadataValue] });
  }
  return buildPlan(changed(scaled, { key: ["rope.scaling.yarn_log_multiplier", undefined] })).rope;
}

for (const { architecture } of everyNth(5, USUAL)) {
  Deno.test(`YaRN: ${architecture} rotates with transformers' frequencies and magnitude`, () => {
    const model = { architecture: architecture as Architecture, types: ["F32"] as const, seed: 1, layers: 1 };
    const file = parseGguf(synthesize(model));
    const [{ frequencies, magnitude }] = anglesOf(file, architecture);
    const base = file.metadata.getNumber(`${architecture}.rope.freq_base`, 10_000);
    const expected = yarn(base, 2 * frequencies.length, SCALING);
    assertAlmostEquals(magnitude, expected.magnitude, 1e-6);
    expected.frequencies.forEach((value, i) => assertAlmostEquals(frequencies[i], value, 1e-6 * value));
  });
}

const change = (scaling: object) => ({ config }: TinyCheckpoint) => {
  config.max_position_embeddings = 300;
  config.rope_scaling = { ...SCALING, ...scaling };
};

Deno.test("YaRN: a converted model has the scaling's keys and the extended context", async () => {
  await using folder = await CheckpointFolder.make({ ...BF16, model: "qwen3" }, change({}));
  assertEquals((await folder.convert()).refusal, undefined);
  const { metadata } = (await Written.read(folder.out)).gguf;
  assertEquals(metadata.getString("qwen3.rope.scaling.type"), "yarn");
  assertEquals(metadata.getNumber("qwen3.rope.scaling.factor"), 6);
  assertEquals(metadata.getCount("qwen3.rope.scaling.original_context_length"), 300);
  assertEquals(metadata.getCount("qwen3.context_length"), 1800);
});

Deno.test("YaRN: rejects unrounded ends of the blend and magnitudes that GGUF's readers do not compute", async () => {
  for (
    const [scaling, key] of [[{ truncate: false }, "truncate"], [
      { attention_factor: 1 },
      "attention_factor",
    ]] as const
  ) {
    await using folder = await CheckpointFolder.make({ ...BF16, model: "qwen3" }, change(scaling));
    await assertRejects(() => folder.convert(), ConvertError, key);
  }
});
