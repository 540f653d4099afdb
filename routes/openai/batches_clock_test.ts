import { assertEquals, assertRejects } from "@std/assert";
import { toFile } from "openai";
import { chatLine, createBatch, inDataFolder, upload, waitFor, withBatches } from "../testing_batches.ts";

const TODAY = 1_800_000_000;
const HOUR = 3600;

/** A pair of clocks: the test can set the first one, but not the second. */
class Clocks {
  steadySeconds = 1000;
  constructor(public wall: number) {}

  pass(seconds: number): void {
    this.wall += seconds;
    this.steadySeconds += seconds;
  }

  get options() {
    return { now: () => this.wall, steady: () => this.steadySeconds, sweepMs: 5 };
  }
}

const sweeps = () => new Promise((resolve) => setTimeout(resolve, 60));

const JUMPS = [
  ["from 1970 to today", 100, TODAY],
  ["ten years ahead", TODAY, TODAY + 87_600 * HOUR],
] as const;
for (const [what, start, end] of JUMPS) {
  Deno.test(`batches: nothing expires when the clock jumps ${what}, but batches still expire at their time later`, async () => {
    await inDataFolder(async (path) => {
      const clocks = new Clocks(start);
      const options = { ...clocks.options, tokenMs: 3, slots: 1, parallel: 1 };
      await withBatches(path, options, async ({ client, service, reports }) => {
        const file = await client.files.create({
          file: await toFile(new TextEncoder().encode("{}"), "short.jsonl"),
          purpose: "batch",
          expires_after: { anchor: "created_at", seconds: HOUR },
        });
        const responses = service.responses.of("")!;
        const id = `resp_${(1000 * start).toString(16).padStart(12, "0")}${"0".repeat(20)}`;
        await responses.save(id, { previous: null, head: {}, input: [], output: [] });
        const lines = Array.from({ length: 200 }, (_, n) => chatLine(`q${n}`, { max_tokens: 8 }));
        const batch = await createBatch(client, await upload(client, lines), { completion_window: "2h" });
        clocks.pass(60);
        await sweeps();
        clocks.wall = end;
        await sweeps();
        const moved = await client.batches.retrieve(batch.id);
        assertEquals([moved.status, moved.created_at, moved.expires_at], [
          "in_progress",
          end - 60,
          end - 60 + 2 * HOUR,
        ]);
        assertEquals((await client.files.retrieve(file.id)).expires_at, end - 60 + HOUR);
        assertEquals((await responses.read(id))?.output, []);
        clocks.pass(HOUR - 60);
        await sweeps();
        await assertRejects(() => client.files.retrieve(file.id), Error, "404");
        assertEquals((await client.batches.retrieve(batch.id)).status, "in_progress");
        clocks.pass(HOUR);
        await waitFor(client, batch.id, "expired");
        assertEquals(reports, []);
      });
    });
  });
}

Deno.test("batches: a batch from before the clock was set does not expire when the next server starts", async () => {
  await inDataFolder(async (path) => {
    const clocks = new Clocks(100);
    const slow = { ...clocks.options, tokenMs: 3, slots: 1, parallel: 1 };
    let id = "";
    await withBatches(path, slow, async ({ client }) => {
      const input = await upload(client, Array.from({ length: 200 }, (_, n) => chatLine(`q${n}`)));
      ({ id } = await createBatch(client, input));
    });
    clocks.wall = TODAY;
    await withBatches(path, slow, async ({ client }) => {
      await sweeps();
      const { status, expires_at } = await client.batches.retrieve(id);
      assertEquals([status, expires_at], ["in_progress", TODAY + 24 * HOUR]);
    });
  });
});
