import { assertEquals, assertThrows } from "@std/assert";
import { join } from "@std/path";
import { createNodeRuntime, type Koffi, parameters, thisRuntime } from "./runtime.ts";

const SYMBOLS = {
  now: { parameters, result: "i32" },
  later: { name: "compy_later", parameters, result: "i32", nonblocking: true },
} as const;

type Callback = (error: unknown, result: number) => void;

/** A fake koffi; the test ends its calls. */
function fakeKoffi({ flock = 0, errno = 0 } = {}) {
  const declared: string[] = [];
  const running: { args: unknown[]; done: Callback }[] = [];
  const closed: string[] = [];
  const koffi: Koffi = {
    load: (path) => ({
      func: (name, result, types) => {
        declared.push(`${result} ${name}(${types.join(", ")})`);
        const call = () => name === "flock" ? flock : 7;
        const async = (...args: unknown[]) => {
          running.push({ args: args.slice(0, -1), done: args.at(-1) as Callback });
        };
        return Object.assign(call, { async });
      },
      unload: () => closed.push(path!),
    }),
    errno: () => errno,
    os: { errno: { EAGAIN: 11, ENOLCK: 37 } },
  };
  return { koffi, declared, running, closed };
}

/** Calls the nonblocking export with new buffers. */
function call(
  later: (...args: [bigint, Uint8Array<ArrayBuffer>, bigint, Uint8Array<ArrayBuffer>, bigint]) => unknown,
) {
  return later(1n, new Uint8Array(8), 8n, new Uint8Array(4), 4n);
}

Deno.test("Node's runtime: declares exports with C types and calls nonblocking ones on another thread", async () => {
  const { koffi, declared, running, closed } = fakeKoffi();
  const library = createNodeRuntime(() => koffi).openLibrary("/lib.so", SYMBOLS);
  assertEquals(declared, [
    "int32_t now(uint64_t, uint8_t *, size_t, uint8_t *, size_t)",
    "int32_t compy_later(uint64_t, uint8_t *, size_t, uint8_t *, size_t)",
  ]);
  assertEquals(call(library.symbols.now), 7);
  const [good, bad] = [call(library.symbols.later), call(library.symbols.later)] as Promise<number>[];
  running[0].done(null, 5);
  running[1].done(new Error("refused"), 0);
  assertEquals(await good, 5);
  assertEquals(await bad.catch((error) => error.message), "refused");
  library.close();
  assertEquals(closed, ["/lib.so"]);
});

Deno.test("Node's runtime: queues calls beyond the limit in the order in which they came", async () => {
  const { koffi, running } = fakeKoffi();
  const { symbols: { later } } = createNodeRuntime(() => koffi).openLibrary("/lib.so", SYMBOLS);
  const calls = Array.from(
    { length: 70 },
    (_, i) => later(BigInt(i), new Uint8Array(1), 1n, new Uint8Array(1), 1n),
  );
  assertEquals(running.length, 64);
  for (let i = 0; i < 70; i++) {
    running[i].done(i === 3 ? new Error("one that fails makes room too") : null, i);
    await Promise.allSettled([calls[i]]);
  }
  assertEquals(running.map(({ args: [handle] }) => Number(handle)), Array.from({ length: 70 }, (_, i) => i));
  assertEquals(await calls[69], 69);
});

Deno.test("Node's runtime: distinguishes a held lock from a file that cannot be locked", async () => {
  const path = await Deno.makeTempFile();
  try {
    const lock = (failure: { flock?: number; errno?: number }) =>
      createNodeRuntime(() => fakeKoffi(failure).koffi).lockFile(path, "r+");
    lock({})!();
    assertEquals(lock({ flock: -1, errno: 11 }), undefined);
    assertEquals(assertThrows(() => lock({ flock: -1, errno: 37 }), Error).message.split(":")[0], "ENOLCK");
  } finally {
    await Deno.remove(path);
  }
});

Deno.test("Deno's runtime: a file can be locked only once until its lock is released", async () => {
  const folder = await Deno.makeTempDir();
  const path = join(folder, "journal");
  try {
    const { lockFile } = thisRuntime()!;
    assertThrows(() => lockFile(path, "r"), Deno.errors.NotFound);
    await Deno.writeTextFile(path, "");
    const unlock = lockFile(path, "r+");
    assertEquals(lockFile(path, "r"), undefined);
    unlock!();
    lockFile(path, "r")!();
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});
