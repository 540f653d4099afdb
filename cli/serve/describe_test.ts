import { assertEquals } from "@std/assert";
import type { LoadedEngine } from "../../lib/model.ts";
import { describe } from "./describe.ts";

const OWN = 131_072;
const loadedWith = (contextLength: number, cut?: LoadedEngine["cut"]) =>
  ({
    engine: { model: { id: "m", architecture: "llama", contextLength, trainedContext: OWN } },
    backend: { info: { name: "cpu", isa: "avx2", threads: 2 } },
    choice: "",
    loadMs: 120,
    memory: { weights: 2e6, kv: 3e6, states: 0, activations: 1e6 },
    kvTokens: 20_000,
    cut,
  }) as LoadedEngine;

Deno.test("serve: prints the context, why it is not the model's own, and the flag that changes it", () => {
  const rest = ", loaded in 0.1 s; avx2, 2 threads; weights 2.0 MB, " +
    "KV cache in f16 3.0 MB once full (20000 tokens), activations 1.0 MB";
  const asked = describe(loadedWith(8192));
  assertEquals(asked, `m: llama, 8192 tokens of context${rest}`);
  assertEquals(describe(loadedWith(OWN)), `m: llama, 131072 tokens of context (the model's own)${rest}`);
  const cut = { own: OWN, ownBytes: 20e6, available: 3e6 };
  assertEquals(
    describe(loadedWith(20_000, cut)),
    "m: llama, 20000 tokens of context (the model's own 131072 take 20.0 MB of KV cache, and it may have 3.0 MB; " +
      `--ctx allows more)${rest}`,
  );
});
