import { assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { join } from "@std/path";
import {
  safetensors,
  storeFloats,
  tinyCheckpoint,
  withHeader,
  writeCheckpoint,
} from "../../testing/checkpoints.ts";
import { fullTier } from "../../testing/tier.ts";
import { run, runJson, task, withFolder } from "../../testing/commands.ts";

Deno.test("cli: convert makes a file that generate runs, and exits with 1 for unsupported checkpoints", async () => {
  await withFolder(async (folder) => {
    const checkpoint = tinyCheckpoint({ model: "qwen3", weights: "MXFP4", layout: "mlx", seed: 1 });
    await Deno.mkdir(join(folder, "tiny"));
    await writeCheckpoint(join(folder, "tiny"), checkpoint);
    const [tiny, a, b, c] = ["tiny", "a.gguf", "b.gguf", "c.gguf"].map((name) => join(folder, name));
    const report = await runJson("convert", tiny, "--out", a);
    assertEquals([report.path, report.architecture, report.left_out], [a, "qwen3", {}]);
    const [embedding] = report.tensors;
    assertEquals(embedding, { name: "token_embd.weight", type: "MXFP4", shape: [128, 320], source: "MXFP4" });
    const answer = await runJson("generate", "--model", a, "--prompt", "the", "-n", "3", "--seed", "1");
    assertEquals(answer.steps.length, 3);
    const again = await run(["convert", tiny, "--out", a]);
    assertEquals([again.code, again.stdout], [1, ""]);
    assertStringIncludes(again.stderr, `Error: Cannot write ${a}: it already exists`);
    const quantised = await run(["convert", tiny, "--out", b, "--quantize", "q8_0"]);
    assertMatch(
      quantised.stdout,
      /b\.gguf: qwen3, 0\.\d MB, read back and compared\n +29 tensors MXFP4 to Q8_0\n/,
    );
    assertMatch(quantised.stdout, /\n +0\.00\d{3} +\d\.\d\de-\d +blk\.3\.ffn_down\.weight\n/);
    await Deno.truncate(join(folder, "tiny", "model.safetensors"), 1000);
    const cut = await run(["convert", tiny, "--out", c]);
    assertEquals([cut.code, cut.stdout], [1, ""]);
    assertMatch(
      cut.stderr,
      /^Error: Cannot convert .*tiny\/model\.safetensors, .*: the file is cut short\n$/,
    );
    assertEquals([...Deno.readDirSync(folder)].map(({ name }) => name).sort(), ["a.gguf", "b.gguf", "tiny"]);
  });
});

fullTier.test("cli: convert merges an adapter and reports the rounding errors of the merged matrices", async () => {
  await withFolder(async (folder) => {
    const [base, lora, out] = ["base", "lora", "out.gguf"].map((name) => join(folder, name));
    for (const path of [base, lora]) await Deno.mkdir(path);
    await writeCheckpoint(base, tinyCheckpoint({ model: "qwen3", weights: "BF16", layout: "hf", seed: 1 }));
    const config = { peft_type: "LORA", r: 2, lora_alpha: 1 };
    await Deno.writeTextFile(join(lora, "adapter_config.json"), JSON.stringify(config));
    const pair = Object.entries({ A: [2, 256], B: [128, 2] }).map(([part, shape]) => {
      const values = new Float32Array(shape[0] * shape[1]).fill(0.3);
      const name = `base_model.model.model.layers.3.mlp.down_proj.lora_${part}.weight`;
      return [name, storeFloats("F32", shape, values)] as const;
    });
    await Deno.writeFile(join(lora, "adapter_model.safetensors"), safetensors(pair));
    const { code, stdout, stderr } = await run(["convert", base, "--lora", lora, "--out", out]);
    assertEquals([code, stderr], [0, ""]);
    assertMatch(stdout, /\n +1 tensors BF16 with LoRA to F16\n/);
    assertMatch(stdout, /\n +0\.000\d\d +\d\.\d\de-\d +blk\.3\.ffn_down\.weight\n/);
  });
});

Deno.test("cli: convert leaves no files after Ctrl-C", async () => {
  await withFolder(async (folder) => {
    await writeHollow(join(folder, "hollow"));
    const [hollow, out] = [join(folder, "hollow"), join(folder, "out.gguf")];
    const child = task(["convert", hollow, "--out", out, "--quantize", "mxfp4"]);
    const names = () => [...Deno.readDirSync(folder)].map(({ name }) => name).sort();
    for (let i = 0; names().length === 1 && i < 3000; i++) {
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    assertEquals(names(), ["hollow", "out.gguf.partial"]);
    child.kill("SIGINT");
    const { code, stderr } = await child.output();
    assertEquals([code, new TextDecoder().decode(stderr)], [1, "Error: Stopped; nothing is left behind\n"]);
    assertEquals(names(), ["hollow"]);
  });
});

const HOLLOW_ROWS = 200_000;

/** A sparse checkpoint of zeros that takes seconds to convert. */
async function writeHollow(folder: string): Promise<void> {
  const checkpoint = tinyCheckpoint({ model: "qwen3", weights: "BF16", layout: "hf", seed: 1 });
  checkpoint.config.vocab_size = HOLLOW_ROWS;
  await Deno.mkdir(folder);
  await writeCheckpoint(folder, checkpoint);
  const hidden = checkpoint.config.hidden_size as number;
  const bytes = HOLLOW_ROWS * hidden * 2;
  let at = bytes;
  const header: Record<string, unknown> = {
    "model.embed_tokens.weight": { dtype: "BF16", shape: [HOLLOW_ROWS, hidden], data_offsets: [0, bytes] },
  };
  for (const [name, tensor] of checkpoint.tensors) {
    if (name in header) continue;
    header[name] = {
      dtype: tensor.dtype,
      shape: tensor.shape,
      data_offsets: [at, at += tensor.bytes.length],
    };
  }
  const start = withHeader(JSON.stringify(header), []);
  await Deno.writeFile(join(folder, "model.safetensors"), start);
  await Deno.truncate(join(folder, "model.safetensors"), start.length + at);
}
