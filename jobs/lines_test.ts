import { assertEquals } from "@std/assert";
import { type RawLine, readLines } from "./lines.ts";
import type { StorageFile } from "./journal/storage.ts";

type ReadOnly = Pick<StorageFile, "read">;

/** A file whose reads return at most `step` bytes. */
function file(content: Uint8Array | string, step = Infinity): StorageFile {
  const bytes = typeof content === "string" ? new TextEncoder().encode(content) : content;
  const read: ReadOnly["read"] = (buffer, offset) => {
    const found = bytes.subarray(offset, offset + Math.min(step, buffer.length));
    buffer.set(found);
    return Promise.resolve(found.length);
  };
  return { read } as StorageFile;
}

async function read(source: StorageFile, maxLineBytes = 1000) {
  const lines: { index: number; number: number; text: string | undefined; length: number }[] = [];
  for await (const { index, number, bytes, length } of readLines(source, maxLineBytes)) {
    lines.push({
      index,
      number,
      text: bytes && new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes),
      length,
    });
  }
  return lines;
}

async function texts(content: string, maxLineBytes?: number) {
  return (await read(file(content), maxLineBytes)).map(({ text }) => text);
}

Deno.test("readLines: accepts LF, CRLF and a last line without an end", async () => {
  assertEquals(await texts("a\nb\r\nc"), ["a", "b", "c"]);
  assertEquals(await texts("a\nb\r\n"), ["a", "b"]);
  assertEquals(await texts("a\r"), ["a"]);
  assertEquals(await texts(""), []);
});

Deno.test("readLines: skips blank lines but counts them in line numbers", async () => {
  assertEquals(await read(file("\n a \n\r\n \t\nb\n\n")), [
    { index: 0, number: 2, text: " a ", length: 3 },
    { index: 1, number: 5, text: "b", length: 1 },
  ]);
});

Deno.test("readLines: drops a byte order mark at the beginning only", async () => {
  assertEquals(await texts("\ufeffa\n\ufeffb"), ["a", "\ufeffb"]);
  assertEquals(await texts("\ufeff"), []);
  assertEquals((await read(file("\ufeffa", 1))).map(({ text }) => text), ["a"]);
});

Deno.test("readLines: reports the length of a line over the limit and keeps its neighbours", async () => {
  assertEquals(await read(file("ab\n123456\ncd\n"), 5), [
    { index: 0, number: 1, text: "ab", length: 2 },
    { index: 1, number: 2, text: undefined, length: 6 },
    { index: 2, number: 3, text: "cd", length: 2 },
  ]);
  assertEquals(await texts("12345\r\n", 5), ["12345"]);
});

Deno.test("readLines: returns lines that cross read chunks whole, at every size", async () => {
  const chunk = 256 * 1024;
  for (const size of [chunk - 2, chunk - 1, chunk, chunk + 1, 2 * chunk, 3 * chunk + 7]) {
    const long = "x".repeat(size);
    assertEquals(await texts(`a\n${long}\r\nb\n${long}`, 4 * chunk), ["a", long, "b", long]);
    assertEquals((await read(file(`a\n${long}\r\nb\n`), size - 1)).map(({ length }) => length), [1, size, 1]);
  }
});

Deno.test("readLines: does not keep a line far over the limit in memory", async () => {
  const size = 1e9;
  const endless = {
    read: (buffer: Uint8Array, offset: number) => {
      const count = Math.min(buffer.length, size - offset);
      buffer.fill(0x61, 0, count);
      return Promise.resolve(count);
    },
  } as unknown as StorageFile;
  const before = Deno.memoryUsage().external;
  const lines: RawLine[] = [];
  for await (const line of readLines(endless, 1000)) lines.push(line);
  assertEquals(lines, [{ index: 0, number: 1, bytes: undefined, length: size }]);
  assertEquals(Deno.memoryUsage().external - before < 4_000_000, true);
});
