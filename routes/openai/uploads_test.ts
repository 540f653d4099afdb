import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { type BatchServer, chatLine, inDataFolder, upload, withBatches } from "../testing_batches.ts";
import { RawClient, statusOf } from "../testing_raw.ts";
import { until } from "../testing_server.ts";

const KIB = 1 << 10;
const HEAD =
  "POST /v1/files HTTP/1.1\r\nhost: localhost\r\ncontent-type: multipart/form-data; boundary=b\r\n";
const PURPOSE = '--b\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n';
const FILE = '--b\r\ncontent-disposition: form-data; name="file"; filename="f.jsonl"\r\n\r\n';

const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/** Returns the paths of files and uploads on disk. */
function contents(path: string): string[] {
  return ["uploads", "files"].flatMap((folder) =>
    [...Deno.readDirSync(`${path}/${folder}`)].map(({ name }) => name)
  );
}

const KEYS = ["first", "second", "third"];

function keyed(key: string): Record<string, string> {
  return { authorization: `Bearer ${key}` };
}

/** Uploads a file of `kib` KiB in one request. */
async function send(
  base: string,
  kib: number,
  key = "unused",
): Promise<{ status: number; code?: string; id?: string }> {
  const form = new FormData();
  form.set("purpose", "batch");
  form.set("file", new File(["a".repeat(kib * KIB)], "f.jsonl"));
  const response = await fetch(`${base}/v1/files`, { method: "POST", body: form, headers: keyed(key) });
  const answer = await response.json();
  return { status: response.status, code: answer.error?.code, id: answer.id };
}

/** Starts an upload that sends a byte from time to time until it is stopped. */
async function drip(base: string, key = "unused"): Promise<{ client: RawClient; stop: () => void }> {
  const client = await RawClient.connect(base);
  const head = `${HEAD}authorization: Bearer ${key}\r\ncontent-length: 1000000\r\n\r\n`;
  await client.send(`${head}${PURPOSE}${FILE}`);
  const timer = setInterval(() => client.send("a"), 20);
  return { client, stop: () => (clearInterval(timer), client.close()) };
}

Deno.test("uploads: a cut upload is a 400 and leaves no file and no report", async () => {
  await inDataFolder((path) =>
    withBatches(path, {}, async ({ base, client, reports }) => {
      const starts = [
        PURPOSE,
        PURPOSE + FILE + "x".repeat(100),
        PURPOSE + FILE + "x".repeat(100 * KIB),
        FILE.slice(0, 20),
      ];
      const framings = [
        (body: string) => `content-length: 1000000\r\n\r\n${body}`,
        (body: string) => `transfer-encoding: chunked\r\n\r\n${body.length.toString(16)}\r\n${body}\r\n`,
      ];
      for (const start of starts) {
        for (const framed of framings) {
          const half = await RawClient.connect(base);
          await half.send(HEAD + framed(start));
          await half.closeWrite();
          await half.closed;
          assertEquals(statusOf(half), 400, `${start.length}`);
          assertStringIncludes(half.answer, '"code":"incomplete_body"');
          const gone = await RawClient.connect(base);
          await gone.send(HEAD + framed(start));
          if (start.includes("filename")) await until(() => contents(path).length > 0);
          gone.close();
          await gone.closed;
          await until(() => contents(path).length === 0);
        }
      }
      await upload(client, [chatLine("a")]);
      assertEquals([contents(path).length, reports], [1, []]);
    })
  );
});

Deno.test("uploads: a slow upload is ended after a time limit, even if single bytes keep arriving", async () => {
  const limits = { bodyMs: 200, bodyBytesPerSecond: 1000 };
  await inDataFolder((path) =>
    withBatches(path, { limits }, async ({ base, reports }) => {
      const started = performance.now();
      const { client, stop } = await drip(base);
      await client.closed;
      stop();
      assertEquals(statusOf(client), 408);
      assertStringIncludes(client.answer, '"code":"body_timeout"');
      assert(performance.now() - started < 2500);
      await until(() => contents(path).length === 0);
      assertEquals(reports, []);
    })
  );
});

Deno.test("uploads: only a few run at once, of one key and of all, and a new upload replaces a slow one", async () => {
  await inDataFolder((path) =>
    withBatches(path, { apiKeys: KEYS }, async ({ base, reports }) => {
      const [first, second, third] = KEYS;
      const refused = { status: 429, code: "too_many_transfers", id: undefined };
      const early = await Promise.all(Array.from({ length: 12 }, () => drip(base, first)));
      await until(() => contents(path).length === 12);
      assertEquals(await send(base, 1, first), refused);
      early.push(...await Promise.all(Array.from({ length: 4 }, () => drip(base, second))));
      await until(() => contents(path).length === 16);
      assertEquals(await send(base, 1, third), refused);
      await sleep(2100);
      for (let n = 0; n < 8; n++) assertEquals((await send(base, 100, third)).status, 200);
      for (const { stop } of early) stop();
      await until(() => contents(path).length === 8);
      assertEquals(early.filter(({ client }) => statusOf(client) === 408).length > 0, true);
      assertEquals(reports, []);
    })
  );
});

Deno.test("uploads: all files stay within the quota, also with parallel uploads", async () => {
  const quota = { storageBytes: 1000 * KIB };
  const refused = { status: 413, code: "quota_exceeded", id: undefined };
  const stored = async ({ client }: BatchServer) => {
    const { data } = await client.files.list();
    return data.reduce((sum, { bytes }) => sum + bytes, 0);
  };
  await inDataFolder(async (path) => {
    await withBatches(path, quota, async (server) => {
      const first = await send(server.base, 600);
      assertEquals(first.status, 200);
      assertEquals(await send(server.base, 401), refused);
      const many = await Promise.all(Array.from({ length: 12 }, () => send(server.base, 100)));
      const kept = many.filter(({ status }) => status === 200).length;
      assert(kept <= 4 && many.every(({ status }) => status === 200 || status === 413));
      assertEquals(await stored(server), (600 + 100 * kept) * KIB);
      await server.client.files.delete(first.id!);
      assertEquals((await send(server.base, 600)).status, 200);
      assertEquals(server.reports, []);
      assertEquals(contents(path).length, kept + 1);
    });
    // Existing files count after a restart.
    await withBatches(path, quota, async (server) => assertEquals(await send(server.base, 401), refused));
  });
});

Deno.test("downloads: only a few of one key run at once, and one whose reader stops makes a place free", async () => {
  const limits = { stallMs: 3000 };
  await inDataFolder((path) =>
    withBatches(path, { limits, apiKeys: KEYS }, async ({ base, client, reports }) => {
      const [first, second] = KEYS;
      const { id } = await send(base, 20 * KIB, first);
      const content = `${base}/v1/files/${id}/content`;
      const headers = keyed(first);
      const stalled = await Promise.all(Array.from({ length: 12 }, () => fetch(content, { headers })));
      const refused = await fetch(content, { headers });
      const other = await send(base, 1, second);
      const fetched = await fetch(`${base}/v1/files/${other.id}/content`, { headers: keyed(second) });
      assertEquals([fetched.status, (await fetched.arrayBuffer()).byteLength], [200, KIB]);
      assertEquals([refused.status, (await refused.json()).error.code], [429, "too_many_transfers"]);
      assert(refused.headers.get("retry-after"));
      await stalled[0].body!.cancel();
      const read = async () => (await (await client.files.content(id!)).arrayBuffer()).byteLength;
      await sleep(100);
      assertEquals(await read(), 20 * KIB * KIB);
      await sleep(4000);
      assertEquals(await Promise.all([read(), read(), read()]), Array(3).fill(20 * KIB * KIB));
      await Promise.all(stalled.slice(1).map(({ body }) => body!.cancel().catch(() => {})));
      assertEquals(reports, []);
    })
  );
});
