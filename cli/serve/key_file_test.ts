import { assertEquals, assertThrows } from "@std/assert";
import { delay } from "@std/async/delay.js";
import { join } from "@std/path";
import { digestOf, KeyRing } from "../../routes/access/keys.ts";
import { followKeyFile, readKeyFile } from "./key_file.ts";

async function withKeyFile(
  content: unknown,
  test: (file: string, write: (content: unknown) => void) => void | Promise<void>,
): Promise<void> {
  const folder = Deno.makeTempDirSync();
  const file = join(folder, "keys.json");
  const write = (content: unknown) => {
    const text = typeof content === "string" ? content : JSON.stringify(content);
    Deno.writeTextFileSync(file, text, { mode: 0o600 });
  };
  try {
    write(content);
    await test(file, write);
  } finally {
    Deno.removeSync(folder, { recursive: true });
  }
}

const unlimited = {
  weight: undefined,
  mayPull: undefined,
  requestsAtOnce: undefined,
  tokensPerMinute: undefined,
};
const hex = (key: string) => digestOf(key).toHex();

Deno.test("key file: accepts plain keys and digests, with limits", async () => {
  const keys = [
    { name: "alice", key: "a1", weight: 2, pull: true, requests_at_once: 4, tokens_per_minute: 20_000 },
    { name: "bob", key_sha256: hex("b1").toUpperCase() },
    { name: "prometheus", key: "p1", scope: "metrics" },
  ];
  await withKeyFile({ keys }, (file) => {
    const warnings: string[] = [];
    const read = readKeyFile(file, (warning) => warnings.push(warning));
    assertEquals(
      read.map(({ digest, ...rest }) => ({ ...rest, digest: digest.toHex() })),
      [
        {
          name: "alice",
          digest: hex("a1"),
          scope: undefined,
          weight: 2,
          mayPull: true,
          requestsAtOnce: 4,
          tokensPerMinute: 20_000,
        },
        { name: "bob", digest: hex("b1"), scope: undefined, ...unlimited },
        { name: "prometheus", digest: hex("p1"), scope: "metrics", ...unlimited },
      ],
    );
    assertEquals(warnings, []);
  });
});

Deno.test("key file: warns when others may read it, unless it holds only digests", async () => {
  for (const [key, warned] of [[{ key: "a1" }, 1], [{ key_sha256: hex("a1") }, 0]] as const) {
    await withKeyFile({ keys: [{ name: "a", ...key }] }, (file) => {
      Deno.chmodSync(file, 0o640);
      const warnings: string[] = [];
      readKeyFile(file, (warning) => warnings.push(warning));
      assertEquals(warnings.length, warned);
    });
  }
});

Deno.test("key file: names the problem without showing a key", async () => {
  const cases: [unknown, string][] = [
    ["{ s3cret", "it is not valid JSON"],
    [[], "Invalid request body: must be an object (got an array of 0)"],
    [{ keys: [] }, 'Invalid "keys": must have at least 1 entry (got an array of 0)'],
    [
      { keys: [{ name: "a b", key: "s3cret" }] },
      'Invalid "keys[0].name": must be 1 to 64 letters, digits and _.- (got "a b")',
    ],
    [{ keys: [{ key: "s3cret" }] }, 'Missing required parameter "keys[0].name"'],
    [{ keys: [{ name: "a" }] }, '"a" must have either "key" or "key_sha256"'],
    [
      { keys: [{ name: "a", key: "s3cret", key_sha256: hex("b") }] },
      '"a" must have either "key" or "key_sha256"',
    ],
    [
      { keys: [{ name: "a", key_sha256: "s3cret" }] },
      '"key_sha256" of "a" must be 64 hexadecimal digits',
    ],
    [
      { keys: [{ name: "a", key: "s3cret", requests_at_once: 0 }] },
      'Invalid "keys[0].requests_at_once": must be at least 1 (got 0)',
    ],
    [
      { keys: [{ name: "a", key: "s3cret", limit: 3 }] },
      'Invalid "keys[0]": must have no field "limit", only name, key, key_sha256, scope, weight, pull, requests_at_once, tokens_per_minute ' +
      "(got an object)",
    ],
    [
      { keys: [{ name: "a", key: "s3cret", scope: "read" }] },
      'Invalid "keys[0].scope": must be "all" or "metrics" (got "read")',
    ],
    [{ keys: [{ name: "a", key: 17 }] }, "Cannot use API key: must be 1 to 512 letters"],
    [{ keys: [{ name: "a", key: "s3cret with spaces" }] }, "Cannot use API key: must be 1 to 512 letters"],
  ];
  for (const [content, message] of cases) {
    await withKeyFile(content, (file) => {
      const error = assertThrows(() => readKeyFile(file, () => {}), Error, message);
      assertEquals(error.message.startsWith(`Cannot use the key file "${file}": `), true, error.message);
      assertEquals(error.message.includes("s3cret"), false, error.message);
    });
  }
  const missing = assertThrows(() => readKeyFile("/no/keys.json", () => {}), Error);
  assertEquals(missing.message, 'Cannot use the key file "/no/keys.json": there is no such file or folder');
});

Deno.test("key file: is read again when it changes or on request; an invalid file changes nothing", async () => {
  await withKeyFile({ keys: [{ name: "a", key: "old" }] }, async (file, write) => {
    const ring = new KeyRing([], readKeyFile(file, () => {}));
    const notes: string[] = [];
    const following = followKeyFile(file, ring, (note) => notes.push(note.replaceAll(file, "FILE")));
    try {
      write("{");
      following.reload();
      assertEquals(ring.admit("old")?.name, "a");
      write({ keys: [{ name: "a", key: "new" }, { name: "b", key: "more" }] });
      for (let i = 0; i < 50 && !ring.admit("new"); i++) await delay(100);
      assertEquals([ring.admit("new")?.name, ring.admit("more")?.name, ring.admit("old")], [
        "a",
        "b",
        undefined,
      ]);
      assertEquals(notes, [
        'Cannot use the key file "FILE": it is not valid JSON; the keys do not change',
        'Read 2 API keys from "FILE"',
      ]);
    } finally {
      following.stop();
    }
  });
});
