import { assertEquals, assertRejects } from "@std/assert";
import { type Backend, type StepInput, type StepOutput, StepStopped } from "../backend/backend.ts";
import type { Sequence } from "../schedule/sequence.ts";
import { BlockDrafter, type BlockOptions } from "./block_drafter.ts";

const MASK = 7;

/**
 * Returns a sequence of `length` tokens (100, 101, 102, …) with two KV blocks of 32. Its last token is not computed
 * yet.
 */
function sequenceOf(length: number, cached = length - 1): Sequence {
  const tokens = Int32Array.from({ length: 200 }, (_, i) => 100 + i);
  return {
    tokens,
    length,
    kv: { cached, blocks: Int32Array.from({ length: 8 }, (_, i) => i), blockCount: 2, windows: [] },
  } as unknown as Sequence;
}

/**
 * Returns a drafter and its backend's inputs. The backend drafts the index of each wanted row, with decreasing
 * probability.
 */
function drafting(options: Partial<BlockOptions> = {}, error?: Error) {
  const inputs: StepInput[] = [];
  const step = (input: StepInput): Promise<StepOutput> => {
    inputs.push(input);
    const rows = input.logits.map(({ row }) => ({
      ids: Int32Array.of(row),
      logits: Float32Array.of(Math.log(0.9 - 0.1 * row)),
      rawLogits: Float32Array.of(0),
      logSumExp: 0,
      deviation: 1,
      probed: new Float32Array(0),
    }));
    return error ? Promise.reject(error) : Promise.resolve({ rows });
  };
  const limits = { rows: 4, mask: MASK, maxRows: 64, maxLogitRows: 16 };
  return { inputs, drafter: new BlockDrafter({ step } as unknown as Backend, { ...limits, ...options }) };
}

const tokensOf = (drafts: readonly { tokens: Int32Array }[]) => drafts.map(({ tokens }) => [...tokens]);

Deno.test("block drafter: one step drafts the tokens of all sequences, from rows of the mask token", async () => {
  const { inputs, drafter } = drafting({ tokens: Int32Array.from({ length: 9 }, (_, i) => 50 + i) });
  const drafts = await drafter.draft([{ sequence: sequenceOf(10), most: 2 }, {
    sequence: sequenceOf(40),
    most: 1,
  }]);
  assertEquals(tokensOf(drafts), [[51, 52], [54]]);
  assertEquals([...drafts[0].grades], [12, 11]);
  const [{ tokens, sequences, drafts: from }] = inputs;
  assertEquals([...tokens], [109, MASK, MASK, 139, MASK]);
  assertEquals([...from!], [0, 1, 2, 3, 4]);
  assertEquals(
    sequences.map(({ start, length, cached, blockTable, spans }) => [
      start,
      length,
      cached,
      [...blockTable],
      spans,
    ]),
    [
      [0, 3, 9, [0], [{ first: 9, end: 12 }]],
      [3, 2, 39, [0, 1], [{ first: 39, end: 41 }]],
    ],
  );
  assertEquals(inputs.length, 1);
});

Deno.test("block drafter: rows after an image have the positions of the text after the image", async () => {
  const image = { grid: true, rows: 2, columns: 3 };
  const images = { placed: [{ at: 2, image }], rows: [] };
  const { inputs, drafter } = drafting();
  await drafter.draft([{ sequence: { ...sequenceOf(10), images } as unknown as Sequence, most: 1 }]);
  // The image's six tokens are at position 2, and the text continues at position 5.
  assertEquals([...inputs[0].sequences[0].places!], [6, 6, 6, 7, 7, 7]);
});

Deno.test("block drafter: the pass, the sequence's blocks and the step's rows limit a draft's length", async () => {
  const { drafter } = drafting();
  assertEquals(tokensOf(await drafter.draft([{ sequence: sequenceOf(10), most: 8 }])), [[1, 2, 3]]);
  assertEquals(tokensOf(await drafter.draft([{ sequence: sequenceOf(62), most: 8 }])), [[1, 2]]);
  const wanted = [10, 64, 10].map((length) => ({ sequence: sequenceOf(length), most: 8 }));
  assertEquals(tokensOf(await drafting({ maxLogitRows: 5 }).drafter.draft(wanted)), [[1], [], [3]]);
  assertEquals(tokensOf(await drafting({ maxRows: 9 }).drafter.draft(wanted)), [[1, 2], [], [4, 5]]);
});

Deno.test("block drafter: returns no draft after forced tokens and after a stop, and throws other errors", async () => {
  const wanted = [{ sequence: sequenceOf(10), most: 1 }];
  const { inputs, drafter } = drafting();
  assertEquals(tokensOf(await drafter.draft([{ sequence: sequenceOf(10, 7), most: 1 }])), [[]]);
  assertEquals(inputs, []);
  assertEquals(tokensOf(await drafting({}, new StepStopped("stopped")).drafter.draft(wanted)), [[]]);
  await assertRejects(() => drafting({}, new Error("broken")).drafter.draft(wanted), Error, "broken");
});
