import { assert, assertEquals, assertRejects, assertThrows } from "@std/assert";
import { GpuError } from "../../engine/backend/webgpu/errors.ts";
import { parseGguf } from "../../engine/gguf/reader.ts";
import { EngineError } from "../../engine/mod.ts";
import { GREEDY } from "../../testing/engine.ts";
import { instructionSets } from "../../testing/kernel_model.ts";
import type { Architecture } from "../../testing/synth/synth.ts";
import { withTextModel } from "../../testing/text_model.ts";
import { firstTier, fullTier } from "../../testing/tier.ts";

/*
 * Encoders: models with bidirectional attention that return one row per text. Each row must be bit-identical in every
 * batch and for any number of threads.
 */

const ARCHITECTURES = [
  "bert",
  "nomic-bert",
  "nomic-bert-moe",
  "modern-bert",
  "neo-bert",
  "jina-bert-v2",
  "jina-bert-v3",
  "eurobert",
  "llama-embed",
] as const;
/** Encoders of the first tier: with plain layers, experts, and windows. */
const FIRST_TIER: readonly Architecture[] = ["bert", "nomic-bert-moe", "modern-bert"];
/** Lengths around the edges of tiles of 64 rows; the last fills a shared step. */
const LENGTHS = [1, 2, 9, 63, 64, 65, 70, 127, 200, 500, 512];

const text = (length: number, seed = 0) =>
  Array.from({ length }, (_, i) => (seed * 37 + i * i * 7 + i) % 256);

interface Case {
  readonly isa: string;
  readonly architecture: Architecture;
  readonly lengths: readonly number[];
}

/** The best instruction set runs all encoders. Other sets run one with windows and rounded heads, on short texts. */
const CASES = instructionSets().flatMap((isa, i): Case[] =>
  i === 0
    ? [...ARCHITECTURES, "gemma-embedding" as const].map((architecture) => ({
      isa,
      architecture,
      lengths: LENGTHS,
    }))
    : [{ isa, architecture: "gemma-embedding", lengths: LENGTHS.filter((length) => length <= 127) }]
);
for (const { isa, architecture, lengths } of CASES) {
  const tier = isa === instructionSets()[0] && FIRST_TIER.includes(architecture) ? firstTier : fullTier;
  tier.test(`${isa}: ${architecture}'s rows are the same alone, in a batch, and for any number of threads`, async () => {
    const inputs = lengths.map((length) => text(length, length));
    const crowd = [...inputs, ...inputs.toReversed(), text(40, 3)];
    const types = ["Q8_0", "F16", "Q4_K"] as const;
    const alone: Float32Array[] = [];
    await withTextModel({ pooling: 1 }, { architecture, types, isa, threads: 1 }, async (engine) => {
      for (const input of inputs) alone.push((await engine.embed({ inputs: [input] })).rows[0]);
    });
    await withTextModel({ pooling: 1 }, { architecture, types, isa, threads: 2 }, async (engine) => {
      const waves = await Promise.all([
        engine.embed({ inputs: crowd }),
        engine.embed({ inputs, priority: "batch" }),
      ]);
      assertEquals(waves[0].rows.slice(0, inputs.length), alone);
      assertEquals(waves[0].rows.slice(inputs.length, 2 * inputs.length), alone.toReversed());
      assertEquals(waves[1].rows, alone);
      const { running, waiting, kvBlocksUsed, kvBlocksTotal } = engine.stats();
      assertEquals([running, waiting, kvBlocksUsed, kvBlocksTotal], [0, 0, 0, 0]);
    });
  });
}

/** Id of a token with NaN in its embedding: the scale of its first block is NaN. */
const BROKEN = 255;
function breakToken(bytes: Uint8Array<ArrayBuffer>): void {
  const { offset, byteLength, shape } = parseGguf(bytes).tensors.get("token_embd.weight")!;
  new DataView(bytes.buffer).setUint16(offset + BROKEN * byteLength / shape[1], 0x7e00, true);
}

fullTier.test("encoders: NaN in one text does not affect other texts", async () => {
  const inputs = LENGTHS.map((length) => text(length, length).map((token) => token % BROKEN));
  const broken = (input: number[]) => [...input.slice(0, 300), BROKEN, ...input.slice(0, 50)];
  for (const architecture of ARCHITECTURES) {
    const options = { architecture, types: ["Q8_0"], change: breakToken } as const;
    await withTextModel({ pooling: 1 }, options, async (engine) => {
      const { rows: alone } = await engine.embed({ inputs });
      const answers = inputs.map(async (input, i) => {
        const refused = assertRejects(
          () => engine.embed({ inputs: [broken(input)] }),
          EngineError,
          "no usable row",
        );
        assertEquals((await engine.embed({ inputs: [input] })).rows[0], alone[i]);
        await refused;
      });
      await Promise.all(answers);
    });
  }
});

Deno.test("encoders: a text may fill the context window; a longer one is refused with both lengths", async () => {
  const options = { architecture: "bert", contextLength: undefined } as const;
  await withTextModel({ pooling: 2 }, options, async (engine) => {
    assertEquals(engine.model.contextLength, 512);
    assertEquals((await engine.embed({ inputs: [text(512)] })).rows.length, 1);
    const error = await assertRejects(() => engine.embed({ inputs: [text(5), text(513)] }), EngineError);
    assertEquals(
      [error.code, error.message],
      ["context_length_exceeded", "Text 1 has 513 tokens, but the context holds 512: shorten it"],
    );
    assertThrows(
      () => engine.encodePrompt("x".repeat(9000)),
      EngineError,
      "The text has at least 2049 tokens, but the context holds 512: shorten it",
    );
  });
});

Deno.test("encoders: a text longer than shared steps runs in its own step, and short texts run in between", async () => {
  const options = { architecture: "modern-bert", contextLength: undefined } as const;
  await withTextModel({ pooling: 1 }, options, async (engine) => {
    assertEquals(engine.model.contextLength, 2048);
    const [long, short] = [text(1300, 1), text(20, 2)];
    const [alone] = (await engine.embed({ inputs: [long] })).rows;
    const before = engine.stats().steps;
    const { rows } = await engine.embed({ inputs: [short, long, short, long] });
    assertEquals([rows[1], rows[3]], [alone, alone]);
    assert(engine.stats().steps - before <= 4);
  });
});

Deno.test("encoders: refuse to generate", async () => {
  await withTextModel({ pooling: 1 }, { architecture: "nomic-bert" }, async (engine) => {
    const answer = async () => {
      for await (const _ of engine.submit({ prompt: [1], sampling: GREEDY })) { /* none comes */ }
    };
    const error = await assertRejects(answer, EngineError);
    assertEquals(
      [error.code, error.message],
      [
        "not_supported",
        'The model "texts" generates no text',
      ],
    );
  });
});

Deno.test("encoders: the GPU is refused with a message, and auto selects the CPU", async () => {
  const load = (backend: "webgpu" | "auto") =>
    withTextModel({ pooling: 1 }, { architecture: "bert", backend }, async (engine) => {
      assertEquals((await engine.embed({ inputs: [text(3)] })).rows.length, 1);
    });
  await assertRejects(() => load("webgpu"), GpuError, "does not support embeddings");
  await load("auto");
});
