/** Converts checkpoints of vision towers, and compares the files and their rows with those of the seeded writer. */
import { assert, assertEquals, assertRejects } from "@std/assert";
import { join } from "@std/path";
import { ConvertError, convertVision } from "../../../convert/convert.ts";
import { Written } from "../../../convert/testing.ts";
import { describeModel } from "../../../engine/load/describe.ts";
import { measureTower } from "../../../engine/load/load_tower.ts";
import { everyNth } from "../../../testing/tier.ts";
import { writeAsCheckpoint } from "./as_checkpoint.ts";
import { type Files, picture, prepared, type TowerName, TOWERS, withFiles } from "./files.ts";

/** Returns the rows of a picture that needs no scaling. */
async function rowsOf(files: Files, tower: TowerName): Promise<Float32Array> {
  const described = await describeModel({ model: files.model });
  const measured = await measureTower(described, { mmproj: files.tower, backend: "cpu", threads: 2 });
  const loaded = await measured!.load();
  const [width, height] = tower === "gemma3" ? [112, 112] : [128, 64];
  try {
    return await loaded.rowsOf(await prepared(picture("convert", width, height), files));
  } finally {
    loaded.close();
  }
}

for (const name of everyNth(2, Object.keys(TOWERS) as TowerName[])) {
  Deno.test(`convert: converts the vision tower of a ${name} checkpoint`, async () => {
    await withFiles({ tower: name, type: "F32", seed: 4 }, async (files) => {
      const folder = await Deno.makeTempDir();
      try {
        await writeAsCheckpoint(folder, files, name);
        const out = join(folder, "mmproj.gguf");
        const report = await convertVision({ folder, out });
        assertEquals([report.architecture, report.refusal, report.leftOut], ["clip", undefined, {
          "the model itself": 1,
        }]);
        const [expected, written] = [await Written.read(files.tower), await Written.read(out)];
        assertEquals([...written.gguf.tensors.keys()].sort(), [...expected.gguf.tensors.keys()].sort());
        for (const [tensor, { shape, type }] of expected.gguf.tensors) {
          const made = written.gguf.tensors.get(tensor)!;
          assertEquals([made.shape, made.type], [shape, type], tensor);
          assertEquals(written.tensor(tensor), expected.tensor(tensor), tensor);
        }
        for (const [key, value] of expected.gguf.metadata.entries) {
          assertEquals(written.gguf.metadata.entries.get(key), value, key);
        }
        const more = [...written.gguf.metadata.entries.keys()].filter((key) =>
          !expected.gguf.metadata.entries.has(key)
        );
        const activation = name === "pixtral" ? "clip.use_silu" : "clip.use_gelu";
        assertEquals(more.sort(), [activation, "general.name", "general.type"]);
        const small = join(folder, "q8.gguf");
        const { tensors, refusal } = await convertVision({ folder, out: small, quantize: "q8_0" });
        assertEquals(refusal, undefined);
        const types = new Set(tensors.filter(({ error }) => error).map(({ type }) => type));
        assertEquals([...types], ["Q8_0"]);
        assert((await rowsOf({ ...files, tower: small }, name)).every(Number.isFinite));
      } finally {
        await Deno.remove(folder, { recursive: true });
      }
    });
  });
}

type Config = { model_type: string; vision_config?: object; text_config: object };
type Change = (config: Config) => unknown;
const vision = (values: object): Change => ({ vision_config }) => Object.assign(vision_config!, values);
const model = (values: object): Change => (config) => Object.assign(config, values);

/** Changes of config.json, and the reasons for refusing the checkpoint. */
const REFUSED: { readonly [Name in TowerName]?: readonly (readonly [Change, string])[] } = {
  qwen3vl: [
    [model({ model_type: "llama" }), 'key "model_type": must be "qwen3_vl"'],
    [(config) => delete config.vision_config, 'key "vision_config": must be an object (got none)'],
    [vision({ hidden_act: "silu" }), 'key "vision_config.hidden_act"'],
    [vision({ out_hidden_size: 5 }), "as wide as the model"],
    [vision({ num_position_embeddings: 35 }), "must be a square number (got 35)"],
    [vision({ deepstack_visual_indexes: [0, 9] }), "must be a list of different layers below 3"],
    [
      vision({ deepstack_visual_indexes: [0, 1, 2] }),
      'tensor "model.visual.deepstack_merger_list.2.norm.weight"',
    ],
    [vision({ deepstack_visual_indexes: [0] }), "no part of the vision tower reads it"],
  ],
  gemma3: [
    [model({ mm_tokens_per_image: 10 }), "must be a square whose side divides 8 (got 10)"],
    [vision({ image_size: 168 }), 'tensor "vision_tower.vision_model.embeddings.position_embedding.weight"'],
    [vision({ num_hidden_layers: 2 }), "no part of the vision tower reads it"],
  ],
  idefics3: [
    [
      vision({ image_size: 66 }),
      'key "max_image_size.longest_edge": must be 66, because tiles are as large as image_size (got 64)',
    ],
    [vision({ num_channels: 1 }), "images have three colours"],
  ],
  gemma4: [
    [vision({ num_key_value_heads: 1 }), "each head has its own keys and values"],
    [vision({ use_clipped_linears: false }), "no part of the vision tower reads it"],
    [
      vision({ position_embedding_size: 99 }),
      'tensor "model.vision_tower.patch_embedder.position_embedding_table"',
    ],
  ],
  pixtral: [
    [vision({ hidden_act: null }), 'key "vision_config.hidden_act"'],
    [vision({ model_type: "clip_vision_model" }), 'must be "pixtral" (got "clip_vision_model")'],
    [vision({ rope_parameters: { rope_theta: 5 } }), 'key "vision_config.rope_parameters.rope_theta"'],
    [vision({ rope_parameters: { rope_type: "yarn" } }), 'must be "default" or "axial"'],
    [model({ vision_feature_layer: -2 }), "the decoder reads the last layer's rows"],
    [model({ spatial_merge_size: 1 }), "must be at least 2"],
    [({ text_config }) => Object.assign(text_config, { vocab_size: 4 }), 'token "[IMG_BREAK]"'],
  ],
};

for (const name of everyNth(3, Object.keys(REFUSED) as TowerName[])) {
  Deno.test(`convert: refuses ${name} towers of another kind, with invalid sizes or with unread tensors`, async () => {
    await withFiles({ tower: name, type: "F32", seed: 4 }, async (files) => {
      const folder = await Deno.makeTempDir();
      try {
        await writeAsCheckpoint(folder, files, name);
        const [path, out] = [join(folder, "config.json"), join(folder, "mmproj.gguf")];
        const text = await Deno.readTextFile(path);
        for (const [change, message] of REFUSED[name]!) {
          const config = JSON.parse(text);
          change(config);
          await Deno.writeTextFile(path, JSON.stringify(config));
          await assertRejects(() => convertVision({ folder, out }), ConvertError, message);
        }
        await Deno.writeTextFile(path, text);
        await Deno.remove(join(folder, "preprocessor_config.json"));
        await assertRejects(() => convertVision({ folder, out }), ConvertError, "must have this file");
      } finally {
        await Deno.remove(folder, { recursive: true });
      }
    });
  });
}
