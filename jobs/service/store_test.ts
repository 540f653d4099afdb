import { assertEquals } from "@std/assert";
import { DatabaseSync } from "node:sqlite";
import { BatchStore } from "./store.ts";
import type { BatchRecord } from "../types.ts";

const COUNTS = {
  total: 7,
  completed: 5,
  failed: 1,
  promptTokens: 40,
  cachedTokens: 30,
  outputTokens: 20,
  reasoningTokens: 11,
};

Deno.test("BatchStore: opens an older database without counts of reasoning tokens, and counts them from then on", async () => {
  const folder = await Deno.makeTempDir({ prefix: "store-" });
  try {
    const path = `${folder}/batches.sqlite`;
    const batch = { id: "batch_1", owner: "", inputFileId: "file-1", status: "in_progress", counts: COUNTS };
    const before = new BatchStore(path);
    before.addBatch(batch as unknown as BatchRecord);
    before.close();
    const db = new DatabaseSync(path);
    db.exec("ALTER TABLE batches DROP COLUMN reasoning_tokens");
    db.close();
    for (const reasoningTokens of [0, 11]) {
      const store = new BatchStore(path);
      assertEquals(store.batch("", "batch_1").counts, { ...COUNTS, reasoningTokens });
      store.setCounts("batch_1", COUNTS);
      assertEquals(store.batch("", "batch_1").counts, COUNTS);
      store.close();
    }
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("BatchStore: keeps the columns and fields that a newer version added", async () => {
  const folder = await Deno.makeTempDir({ prefix: "store-" });
  try {
    const path = `${folder}/batches.sqlite`;
    new BatchStore(path).close();
    const db = new DatabaseSync(path);
    db.exec("ALTER TABLE batches ADD COLUMN newer INTEGER NOT NULL DEFAULT 7");
    const newer = { id: "batch_1", owner: "", inputFileId: "file-1", status: "in_progress", later: "kept" };
    const store = new BatchStore(path);
    store.addBatch({ ...newer, counts: COUNTS } as unknown as BatchRecord);
    store.change(store.batch("", "batch_1"), { status: "completed" }, true);
    store.close();
    const row = db.prepare("SELECT newer, record FROM batches").get()!;
    assertEquals([row.newer, JSON.parse(row.record as string).later], [7, "kept"]);
    db.close();
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});
