import { assertEquals } from "@std/assert";
import { escaped, escapedLines, escapedMessage, EscapedStream, jsonLine } from "./escape.ts";

/** Characters that control a terminal, and the escaped text that it shows instead. */
const KINDS: Readonly<Record<string, readonly [text: string, shown: string]>> = {
  "C0 controls": ["a\0\x07\x08\x0b\x0cb", "a\\u0000\\u0007\\u0008\\u000b\\u000cb"],
  "DEL": ["a\x7fb", "a\\u007fb"],
  "CSI sequences": ["\x1b[2J\x1b[1;1Hhi\x1b[31m", "\\u001b[2J\\u001b[1;1Hhi\\u001b[31m"],
  "window titles (OSC)": ["\x1b]0;owned\x07", "\\u001b]0;owned\\u0007"],
  "clipboard writes (OSC 52)": ["\x1b]52;c;cm0=\x1b\\", "\\u001b]52;c;cm0=\\u001b\\"],
  "C1 controls": ["\x9b2J\x9d0;t\x9c\x85", "\\u009b2J\\u009d0;t\\u009c\\u0085"],
  "a carriage return that overwrites a line": ["rm -rf /\rls", "rm -rf /\\rls"],
  "bidirectional overrides": [
    "\u202atxt\u202b.\u202c\u202d\u202e",
    "\\u202atxt\\u202b.\\u202c\\u202d\\u202e",
  ],
  "bidirectional isolates": ["\u2066\u2067\u2068\u2069", "\\u2066\\u2067\\u2068\\u2069"],
  "line and paragraph separators": ["a\u2028b\u2029c", "a\\u2028b\\u2029c"],
  "lone surrogates": ["a\ud800b\udc00", "a\\ud800b\\udc00"],
};

for (const [kind, [text, shown]] of Object.entries(KINDS)) {
  Deno.test(`terminal escapes: ${kind} are shown escaped, in a line, in several lines and in a stream that is split anywhere`, () => {
    assertEquals([escaped(text), escapedLines(text)], [shown, shown]);
    for (let at = 0; at <= text.length; at++) {
      const stream = new EscapedStream();
      // The newline releases the text that a stream holds back.
      assertEquals(
        stream.next(text.slice(0, at)) + stream.next(text.slice(at)) + stream.next("\n"),
        shown + "\n",
      );
    }
  });
}

Deno.test("escape: decodes raw C1 bytes, which are not UTF-8, to a harmless character", () => {
  const text = new TextDecoder().decode(Uint8Array.of(0x61, 0x9b, 0x32, 0x4a));
  assertEquals(escaped(text), "a\ufffd2J");
});

Deno.test("escape: leaves wide characters, emoji sequences, marks, tabs and line ends intact", () => {
  const texts = ["天地 한국 ｆｕｌｌ", "👩‍👩‍👧‍👦 🏴󠁧󠁢󠁥󠁮󠁧󠁿 ❤️ 🇺🇳", "e\u0301 नमस्ते می‌خواهم", "a\tb\n\n\tc\n", "\\u001b[2J"];
  for (const text of texts) {
    assertEquals(escapedLines(text), text);
    for (let at = 0; at <= text.length; at++) {
      const stream = new EscapedStream();
      assertEquals(stream.next(text.slice(0, at)) + stream.next(text.slice(at)), text);
    }
  }
});

Deno.test("escape: keeps a Windows line end as a line end, also if it is split", () => {
  const stream = new EscapedStream();
  assertEquals([stream.next("a\r"), stream.next("\nb\r"), stream.next("c")], ["a", "\nb", "\\rc"]);
});

Deno.test("escape: a message keeps only line ends before indented lines", () => {
  const text = "boom\nError: the disk is full\r\n  weights 1 MB\n x\n";
  assertEquals(escaped(text), "boom\\nError: the disk is full\\r\\n  weights 1 MB\\n x\\n");
  assertEquals(escapedMessage(text), "boom\\nError: the disk is full\\r\n  weights 1 MB\\n x\\n");
});

Deno.test("escape: a line of JSON has no control characters and the same value", () => {
  const value = { text: Object.values(KINDS).map(([text]) => text).join("\n"), "\x9b\u2028": "\t天👩‍👧" };
  const line = jsonLine(value);
  assertEquals(line, `${escaped(line.slice(0, -1))}\n`);
  assertEquals(JSON.parse(line), value);
});
