import { assert, assertEquals } from "@std/assert";
import { BatchError } from "../../jobs/errors.ts";
import { type BatchResult, type Execute, runBatch } from "../../jobs/run/runner.ts";
import { TEST_LIMITS } from "../../jobs/testing.ts";
import { renderParquet } from "../../tables/parquet_write.ts";
import { joined } from "../../tables/testing.ts";
import { AnswerForm, openTableInput } from "../../tables/tables.ts";
import { type Fault, seeded, SimStorage } from "./sim_storage.ts";

/*
 * Every fault hits a small job over a Parquet file at every file system call; the job runs again until it is done. Its table must equal
 * that of an undisturbed run. crash_test.ts tests journals and names at length.
 */

const FAULTS = ["kill", "powerCut", "ENOSPC", "EIO", "EMFILE"] as const;
const ROWS = 12;

const COLUMNS = [{ name: "n", kind: "integer" }, { name: "text", kind: "text" }] as const;
const INPUT = await joined(renderParquet(COLUMNS, rows()));

async function* rows() {
  for (let n = 0; n < ROWS; n++) yield [n === 3 ? null : n, "x".repeat(n)];
}

const openInput = openTableInput({
  read: { format: "parquet" },
  question: { prompt: "{n}", fields: {} },
  form: new AnswerForm(),
  write: { format: "parquet" },
});

const execute: Execute = async ({ body }) => {
  const n = Number((body.messages as { content: string }[])[0].content);
  for (let i = 0; i < (n * 7) % 11; i++) await Promise.resolve();
  if (n === 5) return { status: 400, body: { error: { message: "no" } } };
  return { status: 200, body: { choices: [{ message: { content: "y".repeat(40 * n) } }] } };
};

async function run(storage: SimStorage): Promise<{ result?: BatchResult; error?: unknown }> {
  try {
    const result = await runBatch({
      input: "in.parquet",
      output: "out.parquet",
      errors: "err.jsonl",
      openInput,
      parallel: 3,
      limits: TEST_LIMITS,
      storage,
      connect: () => Promise.resolve({ execute, settings: { model: "fake" } }),
    });
    return { result };
  } catch (error) {
    return { error };
  }
}

function disk(seed: number, fault?: (call: number) => Fault): SimStorage {
  const storage = new SimStorage(seeded(seed), fault);
  storage.put("in.parquet", INPUT);
  return storage;
}

function contents(storage: SimStorage) {
  return ["out.parquet", "err.jsonl"].map((path) => storage.bytes(path)?.toHex());
}

Deno.test("batch of a table: answers are not lost, duplicated or torn after any fault at any file system call", async () => {
  const whole = disk(1);
  assertEquals((await run(whole)).result?.counts.failed, 2);
  const expected = contents(whole);
  const ends = { done: 0, failed: 0 };
  for (let call = 0; call < whole.calls; call++) {
    for (const how of FAULTS) {
      const storage = disk(
        call,
        (n) => n !== call ? "none" : how === "kill" || how === "powerCut" ? "crash" : how,
      );
      const { error } = await run(storage);
      if (storage.crashed) storage[how as "kill" | "powerCut"]();
      for (const [i, found] of contents(storage).entries()) {
        assert(found === undefined || found === expected[i], `call ${call}, ${how}: torn`);
      }
      storage.setFault(() => "none");
      if (error instanceof BatchError && error.code === "sync_failed") {
        ends.failed += 1;
        continue;
      }
      const { result, error: again } = await run(storage);
      assert(result?.state === "done" || result?.state === "already_done", `call ${call}, ${how}: ${again}`);
      assertEquals(contents(storage), expected, `call ${call}, ${how}`);
      ends.done += 1;
    }
  }
  assert(ends.done > 100 && ends.failed > 3, JSON.stringify(ends));
});
