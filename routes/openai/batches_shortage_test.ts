import { assert, assertEquals, assertMatch, assertRejects } from "@std/assert";
import { DatabaseSync } from "node:sqlite";
import { existsSync } from "node:fs";
import { join } from "@std/path";
import OpenAI from "openai";
import { diskStorage, type Storage } from "../../jobs/journal/storage.ts";
import { BatchStore } from "../../jobs/service/store.ts";
import { ServiceError } from "../../jobs/types.ts";
import { firstTier, fullTier } from "../../testing/tier.ts";
import {
  chatLine,
  createBatch,
  inDataFolder,
  linesOf,
  upload,
  waitFor,
  withBatches,
} from "../testing_batches.ts";

/* Server batches when any call fails because the disk is full or file descriptors run out. */

type Shortage = "ENOSPC" | "EMFILE";

/** A file system whose calls fail from call number `from`, for `lasting` calls. */
class ShortDisk implements Storage {
  calls = 0;
  /** Name of the operation that failed first. */
  failed: string | undefined;

  constructor(
    private readonly shortage: Shortage,
    private readonly from: number,
    private readonly lasting: number,
  ) {}

  async open(path: string, mode: "read" | "edit" | "replace") {
    this.#call("open");
    const file = await diskStorage.open(path, mode);
    const { write, sync } = file;
    // Operations on an open file need no new descriptor.
    if (this.shortage === "EMFILE") return file;
    return Object.assign(file, {
      write: (bytes: Uint8Array, offset: number) => {
        this.#call("write");
        return write.call(file, bytes, offset);
      },
      sync: () => {
        this.#call("sync");
        return sync.call(file);
      },
    });
  }

  stat(path: string) {
    return diskStorage.stat(path);
  }

  async rename(from: string, to: string) {
    if (this.shortage === "ENOSPC") this.#call("rename");
    await diskStorage.rename(from, to);
  }

  remove(path: string) {
    return diskStorage.remove(path);
  }

  async syncFolderOf(path: string) {
    this.#call(this.shortage === "ENOSPC" ? "sync" : "open");
    await diskStorage.syncFolderOf(path);
  }

  #call(operation: string): void {
    const number = this.calls++;
    if (number < this.from || number >= this.from + this.lasting) return;
    this.failed ??= operation;
    throw Object.assign(new Error(`${operation}: ${this.shortage}`), { code: this.shortage });
  }
}

const LINES = 5;
const lines = Array.from({ length: LINES }, (_, n) => chatLine(`q${n}`, n === 2 ? { max_tokens: -1 } : {}));

/** Runs a batch and returns how it ends. Checks each line's answer unless the batch fails. */
async function answered(storage: ShortDisk): Promise<string> {
  let end = "";
  await inDataFolder((path) =>
    withBatches(path, { storage, pauseMs: 1 }, async ({ client, reports }) => {
      const { id } = await createBatch(client, await upload(client, lines));
      const batch = await waitFor(client, id, "completed", "failed");
      end = batch.status;
      if (end === "failed") return;
      const answers = [
        ...await linesOf(client, batch.output_file_id),
        ...await linesOf(client, batch.error_file_id),
      ];
      assertEquals(
        answers.map(({ custom_id }) => custom_id).toSorted(),
        Array.from({ length: LINES }, (_, n) => `q${n}`),
      );
      assertEquals(batch.request_counts, { total: LINES, completed: LINES - 1, failed: 1 });
      assertEquals(reports.length > 0, storage.failed !== undefined, "an operator is told of a pause");
      for (const report of reports) {
        const { message } = report as Error;
        assertMatch(
          message,
          /^Batch batch_\w+ pauses, and is tried again every 0\.001 s: .*\w: (ENOSPC|EMFILE)$/,
        );
      }
    })
  );
  return end;
}

for (const shortage of ["ENOSPC", "EMFILE"] as const) {
  const tier = shortage === "ENOSPC" ? fullTier : firstTier;
  tier.test(`batches: ${shortage} at any call pauses the batch, and it resumes without loss or duplicates`, async () => {
    const unharmed = new ShortDisk(shortage, Infinity, 0);
    assertEquals(await answered(unharmed), "completed");
    let paused = 0;
    for (let from = 0; from < unharmed.calls; from++) {
      const storage = new ShortDisk(shortage, from, 1 + 2 * (from % 2));
      const end = await answered(storage);
      // A failed sync may have lost data, so this job must fail.
      if (storage.failed === "sync" && end === "failed") continue;
      assertEquals(end, "completed", `${from}: ${storage.failed}`);
      if (storage.failed !== undefined) paused += 1;
    }
    assert(paused >= 4, `only ${paused} of ${unharmed.calls}`);
  });
}

/** Limits the size of databases opened during `test`, which may lift the limit. */
async function withSmallDatabases(pages: number, test: (lift: () => void) => Promise<void>): Promise<void> {
  const { exec } = DatabaseSync.prototype;
  const opened = new Set<DatabaseSync>();
  const bound = (database: DatabaseSync, most: number) =>
    exec.call(database, `PRAGMA max_page_count = ${most}`);
  DatabaseSync.prototype.exec = function (sql) {
    exec.call(this, sql);
    if (sql.includes("journal_mode")) {
      opened.add(this);
      bound(this, pages);
    }
  };
  try {
    await test(() => opened.forEach((database) => bound(database, 1 << 20)));
  } finally {
    DatabaseSync.prototype.exec = exec;
  }
}

Deno.test("batches: a full database is a 507, and existing batches wait for room and resume", () =>
  inDataFolder((path) =>
    withSmallDatabases(24, (lift) =>
      withBatches(path, { pauseMs: 1 }, async ({ client }) => {
        const input = await upload(client, lines);
        const metadata = Object.fromEntries(Array.from({ length: 8 }, (_, n) => [`k${n}`, "x".repeat(500)]));
        const ids: string[] = [];
        const fill = async () => {
          for (;;) ids.push((await createBatch(client, input, { metadata })).id);
        };
        const error = await assertRejects(fill, OpenAI.APIError);
        assertEquals([error.status, error.code], [507, "storage_full"]);
        assert(ids.length > 0);
        lift();
        for (const id of ids) await waitFor(client, id, "completed");
      }))
  ));

/** Runs `test` while databases refuse deletes whenever `isFull` returns true, as on a disk without a free page. */
async function whileFull(isFull: (file: string) => boolean, test: () => Promise<void>): Promise<void> {
  const { removeFile } = BatchStore.prototype;
  BatchStore.prototype.removeFile = function (id) {
    if (isFull(id)) throw new ServiceError("storage_full", "There is no room on the server's disk");
    removeFile.call(this, id);
  };
  try {
    await test();
  } finally {
    BatchStore.prototype.removeFile = removeFile;
  }
}

Deno.test("files: can be deleted on a disk too full to record the deletion", () =>
  inDataFolder((path) =>
    withBatches(path, {}, async ({ client }) => {
      const ids = [await upload(client, lines), await upload(client, lines)];
      const isThere = (id: string) => existsSync(join(path, "files", id));
      await whileFull(isThere, async () => {
        assertEquals((await client.files.delete(ids[0])).deleted, true);
      });
      let isFull = true;
      await whileFull(() => isFull, async () => {
        const full = await assertRejects(() => client.files.delete(ids[1]), OpenAI.APIError);
        assertEquals(full.status, 507);
        // The file's content was removed to make room, so it is gone although its record stays.
        const gone = await assertRejects(() => client.files.content(ids[1]), OpenAI.APIError);
        assertEquals([gone.status, gone.code], [404, "file_not_found"]);
        isFull = false;
        assertEquals((await client.files.delete(ids[1])).deleted, true);
      });
      assertEquals(ids.map(isThere), [false, false]);
      assertEquals((await client.files.list()).data, []);
    })
  ));

Deno.test("batches: a change that a full disk cannot commit is a 507", () =>
  inDataFolder((path) =>
    withBatches(path, { tokenMs: 5, slots: 1, parallel: 1 }, async ({ client }) => {
      const { id } = await createBatch(client, await upload(client, lines));
      const { exec } = DatabaseSync.prototype;
      // Deno 2.9.6 throws this error without SQLite's code.
      const full = () => Object.assign(new Error("database or disk is full"), { code: "ERR_SQLITE_ERROR" });
      DatabaseSync.prototype.exec = function (sql) {
        if (sql === "COMMIT") throw full();
        exec.call(this, sql);
      };
      try {
        const refused = await assertRejects(() => client.batches.cancel(id), OpenAI.APIError);
        assertEquals([refused.status, refused.code], [507, "storage_full"]);
      } finally {
        DatabaseSync.prototype.exec = exec;
      }
      assertEquals((await client.batches.cancel(id)).status, "cancelling");
      await waitFor(client, id, "cancelled");
    })
  ));
