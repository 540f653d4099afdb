import { assert, assertEquals } from "@std/assert";
import { fromFileUrl, join } from "@std/path";
import { gpuTest } from "../../testing/gpu.ts";
import { synthesize } from "../../testing/synth/synth.ts";
import { Readers } from "./teacher_forced.ts";

const ROOT = fromFileUrl(new URL("../..", import.meta.url));

gpuTest("accuracy report: the demo model keeps the gates, as JSON", async () => {
  const options = ["--types", "Q4_0", "--tokens", "20", "--model", "models", "--json"];
  const args = ["run", "-q", "-P=accuracy", "tests/webgpu/webgpu_accuracy.ts", ...options];
  const { code, stdout } = await new Deno.Command(Deno.execPath(), { args, cwd: ROOT }).output();
  const { products, texts, summary, errors } = JSON.parse(new TextDecoder().decode(stdout));
  assertEquals([code, errors], [0, []]);
  assertEquals(
    products.map((row: { arithmetic: string; passes: boolean }) => [row.arithmetic, row.passes]),
    [["f32", true], ["f16", true]],
  );
  assertEquals(texts.length, 6);
  assertEquals(summary.length, texts.length);
  for (const { model, of, from, tokens, mean_kl, worst_kl, top1, worst_flip, perplexity, gates } of texts) {
    assertEquals([model, tokens], ["demo.gguf", 19]);
    const gated = !of.startsWith("CPU") && from !== "CPU";
    assertEquals(gates, gated ? { mean_kl: true, top1: true, perplexity: true } : undefined);
    if (from === "CPU in F32" && of === "f32") assert(mean_kl < 2e-6, `${mean_kl} from the same in F32`);
    assertEquals(worst_flip > 0, top1 < 1);
    assert(
      mean_kl >= 0 && mean_kl <= worst_kl && worst_kl < 0.01,
      `${of} from ${from}: ${mean_kl}, ${worst_kl}`,
    );
    assert(top1 > 0.9 && Math.abs(perplexity) < 0.01);
  }
});

gpuTest("accuracy report: measures a model also in an arithmetic in which it is refused", async () => {
  const folder = await Deno.makeTempDir({ prefix: "compy-test-" });
  try {
    const path = join(folder, "qwen35.gguf");
    await Deno.writeFile(
      path,
      synthesize({ architecture: "qwen35", types: ["Q4_0"], layers: 4, seed: 3, vocabulary: 300 }),
    );
    using readers = await Readers.open(path, [
      { name: "f32", backend: "webgpu" },
      { name: "f16", backend: "webgpu", arithmetic: "f16" },
    ], 4);
    const pairs = [{ of: "f16", from: "f32" }];
    const [distance] = await readers.compare(await readers.write(), pairs, () => {});
    assert(distance.meanKl > 0 && distance.meanKl < 2e-4, `mean KL ${distance.meanKl}`);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});
