import { assertEquals, assertRejects } from "@std/assert";
import { type Backend, type StepInput, type StepOutput, StepStopped } from "../backend/backend.ts";
import type { Sequence } from "../schedule/sequence.ts";
import { GRADES } from "./drafter.ts";
import { type LayerOptions, MtpDrafter } from "./mtp.ts";

/** Returns a sequence of `length` tokens, 100, 101, 102, …, with `blocks` blocks of 32. */
function sequenceOf(length: number, blocks = 4, first = 0): Sequence {
  const tokens = Int32Array.from({ length: 200 }, (_, i) => 100 + i);
  return {
    tokens,
    length,
    kv: { blocks: Int32Array.from({ length: 8 }, (_, i) => first + i), blockCount: blocks, windows: [] },
    progress: { done: false },
  } as unknown as Sequence;
}

/** A backend that drafts the given token plus one, with the given probabilities, and records its inputs. */
class Drafting {
  readonly inputs: StepInput[] = [];
  constructor(private readonly chances: readonly number[] = []) {}

  step(input: StepInput): Promise<StepOutput> {
    const chance = this.chances[this.inputs.length] ?? 0.9;
    this.inputs.push(input);
    if (chance < 0) return Promise.reject(chance === -1 ? new StepStopped("stopped") : new Error("broken"));
    const rows = Array.from(input.tokens, (token) => ({
      ids: Int32Array.of(token + 1),
      logits: Float32Array.of(Math.log(chance)),
      rawLogits: Float32Array.of(Math.log(chance)),
      logSumExp: 0,
      deviation: 1,
      probed: new Float32Array(0),
    }));
    return Promise.resolve({ rows });
  }

  drafterOf(layer?: LayerOptions): MtpDrafter {
    return new MtpDrafter(this as unknown as Backend, layer);
  }

  get drafter(): MtpDrafter {
    return this.drafterOf();
  }
}

const rowsOf = (sequence: Sequence, start: number, valid = 1) => (
  { sequence, start, position: sequence.length - 1 - valid, valid }
);
const tokensOf = (drafts: readonly { tokens: Int32Array }[]) => drafts.map(({ tokens }) => [...tokens]);

Deno.test("mtp drafter: a draft continues from the last valid row, and then from its own rows", async () => {
  const backend = new Drafting();
  const [a, b] = [sequenceOf(10), sequenceOf(40, 4, 20)];
  const { drafter } = backend;
  drafter.computed([rowsOf(a, 0, 3), rowsOf(b, 5)]);
  const drafts = await drafter.draft([{ sequence: a, most: 2 }, { sequence: b, most: 1 }]);
  assertEquals(tokensOf(drafts), [[110, 111], [140]]);
  assertEquals([...drafts[0].grades], [14, 14]);
  assertEquals(backend.inputs.map(({ tokens, drafts }) => [[...tokens], [...drafts!]]), [
    [[109, 139], [2, 5]],
    [[110], [2]],
  ]);
  const [first, second] = backend.inputs.map(({ sequences }) =>
    sequences.map(({ cached, blockTable, state }) => [cached, [...blockTable], state])
  );
  assertEquals(first, [[9, [0], undefined], [39, [20, 21], undefined]]);
  assertEquals(second, [[10, [0], undefined]]);
});

Deno.test("mtp drafter: all tokens of a draft have one position if the layer has no KV cache of its own", async () => {
  const backend = new Drafting();
  const sequence = sequenceOf(70);
  sequence.kv.windows.push({ first: 2, blocks: Int32Array.of(50, 51, 52, 53), end: 3 });
  const drafter = backend.drafterOf({ onePosition: true });
  drafter.computed([rowsOf(sequence, 0)]);
  assertEquals(tokensOf(await drafter.draft([{ sequence, most: 2 }])), [[170, 171]]);
  // The window of the previous row may begin one block earlier.
  const windowTables = [{ first: 1, blocks: Int32Array.of(51, 52) }];
  for (const { sequences: [{ cached, places, windowTables: tables }] } of backend.inputs) {
    assertEquals([cached, places, tables], [68, Uint32Array.of(69, 69, 69), windowTables]);
  }
});

Deno.test("mtp drafter: returns no draft for sequences without a row to continue from", async () => {
  const backend = new Drafting();
  const [absent, forced, drafted] = [sequenceOf(10), sequenceOf(10), sequenceOf(10)];
  const { drafter } = backend;
  drafter.computed([{ ...rowsOf(forced, 0), position: 7 }, rowsOf(drafted, 1)]);
  const wanted = [absent, forced, drafted].map((sequence) => ({ sequence, most: 1 }));
  assertEquals(tokensOf(await drafter.draft(wanted)), [[], [], [110]]);
  // The draft has overwritten the row.
  assertEquals(tokensOf(await drafter.draft(wanted)), [[], [], []]);
  drafter.computed([rowsOf(drafted, 1)]);
  drafter.forget(drafted);
  assertEquals(tokensOf(await drafter.draft(wanted)), [[], [], []]);
  assertEquals(backend.inputs.length, 1);
});

Deno.test("mtp drafter: a draft ends at the end of its sequence's blocks and after an unlikely token", async () => {
  const full = sequenceOf(63, 2); // of 64 tokens
  const { drafter } = new Drafting();
  drafter.computed([rowsOf(full, 0)]);
  assertEquals(tokensOf(await drafter.draft([{ sequence: full, most: 8 }])), [[163, 164]]);
  const unlikely = new Drafting([0.9, 0.1]);
  const sequence = sequenceOf(10);
  const other = unlikely.drafter;
  other.computed([rowsOf(sequence, 0)]);
  const [draft] = await other.draft([{ sequence, most: 8 }]);
  assertEquals([[...draft.tokens], [...draft.grades]], [[110, 111], [14, Math.floor(0.1 * GRADES)]]);
});

Deno.test("mtp drafter: a stop keeps the draft so far, and other errors are thrown", async () => {
  const sequence = sequenceOf(10);
  const { drafter } = new Drafting([0.9, -1]);
  drafter.computed([rowsOf(sequence, 0)]);
  assertEquals(tokensOf(await drafter.draft([{ sequence, most: 8 }])), [[110]]);
  const broken = new Drafting([-2]).drafter;
  broken.computed([rowsOf(sequence, 0)]);
  await assertRejects(() => broken.draft([{ sequence, most: 8 }]), Error, "broken");
});
