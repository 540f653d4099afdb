import { assertEquals } from "@std/assert";
import { greedyRequest, type LogitsRequest } from "../../engine/backend/backend.ts";
import { kernelBackend, KernelModel } from "../../testing/kernel_model.ts";
import { synthesize } from "../../testing/synth/synth.ts";

/* Several threads together compute the candidates of a row of logits. */

/** Number of logits: several parts of 1,024, and an incomplete part. */
const VOCABULARY = 5000;
const LIMITS = { kvBlocks: 8, maxRows: 16, maxLogitRows: 8 };

const MODEL = synthesize({ architecture: "llama", seed: 11, types: ["Q8_0"], vocabulary: VOCABULARY });

/** Returns a mask. It allows the tokens whose id modulo 7 is `rest`, except the tokens from 1,000 to 3,000. */
function maskOf(rest: number): Promise<Uint32Array> {
  const mask = new Uint32Array(Math.ceil(VOCABULARY / 32));
  for (let token = rest; token < VOCABULARY; token += 7) {
    if (token < 1000 || token > 3000) mask[token >> 5] |= 1 << (token & 31);
  }
  return Promise.resolve(mask);
}

const tokens = Int32Array.of(3, 4990, 2048);
const penalties = {
  repetitionPenalty: 1.3,
  presencePenalty: 0.5,
  frequencyPenalty: 0.25,
  penaltyTokens: tokens,
  penaltyCounts: Int32Array.of(0, 2, 1),
};
const bias = { biasTokens: Int32Array.of(4999, 7), biasValues: Float32Array.of(2, -3) };
const drawing = (mark: number) => ({
  draw: {
    temperature: 0.9,
    topK: 256,
    topP: 1,
    minP: 0,
    whole: true,
    massOfAll: true,
    key: [mark, 5] as const,
    ends: new Int32Array(0),
  },
});

const REQUESTS: readonly Partial<LogitsRequest>[] = [
  {},
  { candidates: 256, probe: tokens },
  { candidates: 5, ...penalties, ...bias, ...drawing(1) },
  { candidates: 3, mask: maskOf(2), ...drawing(2) },
  { candidates: 256, mask: maskOf(4), ...penalties },
  { candidates: 4, mask: maskOf(4), probe: tokens, ...bias, ...drawing(3) },
  ...Array.from({ length: 20 }, (_, i) => drawing(i + 4)),
];

Deno.test("candidates: several threads that share a row give the same bits as one thread", async () => {
  using alone = await KernelModel.load(MODEL, LIMITS, await kernelBackend({ threads: 1 }));
  using together = await KernelModel.load(MODEL, LIMITS, await kernelBackend({ threads: 4 }));
  for (const rows of [1, 2, 3]) {
    for (let first = 0; first + rows <= REQUESTS.length; first++) {
      const requests = REQUESTS.slice(first, first + rows);
      const step = {
        tokens: Int32Array.from(requests, (_, row) => 7 + first + row),
        sequences: requests.map((_, start) => (
          { start, length: 1, cached: 0, blockTable: Int32Array.of(start), windowTables: [] }
        )),
        logits: requests.map((request, row) => ({ ...greedyRequest(row), ...request })),
      };
      const [one, several] = [await alone.backend.step(step), await together.backend.step(step)];
      assertEquals(several.rows, one.rows, `rows ${first} to ${first + rows - 1}`);
    }
  }
});
