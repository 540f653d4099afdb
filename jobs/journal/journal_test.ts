import { assertEquals, assertRejects } from "@std/assert";
import { seeded, SimStorage } from "../../tests/batch/sim_storage.ts";
import { BatchError } from "../errors.ts";
import { Journal } from "./journal.ts";
import { encodeHeader, encodeRecords, type JobIdentity, type JournalRecord } from "./journal_format.ts";

const PATH = "job.journal";
/** Bytes in front of the first record, and where the copy of the header begins. */
const HEAD = 12_288;
const COPY = 8192;
const IDENTITY: JobIdentity = { input: "hash", inputSize: 100, lineCount: 4, settings: { model: "m" } };

function record(index: number, text = `answer ${index}`): JournalRecord {
  return {
    index,
    completed: index % 2 === 0,
    promptTokens: 10 + index,
    outputTokens: index,
    line: new TextEncoder().encode(text),
  };
}

async function opened(storage: SimStorage, identity = IDENTITY): Promise<Journal> {
  const journal = await Journal.open(storage, PATH);
  try {
    await journal.begin(identity);
  } catch (error) {
    journal.close();
    throw error;
  }
  return journal;
}

/** Returns the bytes of a journal with the given records, in that order. */
async function written(indexes: number[]): Promise<Uint8Array> {
  const storage = new SimStorage(seeded(1));
  const journal = await opened(storage);
  for (const index of indexes) await journal.append(record(index));
  journal.close();
  return storage.bytes(PATH)!;
}

async function recovered(bytes: Uint8Array): Promise<{ indexes: number[]; cutBytes: number; size: number }> {
  const storage = new SimStorage(seeded(1));
  storage.put(PATH, bytes);
  const journal = await opened(storage);
  const indexes = [0, 1, 2, 3].filter((index) => journal.has(index));
  journal.close();
  return { indexes, cutBytes: journal.cutBytes, size: storage.bytes(PATH)!.length };
}

Deno.test("Journal: returns records in input order or in order of completion, with their counts", async () => {
  const storage = new SimStorage(seeded(1));
  storage.put(PATH, await written([2, 0, 3, 1]));
  const journal = await opened(storage);
  assertEquals(journal.counts, { completed: 2, failed: 2, promptTokens: 46, outputTokens: 6 });
  const records = await Array.fromAsync(journal.records());
  assertEquals(records, [0, 1, 2, 3].map((index) => record(index)));
  const asTheyCame = await Array.fromAsync(journal.records("completed"));
  assertEquals(asTheyCame, [2, 0, 3, 1].map((index) => record(index)));
});

Deno.test("Journal: records that arrive together share one sync, and a line keeps its first answer", async () => {
  const storage = new SimStorage(seeded(1));
  const journal = await opened(storage);
  const before = storage.log.length;
  await Promise.all([
    journal.append(record(0)),
    journal.append(record(1)),
    journal.append(record(0, "second")),
  ]);
  await journal.append(record(1, "third"));
  assertEquals(storage.log.slice(before), [`write ${PATH}`, `sync ${PATH}`]);
  await Promise.all([2, 3].map((index) => journal.append(record(index))));
  assertEquals(await Array.fromAsync(journal.records()), [0, 1, 2, 3].map((index) => record(index)));
});

Deno.test("Journal: does not count a record before its sync", async () => {
  const storage = new SimStorage(seeded(1));
  const journal = await opened(storage);
  storage.setFault((_, name) => {
    if (name === "sync") assertEquals(journal.counts.completed, 0);
    return "none";
  });
  await journal.append(record(0));
  assertEquals(journal.counts.completed, 1);
});

Deno.test("Journal: keeps all complete records when torn at any byte", async () => {
  const whole = await written([2, 0, 3]);
  const ends = [
    (await written([])).length,
    (await written([2])).length,
    (await written([2, 0])).length,
    whole.length,
  ];
  assertEquals(ends[0], HEAD);
  for (let size = 0; size <= whole.length; size++) {
    const kept = ends.findLastIndex((end) => end <= size);
    for (const tail of [0, 50]) {
      // The file's size can reach the disk before its bytes.
      const torn = new Uint8Array(size + tail);
      torn.set(whole.subarray(0, size));
      const result = await recovered(torn);
      assertEquals(result.indexes, [2, 0, 3].slice(0, Math.max(0, kept)).sort(), `cut at ${size}`);
      if (kept >= 0) assertEquals([result.size, result.cutBytes], [ends[kept], size + tail - ends[kept]]);
    }
  }
});

Deno.test("Journal: any flipped bit in a record cuts off that record and the later ones", async () => {
  const whole = await written([2, 0, 3]);
  const ends = [HEAD, (await written([2])).length, (await written([2, 0])).length];
  for (let bit = HEAD * 8; bit < whole.length * 8; bit++) {
    const kept = ends.findLastIndex((end) => end <= bit >> 3);
    assertEquals(
      (await recovered(flipped(whole, bit))).indexes,
      [2, 0, 3].slice(0, kept).sort(),
      `bit ${bit}`,
    );
  }
});

/** Returns the bytes with one bit flipped. */
function flipped(bytes: Uint8Array, bit: number): Uint8Array {
  const changed = bytes.slice();
  changed[bit >> 3] ^= 1 << (bit & 7);
  return changed;
}

Deno.test("Journal: reads and repairs a header with any flipped bit", async () => {
  const whole = await written([2, 0, 3]);
  const headerEnd = whole.subarray(0, 4096).findLastIndex((byte) => byte !== 0) + 1;
  for (let bit = 0; bit < headerEnd * 8; bit++) {
    for (const offset of [0, COPY]) {
      const storage = new SimStorage(seeded(1));
      storage.put(PATH, flipped(whole, 8 * offset + bit));
      (await opened(storage)).close();
      assertEquals(storage.bytes(PATH), whole, `bit ${bit} at ${offset}`);
    }
  }
});

Deno.test("Journal: reads a header whose block is lost", async () => {
  const whole = await written([2, 0, 3]);
  for (const fill of [0, 0xff]) {
    for (const offset of [0, COPY]) {
      const storage = new SimStorage(seeded(1));
      storage.put(PATH, whole.slice().fill(fill, offset, offset + 4096));
      (await opened(storage)).close();
      assertEquals(storage.bytes(PATH), whole);
    }
  }
});

Deno.test("Journal: refuses a damaged header with a damaged copy, and leaves the answers alone", async () => {
  for (const [records, bit] of [[[2, 0, 3], 100], [[2], 0], [[], 100]] as const) {
    const damaged = flipped(flipped(await written([...records]), bit), 8 * COPY + 100);
    const storage = new SimStorage(seeded(1));
    storage.put(PATH, damaged);
    if (records.length === 0) {
      (await opened(storage)).close(); // no answers, so nothing is lost
      continue;
    }
    const error = await assertRejects(() => opened(storage), BatchError, "damaged in its first 12288 bytes");
    assertEquals((error as BatchError).code, "journal_damaged");
    assertEquals(storage.bytes(PATH), damaged);
  }
});

Deno.test("Journal: continues a journal of format 1, which has no copy of the header", async () => {
  const storage = new SimStorage(seeded(1));
  storage.put(PATH, formatOne([2, 0]));
  const journal = await opened(storage);
  await Promise.all([3, 1].map((index) => journal.append(record(index))));
  assertEquals(await Array.fromAsync(journal.records()), [0, 1, 2, 3].map((index) => record(index)));
  journal.close();
  const again = await opened(storage);
  assertEquals([again.cutBytes, again.counts.completed], [0, 2]);
  await again.finish({ state: "done", counts: again.counts, outputBytes: 5, errorBytes: 0 });
  assertEquals(storage.bytes(PATH)!.length, COPY);
});

Deno.test("Journal: refuses a damaged header of format 1", async () => {
  for (const [bit, code] of [[0, "journal_foreign"], [100, "journal_damaged"]] as const) {
    const storage = new SimStorage(seeded(1));
    storage.put(PATH, flipped(formatOne([2]), bit));
    const error = await assertRejects(() => opened(storage), BatchError);
    assertEquals((error as BatchError).code, code);
  }
});

/** Returns a journal as versions before format 2 wrote it. */
function formatOne(indexes: number[]): Uint8Array {
  const { bytes } = encodeRecords(COPY, indexes.map((index) => record(index)));
  const whole = new Uint8Array(COPY + bytes.length);
  whole.set(encodeHeader({ version: 1, ...IDENTITY }, 0));
  whole.set(bytes, COPY);
  return whole;
}

Deno.test("Journal: rejects a record moved to another offset", async () => {
  const whole = await written([2, 0]);
  const first = whole.subarray(HEAD, (await written([2])).length);
  const moved = new Uint8Array(whole.length + first.length);
  moved.set(whole);
  moved.set(first, whole.length);
  assertEquals((await recovered(moved)).cutBytes, first.length);
});

Deno.test("Journal: removes a torn record at the end and appends there", async () => {
  const storage = new SimStorage(seeded(1));
  storage.put(PATH, (await written([2, 0, 3])).slice(0, -1));
  const journal = await opened(storage);
  await Promise.all([3, 1].map((index) => journal.append(record(index))));
  journal.close();
  const again = await opened(storage);
  assertEquals(again.cutBytes, 0);
  assertEquals(await Array.fromAsync(again.records()), [0, 1, 2, 3].map((index) => record(index)));
});

Deno.test("Journal: refuses to continue with another input or another model", async () => {
  const storage = new SimStorage(seeded(1));
  (await opened(storage)).close();
  await assertRejects(
    () => opened(storage, { ...IDENTITY, input: "other", lineCount: 9 }),
    BatchError,
    "belongs to another input of 4 lines and 100 bytes (got 9 lines",
  );
  await assertRejects(
    () => opened(storage, { ...IDENTITY, settings: { model: "n" } }),
    BatchError,
    'begun with model "m" (now "n"): answers of both would be mixed',
  );
  await assertRejects(
    () => opened(storage, { ...IDENTITY, settings: { model: "m", weights: "w" } }),
    BatchError,
    "begun by an earlier version of compy, which did not record weights",
  );
});

Deno.test("Journal: refuses a file that is not a journal and leaves it unchanged", async () => {
  for (const content of ["{}\n", "compyjoy", "x".repeat(10_000)]) {
    const storage = new SimStorage(seeded(1));
    storage.put(PATH, content);
    await assertRejects(() => opened(storage), BatchError, "not a batch journal");
    assertEquals(storage.content(PATH), content);
  }
});

Deno.test("Journal: allows one writer", async () => {
  const storage = new SimStorage(seeded(1));
  const journal = await opened(storage);
  await assertRejects(() => opened(storage), BatchError, "Another process is running this job");
  journal.close();
  (await opened(storage)).close();
});

Deno.test("Journal: records how the job ended, and is small when the job is done", async () => {
  const storage = new SimStorage(seeded(1));
  storage.put(PATH, await written([0, 1, 2, 3]));
  const journal = await opened(storage);
  const end = { state: "done", counts: journal.counts, outputBytes: 5, errorBytes: 0 } as const;
  await journal.finish(end);
  journal.close();
  const again = await Journal.open(storage, PATH);
  assertEquals(again.ended, end);
  assertEquals(storage.bytes(PATH)!.length, HEAD);
});

Deno.test("Journal: returns how the job ended, even after a flipped bit in one of the two copies of this record", async () => {
  const storage = new SimStorage(seeded(1));
  const journal = await opened(storage, { ...IDENTITY, lineCount: 0 });
  const ends = ["running", undefined].map((state) => ({
    state: "done" as const,
    counts: journal.counts,
    outputBytes: 5,
    errorBytes: 0,
    ...(state === "running" && { retry: { state } as const }),
  }));
  for (const end of ends) await journal.finish(end);
  journal.close();
  const whole = storage.bytes(PATH)!;
  for (let bit = 8 * 4096; bit < 8 * COPY; bit++) {
    if ((bit >> 3) % 2048 > 200) continue; // the frames are at the start of the slots
    storage.put(PATH, flipped(whole, bit));
    const again = await Journal.open(storage, PATH);
    assertEquals(again.ended, ends[1], `bit ${bit}`);
    again.close();
  }
});

Deno.test("Journal: if recording the job's end is cut off anywhere, the job counts as not ended", async () => {
  const whole = await written([0, 1, 2, 3]);
  const storage = new SimStorage(seeded(1));
  storage.put(PATH, whole);
  const journal = await opened(storage);
  await journal.finish({ state: "failed", reason: "disk" });
  const failed = storage.bytes(PATH)!;
  const stateEnd = failed.subarray(0, 8192).findLastIndex((byte) => byte !== 0) + 1;
  for (let size = 4096; size < stateEnd; size++) {
    const torn = whole.slice();
    torn.set(failed.subarray(4096, size), 4096);
    assertEquals((await recovered(torn)).indexes, [0, 1, 2, 3]);
  }
});

Deno.test("Journal: writes nothing after an error", async () => {
  const storage = new SimStorage(seeded(1));
  const journal = await opened(storage);
  storage.setFault((call) => call === 1 ? "EIO" : "none");
  const results = await Promise.allSettled([journal.append(record(0)), journal.append(record(1))]);
  assertEquals(results.map(({ status }) => status), ["rejected", "rejected"]);
  const before = storage.log.length;
  await assertRejects(() => journal.append(record(2)), BatchError, "failed for good");
  assertEquals(storage.log.length, before);
  assertEquals(journal.counts.completed + journal.counts.failed, 0);
});

Deno.test("Journal: rejects a record with a wrong length", async () => {
  const whole = await written([2]);
  for (const length of [0, 1, 12, 13, 0x7fffffff, 0xffffffff, 200 * 1024 * 1024]) {
    const lying = whole.slice();
    new DataView(lying.buffer).setUint32(HEAD, length, true);
    assertEquals((await recovered(lying)).indexes, []);
  }
});
