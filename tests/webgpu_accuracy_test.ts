import { assert, assertEquals } from "@std/assert";
import { fromFileUrl } from "@std/path";
import { gpuTest } from "./gpu.ts";

const ROOT = fromFileUrl(new URL("..", import.meta.url));

gpuTest("the accuracy report keeps its gates, as JSON", async () => {
  const options = ["--types", "Q4_0", "--tokens", "20", "--json"];
  const args = ["run", "-q", "-P=accuracy", "tests/webgpu_accuracy.ts", ...options];
  const { code, stdout } = await new Deno.Command(Deno.execPath(), { args, cwd: ROOT }).output();
  const { model, products, texts } = JSON.parse(new TextDecoder().decode(stdout));
  assertEquals([code, model], [0, "demo.gguf"]);
  assertEquals(
    products.map((row: { arithmetic: string; passes: boolean }) => [row.arithmetic, row.passes]),
    [["f32", true], ["f16-activations", true], ["f16", true]],
  );
  assertEquals(texts.length, 5);
  for (const { of, from, tokens, mean_kl, worst_kl, top1, perplexity } of texts) {
    assertEquals(tokens, 19);
    assert(
      mean_kl >= 0 && mean_kl <= worst_kl && worst_kl < 0.01,
      `${of} from ${from}: ${mean_kl}, ${worst_kl}`,
    );
    assert(top1 > 0.9 && Math.abs(perplexity) < 0.01);
  }
});
