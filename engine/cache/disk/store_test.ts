import { assert, assertEquals, assertRejects } from "@std/assert";
import { join } from "@std/path";
import { reportCache, wipeCache } from "./admin.ts";
import { DiskFolder } from "./folder.ts";
import { createNames, sha256 } from "./names.ts";
import { HEAD_BYTES } from "./part_file.ts";
import { openStore } from "./open.ts";
import { fileBytes, FolderStore, type StoreOptions } from "./store.ts";
import { MemoryFolder } from "./testing_folder.ts";

const MB = 2 ** 20;
const name = (i: number) => sha256(`part ${i}`);
const part = (i: number, bytes = 1000) => new Uint8Array(bytes).map((_, at) => i * 31 + at);

async function open(folder: MemoryFolder, options: Partial<StoreOptions> = {}) {
  const warnings: string[] = [];
  const all = { limit: MB, warn: (message: string) => void warnings.push(message), ...options };
  return { store: await FolderStore.open(folder, all), warnings };
}

Deno.test("prompt store: a part survives a restart under its name", async () => {
  const folder = new MemoryFolder();
  const { store } = await open(folder);
  assertEquals([await store.write(name(1), part(1)), await store.write(name(2), part(2))], [true, true]);
  assertEquals(await store.read(name(1), 1000), part(1));
  await store.close();
  const { store: again, warnings } = await open(folder);
  assertEquals([again.has(name(1)), again.has(name(3))], [true, false]);
  assertEquals(await again.read(name(2), 1000), part(2));
  assertEquals(await again.read(name(3), 1000), undefined);
  assertEquals(again.bytes, 2 * fileBytes(1000));
  assertEquals(warnings, []);
});

Deno.test("prompt store: a file with a changed byte or cut anywhere is a miss and is written again", async () => {
  const folder = new MemoryFolder();
  const { store } = await open(folder);
  await store.write(name(1), part(1, 50));
  const file = folder.files.get(`${name(1)}.kv`)!;
  const whole = file.bytes;
  for (let at = 0; at < whole.length; at++) {
    for (const damaged of [whole.slice().map((byte, i) => i === at ? byte ^ 4 : byte), whole.slice(0, at)]) {
      folder.files.set(`${name(1)}.kv`, { ...file, bytes: damaged });
      assertEquals(await store.read(name(1), 50), undefined, `byte ${at}`);
      assertEquals([store.has(name(1)), folder.parts.length, store.bytes], [false, 0, 0]);
      assertEquals(await store.write(name(1), part(1, 50)), true);
      assertEquals(await store.read(name(1), 50), part(1, 50));
    }
  }
  folder.files.set(`${name(1)}.kv`, { ...file, bytes: new Uint8Array([...whole, 0]) });
  assertEquals(await store.read(name(1), 50), undefined);
});

Deno.test("prompt store: a file under another name or of another size is a miss", async () => {
  const folder = new MemoryFolder();
  const { store } = await open(folder);
  await store.write(name(1), part(1));
  folder.files.set(`${name(2)}.kv`, folder.files.get(`${name(1)}.kv`)!);
  await store.close();
  const { store: again } = await open(folder);
  assertEquals(await again.read(name(2), 1000), undefined);
  assertEquals(await again.read(name(1), 999), undefined);
});

Deno.test("prompt store: files of other programs are neither counted nor changed", async () => {
  const folder = new MemoryFolder();
  const foreign = ["notes.txt", "x.kv", `${name(1)}.kv.bak`];
  for (const file of foreign) folder.files.set(file, { bytes: part(1, 9000), usedAt: 0 });
  const { store, warnings } = await open(folder, { limit: 2 * fileBytes(1000) });
  for (let i = 0; i < 5; i++) await store.write(name(i), part(i));
  assertEquals(store.bytes, 2 * fileBytes(1000));
  for (const file of foreign) assert(folder.files.has(file));
  assertEquals(warnings, []);
});

Deno.test("prompt store: stays within its limit by evicting the least recently used, also after a restart", async () => {
  const folder = new MemoryFolder();
  const limit = 4 * fileBytes(1000);
  const { store } = await open(folder, { limit });
  const most: number[] = [];
  folder.gate = () => Promise.resolve(most.push(folder.bytes - 4096)); // without the file of the secret
  for (let i = 0; i < 4; i++) await store.write(name(i), part(i));
  store.use([name(1), name(0)]);
  await store.write(name(4), part(4));
  assertEquals([0, 1, 2, 3, 4].filter((i) => store.has(name(i))), [0, 1, 3, 4]);
  await store.write(name(5), part(5));
  await store.write(name(6), part(6));
  assertEquals([0, 1, 4, 5, 6].filter((i) => store.has(name(i))), [1, 4, 5, 6]);
  await store.settle();
  await store.close();
  const files = [1, 6, 4, 5].map((i) => folder.files.get(`${name(i)}.kv`)!);
  files.forEach((file, i) => file.usedAt = i);
  const { store: again } = await open(folder, { limit: 2 * fileBytes(1000) });
  assertEquals([1, 4, 5, 6].filter((i) => again.has(name(i))), [4, 5]);
  assertEquals(await again.write(name(7), part(7, 9000)), false);
  assertEquals(again.has(name(4)), true, "what never fits gives up nothing");
  assert(Math.max(...most) <= limit, `${Math.max(...most)} of ${limit}`);
});

Deno.test("prompt store: counts unfinished files that cannot be removed", async () => {
  const folder = new MemoryFolder();
  folder.files.set(`${name(9)}.tmp`, { bytes: part(9, 9000), usedAt: 0 });
  folder.fault = (call) => call === "remove" ? "EMFILE" : undefined;
  const { store } = await open(folder, { limit: 16_384 });
  assertEquals(store.bytes, 12_288);
  assertEquals([await store.write(name(1), part(1)), await store.write(name(2), part(2))], [true, false]);
});

Deno.test("prompt store: with keepMs, evicts only parts that were not used for that time", async () => {
  const folder = new MemoryFolder();
  const { store: before } = await open(folder);
  await before.write(name(0), part(0));
  await before.close();
  folder.files.get(`${name(0)}.kv`)!.usedAt -= 2000;
  const { store } = await open(folder, { limit: 2 * fileBytes(1000), keepMs: 1000 });
  const written = [];
  for (let i = 1; i < 4; i++) written.push(await store.write(name(i), part(i)));
  assertEquals(written, [true, true, false]);
  assertEquals([0, 1, 2, 3].filter((i) => store.has(name(i))), [1, 2]);
});

for (const code of ["ENOSPC", "EIO", "EDQUOT"]) {
  Deno.test(`prompt store: ${code} pauses writing with one warning, and reads continue`, async () => {
    const folder = new MemoryFolder();
    const { store, warnings } = await open(folder);
    await store.write(name(1), part(1));
    folder.fault = (call) => call === "write" ? code : undefined;
    for (let i = 2; i < 6; i++) assertEquals(await store.write(name(i), part(i)), false);
    assertEquals([warnings.length, store.writable, folder.parts.length], [1, false, 1]);
    assertEquals([...folder.files.keys()].filter((file) => file.endsWith(".tmp")), []);
    assertEquals(store.bytes, fileBytes(1000));
    assertEquals(await store.read(name(1), 1000), part(1));
  });

  Deno.test(`prompt store: ${code} in any call neither throws nor prevents the start`, async () => {
    for (const failing of ["make", "lock", "list", "write", "rename", "remove", "touch", "sync", "read"]) {
      const folder = new MemoryFolder();
      folder.files.set(`${name(9)}.tmp`, { bytes: part(1), usedAt: 0 });
      folder.fault = (call) => call === failing ? code : undefined;
      const { store } = await open(folder);
      await store.write(name(1), part(1));
      await store.read(name(1), 1000);
      store.use([name(1)]);
      await store.sync([name(1)]);
      await store.close();
    }
  });
}

Deno.test("prompt store: without file descriptors everything is a silent miss, and recovers afterwards", async () => {
  const folder = new MemoryFolder();
  const { store, warnings } = await open(folder);
  await store.write(name(1), part(1));
  folder.fault = () => "EMFILE";
  assertEquals([await store.read(name(1), 1000), await store.write(name(2), part(2))], [undefined, false]);
  folder.fault = () => undefined;
  assertEquals([await store.read(name(1), 1000), await store.write(name(2), part(2))], [part(1), true]);
  assertEquals(warnings, []);
});

Deno.test("prompt store: writes later if file descriptors ran out at the start, even after the store took its lock", async () => {
  const folder = new MemoryFolder();
  const locked = () => folder.log.includes("lock ");
  folder.fault = (call) => call === "list" && locked() ? "EMFILE" : undefined;
  const { store } = await open(folder);
  assertEquals(await store.write(name(1), part(1)), false);
  folder.fault = () => undefined;
  const now = performance.now;
  try {
    performance.now = () => now.call(performance) + 60_000;
    assertEquals(store.writable, false); // reading `writable` triggers a new look
    for (let i = 0; i < 50; i++) await null;
    assertEquals(await store.write(name(1), part(1)), true);
  } finally {
    performance.now = now;
  }
  await store.close();
});

Deno.test("disk folder: a second user of the folder cannot take the lock from its holder", async () => {
  const path = await Deno.makeTempDir();
  try {
    const [mine, other] = [new DiskFolder(path), new DiskFolder(path)];
    assertEquals([await mine.lock(), await mine.lock(), await other.lock()], [true, true, false]);
    mine.unlock();
    assertEquals(await other.lock(), true);
    other.unlock();
  } finally {
    await Deno.remove(path, { recursive: true });
  }
});

Deno.test("prompt store: of two processes one writes, and the other takes over when it ends", async () => {
  const folder = new MemoryFolder();
  const { store: first } = await open(folder);
  await first.write(name(1), part(1));
  const { store: second, warnings } = await open(folder.elsewhere());
  assertEquals(warnings.length, 1);
  assertEquals(await second.read(name(1), 1000), part(1));
  assertEquals([await second.write(name(2), part(2)), folder.parts.length], [false, 1]);
  assertEquals(first.secret, second.secret);
  await first.write(name(3), part(3));
  await first.close();
  const now = performance.now;
  try {
    performance.now = () => now.call(performance) + 60_000;
    assertEquals(second.has(name(3)), false); // `has` triggers a new look
    for (let i = 0; i < 50; i++) await null;
    assertEquals([second.has(name(3)), await second.write(name(2), part(2))], [true, true]);
  } finally {
    performance.now = now;
  }
});

Deno.test("prompt store: after a kill at any call, the next start finds whole parts or none, within the limit", async () => {
  for (let killed = 0; killed < 60; killed++) {
    const folder = new MemoryFolder();
    let calls = 0;
    const { promise: dead, resolve: die } = Promise.withResolvers<void>();
    folder.gate = () => ++calls > killed ? (die(), new Promise(() => {})) : Promise.resolve();
    const limit = 6 * fileBytes(1000);
    const life = (async () => {
      const { store } = await open(folder, { limit });
      for (let i = 0; i < 12; i++) await store.write(name(i), part(i));
    })();
    await Promise.race([life, dead]);
    const after = folder.afterKill();
    const { store, warnings } = await open(after, { limit });
    for (let i = 0; i < 12; i++) {
      const read = await store.read(name(i), 1000);
      if (read) assertEquals(read, part(i));
    }
    assertEquals(await store.write(name(99), part(99)), true);
    assert(store.bytes <= limit && after.bytes <= limit + 4096);
    assertEquals([...after.files.keys()].filter((file) => file.endsWith(".tmp")), []);
    assertEquals(warnings, []);
  }
});

Deno.test("prompt store: on disk, files are private, users of a process share a store, and processes are locked out", async () => {
  const path = await Deno.makeTempDir({ prefix: "compy-test-" });
  try {
    const folder = join(path, "a", "cache");
    const options = { limit: MB, warn: () => {} };
    const [one, two] = await Promise.all([
      openStore(folder, options),
      openStore(`${folder}/../cache`, options),
    ]);
    assert(one.store === two.store);
    await one.store.write(name(1), part(1));
    assertEquals(await one.store.sync([name(1)]), true);
    assertEquals(await one.store.sync([name(2)]), false);
    const files = [...Deno.readDirSync(folder)].map((file) => file.name).sort();
    assertEquals(files, [`${name(1)}.kv`, "prompts.lock", "prompts.secret"].sort());
    for (const file of files) assertEquals(Deno.statSync(join(folder, file)).mode! & 0o777, 0o600, file);
    assertEquals(Deno.statSync(folder).mode! & 0o777, 0o700);
    assertEquals(Deno.statSync(join(folder, `${name(1)}.kv`)).size, HEAD_BYTES + 1000);
    const other = new DiskFolder(folder);
    assertEquals(await other.lock(), false);
    await one.close();
    assertEquals(await two.store.read(name(1), 1000), part(1));
    assertEquals(await two.store.read(name(2), 1000), undefined);
    await two.close();
    assertEquals(await other.lock(), true);
    other.unlock();
    await Deno.writeTextFile(join(path, "file"), "");
    await assertRejects(() => openStore(join(path, "file"), options));
  } finally {
    await Deno.remove(path, { recursive: true });
  }
});

Deno.test("prompt store: opening a folder that is closing waits, and then writes", async () => {
  const path = await Deno.makeTempDir({ prefix: "compy-test-" });
  try {
    const warnings: string[] = [];
    const options = { limit: MB, warn: (message: string) => void warnings.push(message) };
    const one = await openStore(path, options);
    const written = one.store.write(name(1), part(1));
    const closed = one.close();
    const two = await openStore(path, options);
    assert(two.store !== one.store);
    assertEquals([await written, two.store.has(name(1)), two.store.writable], [true, true, true]);
    await closed;
    await two.close();
    assertEquals(warnings, []);
  } finally {
    await Deno.remove(path, { recursive: true });
  }
});

Deno.test("prompt store: wiping removes only the store's files, and is refused while the store is in use", async () => {
  const path = await Deno.makeTempDir({ prefix: "compy-test-" });
  try {
    const foreign = ["a.kv", "lock", "notes.txt", "secret"];
    for (const file of foreign) await Deno.writeTextFile(join(path, file), "mine");
    assertEquals((await wipeCache(path)).parts, 0);
    const { store, close } = await openStore(path, { limit: MB, warn: () => {} });
    await store.write(name(1), part(1));
    assertEquals(await reportCache(path).then(({ parts, inUse }) => [parts, inUse]), [1, true]);
    await assertRejects(() => wipeCache(path), Error, "a server or a job uses it; stop that first");
    await close();
    assertEquals(await reportCache(path).then(({ parts, inUse }) => [parts, inUse]), [1, false]);
    assertEquals((await wipeCache(path)).parts, 1);
    assertEquals([...Deno.readDirSync(path)].map((file) => file.name).sort(), foreign);
  } finally {
    await Deno.remove(path, { recursive: true });
  }
});

Deno.test("prompt store: names depend on everything that the bytes depend on, and on the folder's secret", () => {
  const identity = { weights: "w", plan: "p", kernels: "k", isa: "i" };
  const secret = new Uint8Array(32);
  const tokens = Int32Array.from({ length: 32 }, (_, i) => i);
  const nameOf = (change: Partial<typeof identity> = {}, salt = "", key = secret, ids = tokens) => {
    const names = createNames({ ...identity, ...change }, key);
    return names.name(names.link(names.root(salt), ids), 0);
  };
  const names = createNames(identity, secret);
  const link = names.link(names.root(""), tokens);
  const all = [
    nameOf(),
    nameOf({ weights: "v" }),
    nameOf({ plan: "q" }),
    nameOf({ kernels: "l" }),
    nameOf({ isa: "j" }),
    nameOf({}, "salt"),
    nameOf({}, "", new Uint8Array(32).fill(1)),
    nameOf({}, "", secret, tokens.toReversed()),
    names.name(link, 1),
    names.name(link, "state"),
    names.name(names.link(link, tokens), 0),
  ];
  assertEquals(new Set(all).size, all.length);
  assertEquals(nameOf(), all[0]);
});
