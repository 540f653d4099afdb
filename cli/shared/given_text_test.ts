import { assertEquals, assertRejects } from "@std/assert";
import { join } from "@std/path";
import { givenText, readText, type StandardInput } from "./given_text.ts";

/** Standard input with a text or bytes that delivers three bytes per read. */
function sent(content: string | Uint8Array, isSent = true): StandardInput {
  const bytes = typeof content === "string" ? new TextEncoder().encode(content) : content;
  let at = 0;
  return {
    isSent,
    read(buffer) {
      const piece = bytes.subarray(at, at += 3);
      buffer.set(piece);
      return Promise.resolve(piece.length || null);
    },
  };
}

/** Standard input of a terminal, on which a read would wait forever. */
const TERMINAL: StandardInput = {
  isSent: false,
  read: () => Promise.reject(new Error("standard input must not be read")),
};

async function given(input: StandardInput, word?: string, ...files: string[]): Promise<string | undefined> {
  return await givenText(files, word, input);
}

Deno.test("given text: joins standard input, the files and the text of the command line, in this order", async () => {
  const folder = await Deno.makeTempDir();
  const [one, two] = ["one.txt", "ü zwei.txt"].map((name) => join(folder, name));
  await Deno.writeTextFile(one, "\uFEFFfirst\r\nfile\r\n");
  await Deno.writeTextFile(two, "second file\n\n");
  assertEquals(
    await given(sent("piped\ntext\n"), "word", one, two),
    "piped\ntext\n\nfirst\nfile\n\nsecond file\n\nword",
  );
  assertEquals(
    await given(sent("piped"), "word", one, "-", two),
    "first\nfile\n\npiped\n\nsecond file\n\nword",
  );
  assertEquals(await given(TERMINAL, undefined, one), "first\nfile");
  await Deno.remove(folder, { recursive: true });
});

Deno.test("given text: reads standard input if standard input has data or if the command line has -", async () => {
  assertEquals(await given(TERMINAL, "word"), "word");
  assertEquals(await given(TERMINAL), undefined);
  assertEquals(await given(sent("piped")), "piped");
  assertEquals(await given(sent("typed", false), "-"), "typed");
  assertEquals(await given(sent("typed", false), undefined, "-"), "typed");
  assertEquals(await given(sent("\r\n")), undefined);
  assertEquals(await given(sent(""), "word"), "word");
});

Deno.test("read text: refuses bytes that are not UTF-8 and names the source", async () => {
  const bytes = Uint8Array.of(0x61, 0xc3, 0x28);
  await assertRejects(
    () => given(sent(bytes), "word"),
    Error,
    "Cannot read the text from standard input: it must be UTF-8, and some of its bytes are not",
  );
  await assertRejects(
    () => readText("/nowhere/ü.txt", "Cannot tokenize"),
    Error,
    'Cannot tokenize "/nowhere/ü.txt": there is no such file or folder',
  );
});

Deno.test("read text: stops reading when the text is longer than allowed", async () => {
  let bytes = 0;
  const source = {
    read(buffer: Uint8Array) {
      bytes += buffer.length;
      return Promise.resolve(buffer.length);
    },
  };
  await assertRejects(
    () => readText("-", "Cannot tokenize", source),
    Error,
    "Cannot tokenize from standard input: it has more than 64 MiB, the most for one text",
  );
  assertEquals(bytes <= 64 * 2 ** 20 + 2 ** 16, true);
});

Deno.test("read text: keeps line ends and the byte order mark of a text to tokenize", async () => {
  assertEquals(await readText("-", "Cannot tokenize", sent("\uFEFFa\r\n")), "\uFEFFa\r\n");
});
