import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { join } from "@std/path";
import { Random } from "../../testing/random.ts";
import {
  safetensors,
  type StoredTensor,
  storeFloats,
  TINY,
  type TinyCheckpoint,
} from "../../testing/checkpoints.ts";
import { fullTier } from "../../testing/tier.ts";
import { ConvertError, type ConvertOptions } from "../convert.ts";
import { BF16, CheckpointFolder, Written } from "../testing.ts";

const RANK = 4;
const CONFIG = {
  peft_type: "LORA",
  r: RANK,
  lora_alpha: 6,
  bias: "none",
  target_modules: ["q_proj", "down_proj"],
  use_rslora: false,
  use_dora: false,
  modules_to_save: null,
  init_lora_weights: true,
  rank_pattern: {},
  alpha_pattern: {},
};
const Q = "model.layers.1.self_attn.q_proj";
const DOWN = "model.layers.2.mlp.down_proj";
const SHAPES: Record<string, [rows: number, columns: number]> = {
  [Q]: [TINY.heads * TINY.headDim, TINY.hidden],
  [DOWN]: [TINY.hidden, TINY.feedForward],
};

/** The low-rank matrices A and B of each module. */
type Pairs = Record<string, { a: Float32Array; b: Float32Array; rank: number }>;

interface TestAdapter {
  config: Record<string, unknown>;
  tensors: Map<string, StoredTensor>;
  pairs: Pairs;
}

function testAdapter(ranks: Record<string, number> = {}): TestAdapter {
  const random = new Random(5);
  const tensors = new Map<string, StoredTensor>();
  const pairs: Pairs = {};
  for (const [module, [rows, columns]] of Object.entries(SHAPES)) {
    const rank = ranks[module] ?? RANK;
    const [a, b] = [rank * columns, rows * rank].map((length) =>
      random.normals(new Float32Array(length), 0.1)
    );
    pairs[module] = { a, b, rank };
    tensors.set(`base_model.model.${module}.lora_A.weight`, storeFloats("F32", [rank, columns], a));
    tensors.set(`base_model.model.${module}.lora_B.weight`, storeFloats("F32", [rows, rank], b));
  }
  return { config: { ...CONFIG }, tensors, pairs };
}

/** Writes a checkpoint and an adapter, and calls `use` with a function that converts them. */
async function withAdapter<T>(
  adapter: TestAdapter,
  use: (
    folder: CheckpointFolder,
    convert: (options?: Partial<ConvertOptions>) => ReturnType<CheckpointFolder["convert"]>,
  ) => Promise<T>,
  change?: (checkpoint: TinyCheckpoint) => void,
): Promise<T> {
  await using folder = await CheckpointFolder.make({ ...BF16, model: "llama" }, change);
  const lora = folder.file("adapter");
  await Deno.mkdir(lora);
  await Deno.writeTextFile(join(lora, "adapter_config.json"), JSON.stringify(adapter.config));
  await Deno.writeFile(join(lora, "adapter_model.safetensors"), safetensors(adapter.tensors));
  return await use(folder, (options) => folder.convert({ lora, ...options }));
}

/** Returns the matrix plus `scale` times the product of the pair, computed in float64. */
function merged(base: Float32Array, { a, b, rank }: Pairs[string], scale: number): Float64Array {
  const columns = a.length / rank;
  return Float64Array.from(base, (value, i) => {
    const [row, column] = [Math.floor(i / columns), i % columns];
    let sum = 0;
    for (let k = 0; k < rank; k++) sum += b[row * rank + k] * a[k * columns + column];
    return value + scale * sum;
  });
}

/** Returns the values rounded to f16, as f32. */
const halves = (values: Float64Array) => Float32Array.from(new Float16Array(Float32Array.from(values)));

const VARIANTS: Record<
  string,
  [config: object, ranks: Record<string, number>, scales: [q: number, down: number]]
> = {
  "alpha / rank": [{}, {}, [6 / 4, 6 / 4]],
  "alpha / sqrt(rank) of RSLoRA": [{ use_rslora: true }, {}, [6 / 2, 6 / 2]],
  "ranks and alphas of modules": [
    { rank_pattern: { "1.self_attn.q_proj": 2 }, alpha_pattern: { down_proj: 10, [`^${Q}`]: 1 } },
    { [Q]: 2 },
    [1 / 2, 10 / 4],
  ],
};
for (const [what, [config, ranks, [q, down]]] of Object.entries(VARIANTS)) {
  Deno.test(`convert: merges an adapter scaled by ${what}`, async () => {
    const adapter = testAdapter(ranks);
    Object.assign(adapter.config, config);
    await withAdapter(adapter, async (folder, convert) => {
      const { tensors } = await convert();
      const written = await Written.read(folder.out);
      const values = folder.checkpoint.values;
      const downs = merged(values.get(`${DOWN}.weight`)!, adapter.pairs[DOWN], down);
      assertEquals(written.values("blk.2.ffn_down.weight"), halves(downs));
      // Rotary pairs (i, i + half) of queries become (2i, 2i + 1).
      const queries = merged(values.get(`${Q}.weight`)!, adapter.pairs[Q], q);
      const half = TINY.headDim / 2;
      const moved = Float64Array.from(queries, (_, i) => {
        const [row, column] = [Math.floor(i / TINY.hidden), i % TINY.hidden];
        const [head, at] = [Math.floor(row / TINY.headDim), row % TINY.headDim];
        return queries[(head * TINY.headDim + (at & 1) * half + (at >> 1)) * TINY.hidden + column];
      });
      assertEquals(written.values("blk.1.attn_q.weight"), halves(moved));
      const report = tensors.filter(({ source }) => source.includes("LoRA"));
      assertEquals(
        report.map(({ source, type }) => `${source} ${type}`),
        Array(2).fill("BF16 with LoRA F16"),
      );
      assert(report.every(({ error }) => error!.relativeRms > 0 && error!.relativeRms < 2 ** -11));
      assertEquals(written.gguf.tensors.get("blk.1.ffn_down.weight")!.type, "BF16");
    });
  });
}

Deno.test("convert: merges into the adapter's own copy of a matrix", async () => {
  const adapter = testAdapter();
  const own = new Random(6).normals(new Float32Array(TINY.hidden * TINY.feedForward), 0.1);
  const copy = storeFloats("F32", SHAPES[DOWN], own);
  adapter.tensors.set(`base_model.model.${DOWN}.base_layer.weight`, copy);
  await withAdapter(adapter, async (folder, convert) => {
    await convert();
    const found = (await Written.read(folder.out)).values("blk.2.ffn_down.weight");
    assertEquals(found, halves(merged(own, adapter.pairs[DOWN], 6 / 4)));
  });
});

fullTier.test("convert: quantizes merged matrices from their unrounded values", async () => {
  const adapter = testAdapter();
  const plain = ({ tensors, values }: TinyCheckpoint) => {
    for (const [module, shape] of Object.entries(SHAPES)) {
      const sum = Float32Array.from(merged(values.get(`${module}.weight`)!, adapter.pairs[module], 6 / 4));
      tensors.set(`${module}.weight`, storeFloats("F32", shape, sum));
    }
  };
  const with_ = await withAdapter(adapter, async (folder, convert) => {
    await convert({ quantize: "q8_0" });
    return await Deno.readFile(folder.out);
  });
  await using without = await CheckpointFolder.make({ ...BF16, model: "llama" }, plain);
  await without.convert({ quantize: "q8_0" });
  assertEquals(with_, await Deno.readFile(without.out));
});

type Spoil = (adapter: TestAdapter) => void;
const key = (name: string, value: unknown): Spoil => ({ config }) => void (config[name] = value);
const A = `base_model.model.${DOWN}.lora_A.weight`;
const BAD: Record<string, [spoil: Spoil, words: string]> = {
  "another method": [key("peft_type", "IA3"), `key "peft_type": must be "LORA" (got "IA3")`],
  "DoRA": [
    key("use_dora", true),
    `key "use_dora": must be absent, because DoRA's magnitudes are not merged (got true)`,
  ],
  "biases": [key("bias", "all"), `key "bias": must be "none"`],
  "an initialization that changes the base": [key("init_lora_weights", "pissa"), `(got "pissa")`],
  "modules that are saved whole": [
    key("modules_to_save", ["lm_head"]),
    `key "modules_to_save": must be absent`,
  ],
  "a pattern": [key("rank_pattern", { "(a+)+$": 3 }), `key "rank_pattern.(a+)+$"`],
  "a rank that differs from its tensors": [
    key("r", 8),
    `must have shape 8 x columns for rank 8 (got 4 x 128)`,
  ],
  "a rank of 0": [key("r", 0), `key "r": must be a whole number from 1 to 65536 (got 0)`],
  "one matrix of a pair": [
    ({ tensors }) => void tensors.delete(A.replace("lora_A", "lora_B")),
    `tensor "${A}": needs the other matrix of the pair, lora_B`,
  ],
  "an adapter of the embedding": [
    ({ tensors }) =>
      void tensors.set("base_model.model.model.embed_tokens.lora_embedding_A", tensors.get(A)!),
    "only the pairs lora_A and lora_B of linear layers are merged",
  ],
  "a module that the checkpoint lacks": [
    ({ tensors }) => {
      for (const part of ["lora_A", "lora_B"]) {
        const name = A.replace("lora_A", part);
        tensors.set(name.replace("layers.2", "layers.9"), tensors.get(name)!);
      }
    },
    `module "model.layers.9.mlp.down_proj": the checkpoint`,
  ],
  "a pair of another shape": [
    ({ tensors }) => void tensors.set(A, storeFloats("F32", [RANK, 100], new Float32Array(400))),
    `tensor "${DOWN}.weight": must have shape 128 x 100 to match the adapter (got 128 x 256)`,
  ],
  "values that are not finite": [
    ({ tensors }) =>
      void tensors.set(A, storeFloats("F32", [RANK, 256], new Float32Array(1024).fill(NaN, 7, 8))),
    `tensor "${A}": merging it gives weights that are not finite`,
  ],
  "no tensors": [({ tensors }) => tensors.clear(), "it has no tensors"],
};
for (const [what, [spoil, words]] of Object.entries(BAD)) {
  Deno.test(`convert: rejects an adapter with ${what}`, async () => {
    const adapter = testAdapter();
    spoil(adapter);
    await withAdapter(adapter, async (folder, convert) => {
      const { message } = await assertRejects(() => convert(), ConvertError);
      assertStringIncludes(message, words);
      assertEquals(folder.leftBehind(), []);
    });
  });
}

Deno.test("convert: names the missing file of an adapter's folder", async () => {
  await withAdapter(testAdapter(), async (folder, convert) => {
    for (const name of ["adapter_model.safetensors", "adapter_config.json"]) {
      const path = join(folder.file("adapter"), name);
      await Deno.remove(path);
      const { message } = await assertRejects(() => convert(), ConvertError);
      assertStringIncludes(message, `Cannot find ${path}`);
    }
  });
});
