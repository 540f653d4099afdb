import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { storeFloats, TINY, type TinyCheckpoint, withHeader } from "../testing/checkpoints.ts";
import { ConvertError, type ConvertOptions, QUANTIZE_TO, type QuantizeTo } from "./convert.ts";
import { everyNth } from "../testing/tier.ts";
import { BF16, CheckpointFolder, MXFP4, Written } from "./testing.ts";

const { hidden, layers, kHeads, vHeads, linearDim: dim, taps } = TINY;
const keys = 2 * kHeads * dim;
const inner = vHeads * dim;

/**
 * Returns the checkpoint's index of GGUF's V head `head`. GGUF tiles V heads: V head h uses K head h %
 * kHeads.
 */
const headAt = (head: number) => (head % kHeads) * (vHeads / kHeads) + Math.floor(head / kHeads);
/**
 * Returns the checkpoint's index of element `i` of V heads of `size` elements, after `first` other elements.
 */
const valueAt = (i: number, size: number, first = 0) =>
  i < first ? i : first + headAt(Math.floor((i - first) / size)) * size + (i - first) % size;

/** Source of each GGUF tensor of Qwen3.5: its source tensor, and the source index of each element. */
const QWEN35: Record<
  string,
  [source: string, at: (row: number, column: number) => [number, number], columns: number]
> = {
  "blk.0.attn_qkv.weight": ["linear_attn.in_proj_qkv.weight", (r, c) => [valueAt(r, dim, keys), c], hidden],
  "blk.0.attn_gate.weight": ["linear_attn.in_proj_z.weight", (r, c) => [valueAt(r, dim), c], hidden],
  "blk.0.ssm_alpha.weight": ["linear_attn.in_proj_a.weight", (r, c) => [valueAt(r, 1), c], hidden],
  "blk.0.ssm_beta.weight": ["linear_attn.in_proj_b.weight", (r, c) => [valueAt(r, 1), c], hidden],
  "blk.0.ssm_out.weight": ["linear_attn.out_proj.weight", (r, c) => [r, valueAt(c, dim)], inner],
  "blk.0.ssm_conv1d.weight": ["linear_attn.conv1d.weight", (r, c) => [valueAt(r, dim, keys), c], taps],
  "blk.0.ssm_dt.bias": ["linear_attn.dt_bias", (r, c) => [valueAt(r, 1), c], 1],
  "blk.0.ffn_down.weight": ["mlp.down_proj.weight", (r, c) => [r, c], TINY.feedForward],
};

for (const options of [MXFP4, { ...MXFP4, weights: "affine" }, BF16, { ...BF16, weights: "F16" }] as const) {
  Deno.test(`convert: puts every value of ${options.weights} weights at GGUF's place`, async () => {
    await using folder = await CheckpointFolder.make(options);
    await folder.convert();
    const written = await Written.read(folder.out);
    for (const [name, [source, at, columns]] of Object.entries(QWEN35)) {
      const expected = folder.checkpoint.values.get(`model.layers.0.${source}`)!;
      const moved = Float32Array.from(expected, (_, i) => {
        const [row, column] = at(Math.floor(i / columns), i % columns);
        return expected[row * columns + column];
      });
      assertEquals(written.values(name), moved, name);
    }
    const embedding = folder.checkpoint.values.get("model.embed_tokens.weight")!;
    assertEquals(written.values("token_embd.weight"), embedding);
  });
}

Deno.test("convert: reorders MXFP4 without changing its bits", async () => {
  await using folder = await CheckpointFolder.make(MXFP4);
  await folder.convert();
  const written = (await Written.read(folder.out)).tensor("blk.3.ffn_up.weight");
  const module = "language_model.model.layers.3.mlp.up_proj";
  const codes = folder.checkpoint.tensors.get(`${module}.weight`)!.bytes;
  const scales = folder.checkpoint.tensors.get(`${module}.scales`)!.bytes;
  const code = (column: number) => codes[column >> 1] >> 4 * (column & 1) & 15;
  assertEquals(written.length, 17 * scales.length);
  for (const [block, scale] of scales.entries()) {
    assertEquals(written[17 * block], scale);
    for (let j = 0; j < 16; j++) {
      assertEquals(written[17 * block + 1 + j], code(32 * block + j) | code(32 * block + j + 16) << 4);
    }
  }
});

for (const layout of ["hf", "mlx"] as const) {
  Deno.test(`convert: adds 1 to norms once and turns A_log into -exp(A_log) in the layout of ${layout}`, async () => {
    await using folder = await CheckpointFolder.make({ ...BF16, layout });
    await folder.convert();
    const written = await Written.read(folder.out);
    const held = (name: string) => folder.checkpoint.values.get(`model.${name}`)!;
    const plusOne = (name: string) => held(name).map((weight) => weight + 1);
    assertEquals(written.values("blk.0.attn_norm.weight"), plusOne("layers.0.input_layernorm.weight"));
    const after = plusOne("layers.3.post_attention_layernorm.weight");
    assertEquals(written.values("blk.3.post_attention_norm.weight"), after);
    assertEquals(written.values("blk.3.attn_q_norm.weight"), plusOne("layers.3.self_attn.q_norm.weight"));
    assertEquals(written.values("output_norm.weight"), plusOne("norm.weight"));
    assertEquals(written.values("blk.0.ssm_norm.weight"), held("layers.0.linear_attn.norm.weight"));
    const a = held("layers.0.linear_attn.A_log");
    assertEquals(written.values("blk.0.ssm_a"), a.map((_, i) => -Math.exp(a[valueAt(i, 1)])));
  });
}

Deno.test("convert: writes the same file from several shards as from one", async () => {
  await using one = await CheckpointFolder.make(BF16);
  await using three = await CheckpointFolder.make({ ...BF16, shards: 3 });
  await one.convert();
  await three.convert();
  assertEquals(await Deno.readFile(three.out), await Deno.readFile(one.out));
  // Without an index, the shard count comes from the file names.
  await Deno.remove(three.out);
  await Deno.remove(three.file("model.safetensors.index.json"));
  await three.convert();
  assertEquals(await Deno.readFile(three.out), await Deno.readFile(one.out));
});

Deno.test("convert: writes config.json's values as metadata", async () => {
  await using folder = await CheckpointFolder.make(MXFP4);
  const report = await folder.convert();
  const { metadata } = (await Written.read(folder.out)).gguf;
  assertEquals(report.leftOut, { vision: 1 });
  assertEquals(metadata.getString("general.architecture"), "qwen35");
  assertEquals(metadata.getString("general.name"), "tiny");
  const counts = {
    block_count: layers,
    "attention.key_length": TINY.headDim,
    "rope.dimension_count": 16,
    "ssm.inner_size": inner,
    "ssm.state_size": dim,
    "ssm.group_count": kHeads,
    "ssm.time_step_rank": vHeads,
    "ssm.conv_kernel": taps,
    full_attention_interval: 4,
  };
  for (const [key, value] of Object.entries(counts)) {
    assertEquals(metadata.getCount(`qwen35.${key}`), value, key);
  }
  assertEquals(Array.from(metadata.getNumbers("qwen35.rope.dimension_sections")!), [3, 3, 2, 0]);
  assertEquals(metadata.getNumber("qwen35.rope.freq_base"), 1e7);
});

Deno.test("convert: writes the end tokens of generation_config.json", async () => {
  await using folder = await CheckpointFolder.make(BF16);
  const generation = { eos_token_id: [260, 259] };
  await Deno.writeTextFile(folder.file("generation_config.json"), JSON.stringify(generation));
  await folder.convert();
  const { metadata } = (await Written.read(folder.out)).gguf;
  const ends = ["eos", "eot"].map((name) => metadata.getCount(`tokenizer.ggml.${name}_token_id`));
  assertEquals([...ends, metadata.has("tokenizer.ggml.eom_token_id")], [260, 259, false]);
});

Deno.test("convert: pairs llama's query and key rows and applies Llama 3's rotary factors", async () => {
  const scaling = {
    rope_type: "llama3",
    factor: 8,
    low_freq_factor: 1,
    high_freq_factor: 4,
    original_max_position_embeddings: 8192,
  };
  const change = ({ config }: TinyCheckpoint) => void (config.rope_scaling = scaling);
  await using folder = await CheckpointFolder.make({ ...BF16, model: "llama" }, change);
  await folder.convert();
  const written = await Written.read(folder.out);
  const source = folder.checkpoint.values.get("model.layers.1.self_attn.k_proj.weight")!;
  const half = TINY.headDim / 2;
  const expected = source.map((_, i) => {
    const [row, column] = [Math.floor(i / hidden), i % hidden];
    const [head, place] = [Math.floor(row / TINY.headDim), row % TINY.headDim];
    return source[(head * TINY.headDim + Math.floor(place / 2) + (place % 2) * half) * hidden + column];
  });
  assertEquals(written.values("blk.1.attn_k.weight"), expected);
  const factors = written.values("rope_freqs.weight");
  assertEquals([factors.length, factors[0], factors[half - 1]], [half, 1, 8]);
  assert(factors.every((factor, i) => i === 0 || factor >= factors[i - 1]));
});

const MOST_ERROR: Record<QuantizeTo, number> = {
  q8_0: 0.007,
  q6_k: 0.02,
  q5_k: 0.04,
  q4_k: 0.08,
  q3_k: 0.17,
  q2_k: 0.35,
  iq4_xs: 0.1,
  iq4_nl: 0.1,
  iq3_s: 0.17,
  iq3_xxs: 0.25,
  iq2_s: 0.3,
  iq2_xs: 0.35,
  iq2_xxs: 0.4,
  iq1_m: 0.5,
  iq1_s: 0.55,
  q4_0: 0.13,
  mxfp4: 0.13,
  tq2_0: 0.55,
  tq1_0: 0.55,
  q2_0: 0.4,
  q1_0: 0.75,
};

for (const quantize of everyNth(8, QUANTIZE_TO)) {
  Deno.test(`convert: reports each matrix's true error with --quantize ${quantize}`, async () => {
    await using folder = await CheckpointFolder.make({ ...BF16, model: "qwen3" }, ({ tensors }) => {
      // No 4-bit format holds these values exactly. Rows have 256 columns.
      const { shape, bytes } = tensors.get("model.layers.0.mlp.down_proj.weight")!;
      const values = Float32Array.from({ length: bytes.length / 2 }, (_, i) => Math.sin(i * i) / 16);
      tensors.set("model.layers.0.mlp.down_proj.weight", storeFloats("F32", shape, values));
    });
    const report = await folder.convert({ quantize });
    const { type, error } = report.tensors.find(({ name }) => name === "blk.0.ffn_down.weight")!;
    assertEquals(type.toLowerCase(), quantize);
    const values = Float32Array.from({ length: hidden * TINY.feedForward }, (_, i) => Math.sin(i * i) / 16);
    const found = (await Written.read(folder.out)).values("blk.0.ffn_down.weight");
    const errors = values.map((value, i) => value - found[i]);
    const squares = (vector: Float32Array) => vector.reduce((sum, value) => sum + value * value, 0);
    const expected = Math.sqrt(squares(errors) / squares(values));
    assert(
      Math.abs(error!.relativeRms - expected) < 1e-5 * expected,
      `${error!.relativeRms}, expected ${expected}`,
    );
    assertEquals(Math.fround(error!.max), Math.max(...errors.map(Math.abs)));
    assert(expected < MOST_ERROR[quantize], String(expected));
    const norm = report.tensors.find(({ name }) => name === "blk.0.attn_norm.weight")!;
    assertEquals([norm.type, norm.error], ["F32", undefined]);
  });
}

for (
  const [quantize, block, instead] of [
    ["q6_k", 256, "q8_0"],
    ["q2_k", 256, "iq4_nl"],
    ["iq2_xxs", 256, "iq4_nl"],
    ["q1_0", 128, "q8_0"],
  ] as const
) {
  Deno.test(`convert: --quantize ${quantize} uses ${instead} when rows do not divide into blocks of ${block}`, async () => {
    await using folder = await CheckpointFolder.make(BF16);
    const { tensors } = await folder.convert({ quantize });
    for (const { name, type, shape, error } of tensors) {
      if (shape.length < 2 || name.includes("conv1d")) continue;
      // Conversion reorders the columns of ssm_out in heads of 32.
      const whole = shape[0] % block === 0 && !name.includes("ssm_out");
      assertEquals(type.toLowerCase(), whole ? quantize : instead, name);
      assert(
        error!.relativeRms < MOST_ERROR[whole ? quantize : instead],
        `${name}: ${error!.relativeRms}`,
      );
    }
    assert(tensors.some(({ type }) => type.toLowerCase() === quantize));
  });
}

Deno.test("convert: --quantize mxfp4 keeps MXFP4 bit for bit", async () => {
  await using folder = await CheckpointFolder.make(MXFP4);
  await folder.convert();
  const plain = await Deno.readFile(folder.out);
  await Deno.remove(folder.out);
  const report = await folder.convert({ quantize: "mxfp4" });
  assertEquals(await Deno.readFile(folder.out), plain);
  assert(report.tensors.every(({ error }) => error === undefined));
});

const MODULE = "language_model.model.layers.1.mlp.gate_proj";
type Spoil = (checkpoint: TinyCheckpoint) => void;
const text = ({ config }: TinyCheckpoint) => config.text_config as Record<string, unknown>;
const rope = (checkpoint: TinyCheckpoint) => text(checkpoint).rope_parameters as Record<string, unknown>;

/** Checkpoints that cannot be converted, with the words that the error contains. */
const REFUSED: Record<string, [spoil: Spoil, words: string[], options?: Partial<ConvertOptions>]> = {
  "a mode of one module": [
    ({ config }) => void ((config.quantization as Record<string, unknown>)[MODULE] = { mode: "mxfp8" }),
    [`tensor "${MODULE}.weight"`, `"mxfp4", "nvfp4" or "affine" (got "mxfp8")`],
  ],
  "another quantiser's checkpoint": [
    ({ config }) => void (config.quantization_config = { quant_method: "aqlm" }),
    [`key "quantization_config.quant_method"`, `"aqlm"`],
  ],
  "a scale that is no number": [
    ({ tensors }) => void (tensors.get(`${MODULE}.scales`)!.bytes[7] = 255),
    [`tensor "${MODULE}.scales"`, "255"],
  ],
  "a wrong shape": [
    ({ tensors }) => {
      const tensor = tensors.get(`${MODULE}.weight`)!;
      tensors.set(`${MODULE}.weight`, { ...tensor, shape: [tensor.shape[1], tensor.shape[0]] });
    },
    [`tensor "${MODULE}.weight"`, "must have shape 256 x 16, as config.json says (got 16 x 256)"],
  ],
  "scales without config.json's word": [
    ({ config }) => void delete config.quantization,
    ["there are scales, but no quantization"],
  ],
  "a missing tensor": [({ tensors }) => void tensors.delete(`${MODULE}.weight`), [
    `"${MODULE}.weight"`,
    "in none",
  ]],
  "a tensor that nobody reads": [
    ({ tensors }) => void tensors.set("model.extra", storeFloats("F32", [1], new Float32Array(1))),
    [`tensor "model.extra"`, "no part of the model reads it"],
  ],
  "another model type": [({ config }) => void (config.model_type = "bloom"), [
    `key "model_type"`,
    `"bloom"`,
  ]],
  "another rotary scaling": [
    (checkpoint) => void (rope(checkpoint).rope_type = "yarn"),
    [`key "text_config.rope_parameters.rope_type"`, `"yarn"`],
  ],
  "sections that do not add up": [
    (checkpoint) => void (rope(checkpoint).mrope_section = [3, 3, 3]),
    ["mrope_section", "add up to 8"],
  ],
  "layers in another order": [
    (checkpoint) => void (text(checkpoint).layer_types = Array(4).fill("full_attention")),
    ["layer_types", "layer 0"],
  ],
  "a fraction of heads": [(c) => void (text(c).num_key_value_heads = 1.5), ["num_key_value_heads", "1.5"]],
  "an epsilon that is none": [(c) => void (text(c).rms_norm_eps = "1e-6"), ["rms_norm_eps", `"1e-6"`]],
  "a mixture of experts": [(c) => void (text(c).num_experts = 8), ["num_experts", "mixtures of experts"]],
  "convolutions that lie in both ways": [
    ({ tensors }) => {
      const name = "language_model.model.layers.1.linear_attn.conv1d.weight";
      const tensor = tensors.get(name)!;
      tensors.set(name, { ...tensor, shape: [tensor.shape[0], 1, taps] });
    },
    ["layers.1.linear_attn.conv1d.weight", "unclear whether 1 was added"],
  ],
  "a token beyond the vocabulary": [
    ({ tokenizer }) => void ((tokenizer.added_tokens as { id: number }[])[0].id = TINY.vocabulary),
    [`token "<|endoftext|>"`, "the id must be 0 to 319, config.json's vocab_size (got 320)"],
  ],
  "another way to cut words": [
    ({ tokenizer }) => void (tokenizer.pre_tokenizer = { type: "Whitespace" }),
    [`key "pre_tokenizer"`, `"Whitespace"`],
  ],
};

for (const [what, [spoil, words, options]] of Object.entries(REFUSED)) {
  Deno.test(`convert: rejects ${what}, names the cause, and leaves no file`, async () => {
    await using folder = await CheckpointFolder.make(MXFP4, spoil);
    const { message } = await assertRejects(() => folder.convert(options), ConvertError);
    for (const word of words) assertStringIncludes(message, word);
    assertEquals(folder.leftBehind(), []);
  });
}

Deno.test('convert: rejects affine scales outside f16, unless quantize is "q8_0"', async () => {
  const scales = "language_model.model.layers.0.mlp.up_proj.scales";
  await using folder = await CheckpointFolder.make({ ...MXFP4, weights: "affine" }, ({ tensors }) => {
    const { shape } = tensors.get(scales)!;
    const values = new Float32Array(shape[0] * shape[1]).fill(2 ** -30);
    tensors.set(scales, storeFloats("BF16", shape, values));
  });
  const { message } = await assertRejects(() => folder.convert(), ConvertError);
  for (const word of ["up_proj.weight", "scale 9.3", "Q4_1", 'quantize: "q8_0"']) {
    assertStringIncludes(message, word);
  }
  assertEquals(folder.leftBehind(), []);
  const { tensors } = await folder.convert({ quantize: "q8_0" });
  assert(tensors.find(({ name }) => name === "blk.0.ffn_up.weight")!.error!.relativeRms < 0.01);
});

Deno.test("convert: rejects values that the format cannot hold", async () => {
  for (const value of [NaN, Infinity, 1e38]) {
    await using folder = await CheckpointFolder.make(BF16, ({ tensors }) => {
      const { shape } = tensors.get("lm_head.weight")!;
      const values = new Float32Array(shape[0] * shape[1]).fill(value, 9, 10);
      tensors.set("lm_head.weight", storeFloats("BF16", shape, values));
    });
    const { message } = await assertRejects(() => folder.convert({ quantize: "q8_0" }), ConvertError);
    assertStringIncludes(message, `tensor "lm_head.weight": it has values that Q8_0 cannot hold`);
    assertEquals(folder.leftBehind(), []);
  }
});

Deno.test("convert: names a missing shard", async () => {
  for (const withIndex of [true, false]) {
    await using folder = await CheckpointFolder.make({ ...MXFP4, shards: 3 });
    await Deno.remove(folder.file("model-00002-of-00003.safetensors"));
    if (!withIndex) await Deno.remove(folder.file("model.safetensors.index.json"));
    const { message } = await assertRejects(() => folder.convert(), ConvertError);
    assertStringIncludes(message, `Cannot find ${folder.file("model-00002-of-00003.safetensors")}`);
    assertEquals(folder.leftBehind(), []);
  }
});

Deno.test("convert: rejects an index with wrong files and never reads a path outside the folder", async () => {
  const cases: [string, string][] = [
    [
      "../secret.safetensors",
      `must have a plain name that ends in .safetensors (got "../secret.safetensors")`,
    ],
    ["/etc/x.safetensors", "must have a plain name"],
    ["model-00002-of-00002.safetensors", "must be in model-00002-of-00002.safetensors"],
  ];
  for (const [shard, words] of cases) {
    await using folder = await CheckpointFolder.make({ ...MXFP4, shards: 2 });
    const path = folder.file("model.safetensors.index.json");
    const index = JSON.parse(await Deno.readTextFile(path));
    const name = Object.keys(index.weight_map).find((key) =>
      index.weight_map[key].startsWith("model-00001")
    )!;
    index.weight_map[name] = shard;
    await Deno.writeTextFile(path, JSON.stringify(index));
    const { message } = await assertRejects(() => folder.convert(), ConvertError);
    assertStringIncludes(message, words);
  }
});

Deno.test("convert: rejects a shard truncated at any byte", async () => {
  await using folder = await CheckpointFolder.make(MXFP4);
  const path = folder.file("model.safetensors");
  const whole = await Deno.readFile(path);
  const header = 8 + Number(new DataView(whole.buffer).getBigUint64(0, true));
  for (const length of [0, 7, 8, 100, header - 1, header, header + 1, whole.length - 1]) {
    await Deno.writeFile(path, whole.subarray(0, length));
    const { message } = await assertRejects(() => folder.convert(), ConvertError);
    assertStringIncludes(message, path);
    assertEquals(folder.leftBehind(), []);
  }
  await Deno.writeFile(path, withHeader("{}", [new Uint8Array(3)]));
  const { message } = await assertRejects(() => folder.convert(), ConvertError);
  assertStringIncludes(message, "there are 3 bytes after the last tensor");
});

Deno.test("convert: names missing and broken JSON files", async () => {
  for (const name of ["config.json", "tokenizer.json"]) {
    await using folder = await CheckpointFolder.make(MXFP4);
    await Deno.writeTextFile(folder.file(name), `{"model_type": `);
    assertStringIncludes(
      (await assertRejects(() => folder.convert(), ConvertError)).message,
      "invalid JSON",
    );
    await Deno.writeTextFile(folder.file(name), "[]");
    assertStringIncludes(
      (await assertRejects(() => folder.convert(), ConvertError)).message,
      "must be an object",
    );
    await Deno.remove(folder.file(name));
    assertStringIncludes(
      (await assertRejects(() => folder.convert(), ConvertError)).message,
      folder.file(name),
    );
    assertEquals(folder.leftBehind(), []);
  }
});

Deno.test("convert: leaves no file when it is aborted at any moment", async () => {
  await using folder = await CheckpointFolder.make(MXFP4);
  for (const stage of ["write", "verify"]) {
    const stop = new AbortController();
    const progress: ConvertOptions["progress"] = (at, done, total) => {
      if (at === stage && done > total / 2) stop.abort(new ConvertError("Stopped"));
    };
    await assertRejects(() => folder.convert({ progress, signal: stop.signal }), ConvertError, "Stopped");
    assertEquals(folder.leftBehind(), []);
  }
});

Deno.test("convert: does not touch an existing target file", async () => {
  await using folder = await CheckpointFolder.make(MXFP4);
  await Deno.writeTextFile(folder.out, "mine");
  await assertRejects(() => folder.convert(), ConvertError, "it already exists");
  assertEquals(await Deno.readTextFile(folder.out), "mine");
  assertEquals(folder.leftBehind(), ["tiny.gguf"]);
});

Deno.test("convert: replaces the partial file of a killed conversion but not of a running one", async () => {
  await using folder = await CheckpointFolder.make(MXFP4);
  await Deno.writeFile(`${folder.out}.partial`, new Uint8Array(1 << 22).fill(7));
  const { fileBytes } = await folder.convert();
  assertEquals([folder.leftBehind(), (await Deno.stat(folder.out)).size], [["tiny.gguf"], fileBytes]);

  await Deno.remove(folder.out);
  using live = await Deno.open(`${folder.out}.partial`, { write: true, create: true });
  await live.lock(true);
  await assertRejects(() => folder.convert(), ConvertError, "another conversion writes");
  assertEquals(folder.leftBehind(), ["tiny.gguf.partial"]);
});
