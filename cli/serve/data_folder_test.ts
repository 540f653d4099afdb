import { assertEquals, assertRejects } from "@std/assert";
import { DatabaseSync } from "node:sqlite";
import { join } from "@std/path";
import { openDataFolder } from "./data_folder.ts";
import { BatchStore, ResponseStore } from "../../lib/serving.ts";
import { inFlags } from "../shared/words.ts";

Deno.test("data folder: refuses a second server and names the first server's process, until the first server closes the folder", async () => {
  const parent = await Deno.makeTempDir({ prefix: "data-folder-" });
  try {
    const path = join(parent, "data");
    const first = await openDataFolder(path);
    assertEquals(
      inFlags(await assertRejects(() => openDataFolder(path))),
      `Cannot use "${path}" for files and batches: another server uses it (process ${Deno.pid}); stop ` +
        "that server, give another folder with --data, or serve without files and batches: --data none",
    );
    first.close();
    await Deno.writeTextFile(join(path, "lock"), ""); // an earlier version wrote no process id
    const second = await Deno.open(join(path, "lock"), { read: true, write: true });
    await second.lock(true);
    await assertRejects(() => openDataFolder(path), Error, "another server uses it; stop that server");
    second.close();
    await Deno.writeTextFile(join(path, "lock"), "123456789\n"); // a killed server leaves its lock
    (await openDataFolder(path)).close();
    assertEquals(await Deno.readTextFile(join(path, "lock")), `${Deno.pid}\n`);
    assertEquals([...Deno.readDirSync(path)].map(({ name }) => name).sort(), [
      "compy.sqlite",
      "files",
      "jobs",
      "lock",
      "uploads",
    ]);
  } finally {
    await Deno.remove(parent, { recursive: true });
  }
});

/** Returns the rights of everything in a folder, by name. */
function rightsIn(path: string): Record<string, string> {
  const names = [...Deno.readDirSync(path)].map(({ name }) => name).sort();
  return Object.fromEntries(names.map((name) => {
    return [name, (Deno.statSync(join(path, name)).mode! & 0o777).toString(8)];
  }));
}

Deno.test({
  name: "data folder: lets only its user read, whatever the rights of the folder were",
  ignore: Deno.build.os === "windows",
  fn: async () => {
    const parent = await Deno.makeTempDir({ prefix: "data-folder-" });
    try {
      const path = join(parent, "data");
      await Deno.mkdir(path, { mode: 0o777 });
      const wanted = {
        "compy.sqlite": "600",
        "compy.sqlite-shm": "600",
        "compy.sqlite-wal": "600",
        files: "700",
        jobs: "700",
        lock: "600",
        responses: "700",
        uploads: "700",
      };
      const check = async () => {
        const folder = await openDataFolder(path);
        const store = new BatchStore(folder.database);
        await ResponseStore.open(folder.at("responses"));
        try {
          assertEquals(rightsIn(path), wanted);
        } finally {
          store.close();
          folder.close();
        }
      };
      await check();
      // An earlier version created them readable by everyone.
      for (const { name } of Deno.readDirSync(path)) await Deno.chmod(join(path, name), 0o777);
      await check();
    } finally {
      await Deno.remove(parent, { recursive: true });
    }
  },
});

Deno.test("data folder: the message says what to do when the folder is not writable", async () => {
  const parent = await Deno.makeTempDir({ prefix: "data-folder-" });
  try {
    await Deno.writeTextFile(join(parent, "file"), "");
    const path = join(parent, "file", "data");
    await assertRejects(
      () => openDataFolder(path),
      Error,
      `Cannot keep files and batches in "${path}": a part of its path is a file and not a folder; choose another ` +
        "folder with --data, or serve without them: --data none",
    );
  } finally {
    await Deno.remove(parent, { recursive: true });
  }
});

Deno.test("data folder: refuses a database of another version and leaves it unchanged", async () => {
  const path = await Deno.makeTempDir({ prefix: "data-folder-" });
  try {
    (await openDataFolder(path)).close();
    const file = join(path, "compy.sqlite");
    const db = new DatabaseSync(file);
    db.exec("PRAGMA user_version = 2");
    db.close();
    const message = `Cannot use "${file}": its version must be 1 (got 2)`;
    for (let i = 0; i < 2; i++) await assertRejects(() => openDataFolder(path), Error, message);
  } finally {
    await Deno.remove(path, { recursive: true });
  }
});
