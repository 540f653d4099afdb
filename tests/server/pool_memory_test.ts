import { assert, assertEquals } from "@std/assert";
import { fromFileUrl } from "@std/path";
import type { Held, Rounds } from "./pool_memory_child.ts";
import { synthesize } from "../../testing/synth/synth.ts";
import { fullTier } from "../../testing/tier.ts";

const CHILD = fromFileUrl(new URL("pool_memory_child.ts", import.meta.url));

async function loadInTurns(rounds: Rounds): Promise<Held[]> {
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["run", "-q", "--no-check", "-P=test", "--v8-flags=--expose-gc", CHILD, JSON.stringify(rounds)],
    cwd: fromFileUrl(new URL("../..", import.meta.url)),
  }).output();
  const decoder = new TextDecoder();
  assertEquals(code, 0, decoder.decode(stderr));
  return JSON.parse(decoder.decode(stdout));
}

fullTier.test({
  name: "pool memory: hundreds of loads and unloads leak no memory and no open file",
  ignore: Deno.build.os !== "linux",
  async fn() {
    const folder = await Deno.makeTempDir({ prefix: "loads-" });
    try {
      const models = (["qwen3", "qwen35"] as const).map((architecture) => {
        const file = `${folder}/${architecture}.gguf`;
        Deno.writeFileSync(file, synthesize({ architecture, types: ["Q8_0"], seed: 1 }));
        return file;
      });
      const [warm, after] = await loadInTurns({ models, rounds: [40, 200], disk: `${folder}/prompts` });
      const shown = JSON.stringify({ warm, after });
      // A leak of 12 kB per load, a tenth of its weights, would exceed this.
      assert(after.heap - warm.heap < 2e6, shown);
      assert(after.buffers - warm.buffers < 2e6, shown);
      assert(after.native - warm.native < 30e6, shown);
      assert(after.descriptors - warm.descriptors < 5, shown);
      // The allocator once kept several copies of the kernels' library, which is read for its digest.
      assert(warm.native < 200e6, shown);
    } finally {
      await Deno.remove(folder, { recursive: true });
    }
  },
});
