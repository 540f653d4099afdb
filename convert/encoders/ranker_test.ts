import { assert, assertEquals, assertRejects } from "@std/assert";
import { storeFloats, TINY, type TinyCheckpoint } from "../../testing/checkpoints.ts";
import { withLiveServer } from "../../testing/live_server.ts";
import { ConvertError } from "../convert.ts";
import { CheckpointFolder, Written } from "../testing.ts";

const QWEN3 = { model: "qwen3", weights: "BF16", layout: "hf", seed: 5 } as const;
const [YES, NO] = [270, 265];
const CARD = "---\nlicense: apache-2.0\n---\n\n# Qwen3-Reranker-0.6B\n";
const KEY = "tokenizer.chat_template.rerank";

/** Adds the tokens "yes" and "no". */
function addWords({ tokenizer }: TinyCheckpoint): void {
  const { vocab } = tokenizer.model as { vocab: Record<string, number> };
  for (const [word, id] of [["yes", YES], ["no", NO]] as const) vocab[word] = id;
}

const rowOf = (
  values: Float32Array,
  row: number,
) => [...values.slice(row * TINY.hidden, (row + 1) * TINY.hidden)];

for (const quantize of [undefined, "q8_0"] as const) {
  Deno.test(`convert: copies Qwen3-Reranker's head exactly from the output rows of yes and no ${quantize ? "beside Q8_0" : ""}`, async () => {
    await using folder = await CheckpointFolder.make(QWEN3, addWords);
    await Deno.writeTextFile(folder.file("README.md"), CARD);
    assertEquals((await folder.convert({ quantize })).refusal, undefined);
    const written = await Written.read(folder.out);
    const { metadata, tensors } = written.gguf;
    assertEquals(tensors.get("cls.output.weight")!.shape, [TINY.hidden, 2]);
    const embedding = folder.checkpoint.values.get("model.embed_tokens.weight")!;
    const head = [...rowOf(embedding, YES), ...rowOf(embedding, NO)];
    assertEquals([...written.values("cls.output.weight")], head);
    assertEquals(metadata.getNumber("qwen3.pooling_type"), 4);
    assertEquals(metadata.getStrings("qwen3.classifier.output_labels"), ["yes", "no"]);
    const template = metadata.getString(KEY);
    assert(template.includes("<Query>: {query}\n<Document>: {document}<|im_end|>"), template);
  });
}

Deno.test("convert: recognizes a Qwen3 reranker by its card, model name or folder name; other Qwen3 models are not rerankers", async () => {
  const ranks = async (card: string | undefined, change: (checkpoint: TinyCheckpoint) => void = () => {}) => {
    await using folder = await CheckpointFolder.make(QWEN3, (checkpoint) => {
      addWords(checkpoint);
      change(checkpoint);
    });
    if (card !== undefined) await Deno.writeTextFile(folder.file("README.md"), card);
    await folder.convert();
    return (await Written.read(folder.out)).gguf.metadata.has(KEY);
  };
  const named: (checkpoint: TinyCheckpoint) => void = ({ config }) =>
    config._name_or_path = "Qwen/Qwen3-Reranker-0.6B";
  assertEquals(
    [
      await ranks(undefined),
      await ranks("# Qwen3-0.6B\nSee also Qwen3-Reranker."),
      await ranks(CARD),
      await ranks(undefined, named),
    ],
    [false, false, true, true],
  );
});

Deno.test("convert: rejects a reranker whose tokenizer lacks its words", async () => {
  await using folder = await CheckpointFolder.make(QWEN3);
  await Deno.writeTextFile(folder.file("README.md"), CARD);
  await assertRejects(() => folder.convert(), ConvertError, 'key "model.vocab.yes": must be a token');
  assertEquals(folder.leftBehind(), []);
});

Deno.test("convert: keeps a decoder's classification head and labels", async () => {
  const score = Float32Array.from({ length: TINY.hidden }, (_, i) => (i % 9 - 4) / 8);
  await using folder = await CheckpointFolder.make(QWEN3, ({ config, tensors }) => {
    Object.assign(config, { tie_word_embeddings: false, id2label: { 0: "fits" } });
    tensors.set("score.weight", storeFloats("BF16", [1, TINY.hidden], score));
  });
  assertEquals((await folder.convert()).refusal, undefined);
  const written = await Written.read(folder.out);
  assertEquals(written.values("cls.output.weight"), score);
  const { metadata } = written.gguf;
  assertEquals(metadata.getNumber("qwen3.pooling_type"), 4);
  assertEquals(metadata.getStrings("qwen3.classifier.output_labels"), ["fits"]);
});

Deno.test("convert: a converted Qwen3-Reranker ranks by the model's own probability of yes against no", async () => {
  await using folder = await CheckpointFolder.make(QWEN3, addWords);
  await Deno.writeTextFile(folder.file("README.md"), CARD);
  await folder.convert();
  const template = (await Written.read(folder.out)).gguf.metadata.getString(KEY);
  await withLiveServer(["--model", folder.out, "--ctx", "1024", "--threads", "1"], async (server) => {
    const documents = ["a fox in the snow", "the stone", "<|im_end|>", ""];
    const { results } = await server.post("/v1/rerank", { query: "animals", documents });
    assertEquals(results.map(({ index }: { index: number }) => index).sort(), [0, 1, 2, 3]);
    for (const { index, relevance_score } of results) {
      if (index === 2) continue; // this document spells a control token, which the ranker treats as text
      const prompt = template.replace("{query}", "animals").replace("{document}", documents[index]);
      // For a forced token, the reported log-probability is the model's own.
      const [yes, no] = await Promise.all([YES, NO].map(async (id) => {
        const asked = { prompt, max_tokens: 1, temperature: 0, logprobs: 0, logit_bias: { [id]: 100 } };
        return (await server.post("/v1/completions", asked)).choices[0].logprobs.token_logprobs[0];
      }));
      assert(Math.abs(relevance_score - 1 / (1 + Math.exp(no - yes))) < 1e-3, `${relevance_score}`);
    }
  });
});
