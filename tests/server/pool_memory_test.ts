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
  name: "hundreds of loads and unloads leave nothing behind: no memory, and no open file",
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
      // Of 160 loads each held 12 kB, or a tenth of its weights, it would be more.
      assert(after.heap - warm.heap < 2e6, shown);
      assert(after.buffers - warm.buffers < 2e6, shown);
      assert(after.native - warm.native < 30e6, shown);
      assert(after.descriptors - warm.descriptors < 5, shown);
      // The kernels' library, read for its digest, once stayed in the allocator several times.
      assert(warm.native < 200e6, shown);
    } finally {
      await Deno.remove(folder, { recursive: true });
    }
  },
});
