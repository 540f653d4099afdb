import { assert, assertEquals } from "@std/assert";
import { fromFileUrl } from "@std/path";
import { gpuTest } from "./gpu.ts";

const ROOT = fromFileUrl(new URL("..", import.meta.url));

gpuTest("the accuracy report keeps its gates, as JSON", async () => {
  const options = ["--types", "Q4_0", "--tokens", "20", "--model", "models", "--json"];
  const args = ["run", "-q", "-P=accuracy", "tests/webgpu_accuracy.ts", ...options];
  const { code, stdout } = await new Deno.Command(Deno.execPath(), { args, cwd: ROOT }).output();
  const { products, texts, summary, errors } = JSON.parse(new TextDecoder().decode(stdout));
  assertEquals([code, errors], [0, []]);
  assertEquals(
    products.map((row: { arithmetic: string; passes: boolean }) => [row.arithmetic, row.passes]),
    [["f32", true], ["f16-activations", true], ["f16", true], ["int16-activations", true]],
  );
  assertEquals(texts.length, 12);
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
