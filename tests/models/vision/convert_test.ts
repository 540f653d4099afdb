/** Converts checkpoints of vision towers, and compares the files and their rows with those of the seeded writer. */
import { assert, assertEquals, assertRejects } from "@std/assert";
import { join } from "@std/path";
import { ConvertError, convertVision } from "../../../convert/convert.ts";
import { Written } from "../../../convert/testing.ts";
import { describeModel } from "../../../engine/load/describe.ts";
import { measureTower } from "../../../engine/load/load_tower.ts";
import { type StoredTensor, storeFloats, writeCheckpoint } from "../../../testing/checkpoints.ts";
import { everyNth } from "../../../testing/tier.ts";
import { type Files, picture, prepared, TOWERS, withFiles } from "./files.ts";

type Architecture = "qwen3vl" | "qwen35";

/** Names of the tower's tensors in Hugging Face's checkpoints. */
const NAMES: readonly (readonly [gguf: RegExp, checkpoint: string])[] = [
  [/^v\.position_embd\./, "pos_embed."],
  [/^v\.patch_embd\.bias$/, "patch_embed.proj.bias"],
  [/^v\.post_ln\./, "merger.norm."],
  [/^mm\.0\./, "merger.linear_fc1."],
  [/^mm\.2\./, "merger.linear_fc2."],
  [/^v\.blk\.(\d+)\.ln([12])\./, "blocks.$1.norm$2."],
  [/^v\.blk\.(\d+)\.attn_qkv\./, "blocks.$1.attn.qkv."],
  [/^v\.blk\.(\d+)\.attn_out\./, "blocks.$1.attn.proj."],
  [/^v\.blk\.(\d+)\.ffn_up\./, "blocks.$1.mlp.linear_fc1."],
  [/^v\.blk\.(\d+)\.ffn_down\./, "blocks.$1.mlp.linear_fc2."],
];

function nameOf(name: string, deep: readonly number[]): string {
  const merger = /^v\.deepstack\.(\d+)\.(norm|fc\d)\.(.*)$/.exec(name);
  if (merger) {
    const [, layer, part, kind] = merger;
    return `deepstack_merger_list.${deep.indexOf(Number(layer))}.${part.replace("fc", "linear_fc")}.${kind}`;
  }
  const [pattern, to] = NAMES.find(([pattern]) => pattern.test(name))!;
  return name.replace(pattern, to);
}

/** Writes a checkpoint with the tensors of a tower's file. */
async function writeAsCheckpoint(
  folder: string,
  { tower }: Files,
  architecture: Architecture,
): Promise<void> {
  const written = await Written.read(tower);
  const deep: readonly number[] = architecture === "qwen3vl" ? TOWERS.qwen3vl.deep : [];
  const tensors = new Map<string, StoredTensor>();
  for (const [name, { shape }] of written.gguf.tensors) {
    if (name.startsWith("v.patch_embd.weight")) continue;
    const stored = storeFloats("F32", shape.toReversed(), written.values(name));
    tensors.set(`model.visual.${nameOf(name, deep)}`, stored);
  }
  const { width, heads, feedForward, layers, patch } = TOWERS[architecture];
  const side = 6;
  const frames = ["", ".1"].map((frame) => written.values(`v.patch_embd.weight${frame}`));
  const planes = Array.from(
    { length: 3 * width },
    (_, plane) =>
      frames.flatMap((frame) => [...frame.subarray(plane * patch ** 2, (plane + 1) * patch ** 2)]),
  );
  const joined = storeFloats("F32", [width, 3, 2, patch, patch], Float32Array.from(planes.flat()));
  tensors.set("model.visual.patch_embed.proj.weight", joined);
  tensors.set("model.language_model.norm.weight", storeFloats("F32", [4], new Float32Array(4)));
  const config = {
    model_type: architecture === "qwen3vl" ? "qwen3_vl" : "qwen3_5",
    text_config: {
      hidden_size: written.gguf.metadata.getCount("clip.vision.projection_dim"),
      rms_norm_eps: 1e-6,
    },
    vision_config: {
      depth: layers,
      hidden_size: width,
      num_heads: heads,
      intermediate_size: feedForward,
      patch_size: patch,
      spatial_merge_size: 2,
      temporal_patch_size: 2,
      num_position_embeddings: side ** 2,
      out_hidden_size: written.gguf.metadata.getCount("clip.vision.projection_dim"),
      hidden_act: "gelu_pytorch_tanh",
      deepstack_visual_indexes: deep,
    },
  };
  await writeCheckpoint(folder, { config, tokenizer: {}, tokenizerConfig: {}, tensors, shards: 1 });
  const colours = { image_mean: [0.5, 0.5, 0.5], image_std: [0.5, 0.5, 0.5] };
  await Deno.writeTextFile(join(folder, "preprocessor_config.json"), JSON.stringify(colours));
}

async function rowsOf(files: Files): Promise<Float32Array> {
  const described = await describeModel({ model: files.model });
  const measured = await measureTower(described, { mmproj: files.tower, backend: "cpu", threads: 2 });
  const tower = await measured!.load();
  try {
    return await tower.rowsOf(await prepared(picture("convert", 96, 64), files));
  } finally {
    tower.close();
  }
}

for (const architecture of everyNth(2, ["qwen3vl", "qwen35"] as const)) {
  Deno.test(`convert: converts the vision tower of a ${architecture} checkpoint`, async () => {
    await withFiles({ tower: architecture, type: "F32", seed: 4 }, async (files) => {
      const folder = await Deno.makeTempDir();
      try {
        await writeAsCheckpoint(folder, files, architecture);
        const out = join(folder, "mmproj.gguf");
        const report = await convertVision({ folder, out });
        assertEquals([report.architecture, report.refusal, report.leftOut], ["clip", undefined, {
          "the model itself": 1,
        }]);
        const [expected, written] = [await Written.read(files.tower), await Written.read(out)];
        assertEquals([...written.gguf.tensors.keys()].sort(), [...expected.gguf.tensors.keys()].sort());
        for (const [name, { shape, type }] of expected.gguf.tensors) {
          const made = written.gguf.tensors.get(name)!;
          assertEquals([made.shape, made.type], [shape, type], name);
          assertEquals(written.tensor(name), expected.tensor(name), name);
        }
        for (const [key, value] of expected.gguf.metadata.entries) {
          assertEquals(written.gguf.metadata.entries.get(key), value, key);
        }
        const more = [...written.gguf.metadata.entries.keys()].filter((key) =>
          !expected.gguf.metadata.entries.has(key)
        );
        assertEquals(more.sort(), ["clip.use_gelu", "general.name", "general.type"]);
        assertEquals(await rowsOf({ ...files, tower: out }), await rowsOf(files));
        const small = join(folder, "q8.gguf");
        const { tensors, refusal } = await convertVision({ folder, out: small, quantize: "q8_0" });
        assertEquals(refusal, undefined);
        const types = new Set(tensors.filter(({ error }) => error).map(({ type }) => type));
        assertEquals([...types], ["Q8_0"]);
        assert((await rowsOf({ ...files, tower: small })).every(Number.isFinite));
      } finally {
        await Deno.remove(folder, { recursive: true });
      }
    });
  });
}

Deno.test("convert: refuses towers of other kinds, with invalid sizes, or with unread tensors", async () => {
  type Config = { model_type: string; vision_config?: Record<string, unknown> };
  const vision = (values: object) => (config: Config) => Object.assign(config.vision_config!, values);
  const cases: [(config: Config) => unknown, string][] = [
    [(config) => config.model_type = "llama", 'key "model_type": must be "qwen3_vl"'],
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
  ];
  await withFiles({ tower: "qwen3vl", type: "F32", seed: 4 }, async (files) => {
    const folder = await Deno.makeTempDir();
    try {
      await writeAsCheckpoint(folder, files, "qwen3vl");
      const [path, out] = [join(folder, "config.json"), join(folder, "mmproj.gguf")];
      const text = await Deno.readTextFile(path);
      for (const [change, message] of cases) {
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
