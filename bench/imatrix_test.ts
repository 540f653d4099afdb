import { assert, assertAlmostEquals, assertEquals, assertRejects } from "@std/assert";
import { readTensor } from "../engine/gguf/float_tensor.ts";
import { openGguf } from "../engine/gguf/reader.ts";
import { createTokenizer } from "../engine/tokenizer/tokenizer.ts";
import { dequantize } from "../testing/synth/weights.ts";
import { everyNth } from "../testing/tier.ts";
import { withTextModel } from "../testing/text_model.ts";
import { chunksOf } from "./chunks.ts";
import { collectInputs } from "./imatrix.ts";

const MODEL = new URL("../models/demo.gguf", import.meta.url).pathname;
const TEXT = "Once upon a time, a small crow lived at the edge of the forest. She was kind. ".repeat(12);
const OPTIONS = { model: MODEL, text: TEXT, chunkTokens: 64, backend: "cpu", threads: 2 } as const;

Deno.test("imatrix: sums the first layer's inputs, the normalized embeddings of the text, before rounding", async () => {
  const { inputs, chunks } = await collectInputs({ ...OPTIONS, chunks: 2 });
  assertEquals(chunks, 2);
  const file = await openGguf(MODEL);
  const valuesOf = async (name: string) => {
    const info = file.tensors.get(name)!;
    const count = info.shape.reduce((product, n) => product * n, 1);
    return dequantize(info.type, new Uint8Array(await readTensor(file, info)), count);
  };
  const [embeddings, norm] = [await valuesOf("token_embd.weight"), await valuesOf("blk.0.attn_norm.weight")];
  const columns = norm.length;
  const epsilon = file.metadata.getNumber("llama.attention.layer_norm_rms_epsilon")!;
  const expected = new Float64Array(columns);
  for (
    const token of chunksOf(createTokenizer(file.metadata), { ...OPTIONS, chunks: 2 }).flatMap((c) => [...c])
  ) {
    const row = Array.from(embeddings.slice(token * columns, (token + 1) * columns));
    const mean = row.reduce((sum, value) => sum + value * value, 0) / columns;
    row.forEach((value, i) => expected[i] += (value * norm[i]) ** 2 / (mean + epsilon));
  }
  for (const name of ["attn_q", "attn_k", "attn_v"]) {
    const { sums, counts } = inputs.get(`blk.0.${name}.weight`)!;
    assertEquals(counts, Float32Array.of(128));
    sums.forEach((sum, i) => assertAlmostEquals(sum / expected[i], 1, 1e-4, `${name}, column ${i}`));
  }
  // Each layer has seven matrices. Embeddings and the output matrix have no entry.
  const parts = "attn_q attn_k attn_v attn_output ffn_gate ffn_up ffn_down".split(" ");
  const names = [0, 1, 2, 3].flatMap((layer) => parts.map((part) => `blk.${layer}.${part}.weight`));
  assertEquals([...inputs.keys()].sort(), names.sort());
});

Deno.test("imatrix: gives the same sums for any number of threads, and adds chunks up", async () => {
  const [both, first, again] = await Promise.all([
    collectInputs({ ...OPTIONS, chunks: 2 }),
    collectInputs({ ...OPTIONS, chunks: 1 }),
    collectInputs({ ...OPTIONS, chunks: 1, threads: 1 }),
  ]);
  assertEquals(first.inputs, again.inputs);
  for (const [name, { sums, counts }] of first.inputs) {
    assertEquals(counts, Float32Array.of(64));
    assert(sums.every((sum, i) => sum > 0 && sum < both.inputs.get(name)!.sums[i]), name);
  }
});

for (const types of everyNth(2, [["Q8_0"], ["F32"]] as const)) {
  Deno.test(`imatrix: each expert's sums in ${types} cover the rows that chose the expert`, async () => {
    await withTextModel({}, { architecture: "qwen3moe", types }, async (_engine, model) => {
      const { inputs, unused } = await collectInputs({ ...OPTIONS, model, chunks: 1 });
      const of = (part: string) => inputs.get(`blk.0.${part}.weight`)!;
      const [router, gate, up, down] = ["ffn_gate_inp", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"].map(
        of,
      );
      assertEquals(gate, up);
      assertEquals(gate.counts, down.counts);
      const rows = gate.counts.reduce((sum, count) => sum + count, 0);
      const used = rows / router.counts[0];
      assert(used >= 2 && Number.isInteger(used), `${used}`);
      const columns = router.sums.length;
      // Each row goes to `used` experts, so the experts' sums add up to `used` times the router's inputs.
      for (let i = 0; i < columns; i++) {
        const sum = gate.counts.reduce((sum, _, expert) => sum + gate.sums[expert * columns + i], 0);
        assert(sum > 0 && sum < used * router.sums[i] * (1 + 1e-5), `column ${i}: ${sum}`);
      }
      const total = (sums: Float32Array) => sums.reduce((sum, value) => sum + value, 0);
      assertAlmostEquals(total(gate.sums) / total(router.sums), used, 1e-4);
      // An expert has sums if and only if rows chose it.
      const width = down.sums.length / down.counts.length;
      down.counts.forEach((count, expert) => {
        const own = down.sums.subarray(expert * width, (expert + 1) * width);
        assertEquals(own.some((sum) => sum > 0), count > 0, `expert ${expert}`);
      });
      const missing = (counts: Float32Array) => counts.filter((count) => count === 0).length;
      assertEquals(unused, [...inputs.values()].reduce((sum, { counts }) => sum + missing(counts), 0));
    });
  });
}

Deno.test("imatrix: ends early on request, and refuses encoders and short texts", async () => {
  const abort = new AbortController();
  const early = await collectInputs({ ...OPTIONS, signal: abort.signal, onChunk: () => abort.abort() });
  assert(early.chunks === 1 && early.wanted > 1);
  await assertRejects(() => collectInputs({ ...OPTIONS, text: "Hi" }), Error, "fewer than a chunk of 64");
  await withTextModel({}, { architecture: "bert" }, async (_engine, model) => {
    await assertRejects(() => collectInputs({ ...OPTIONS, model }), Error, "gives vectors for texts");
  });
});
