import { assert, assertEquals } from "@std/assert";
import { readUpload } from "./upload.ts";

const MIB = 1 << 20;
const encoder = new TextEncoder();

/** Returns a form with one file of `mib` MiB, generated while it is read. */
function formOf(mib: number): Request {
  const head = '--b\r\ncontent-disposition: form-data; name="file"; filename="f.jsonl"\r\n\r\n';
  let sent = 0;
  const body = new ReadableStream<Uint8Array>({
    pull(controller) {
      if (sent === 0) controller.enqueue(encoder.encode(head));
      for (let i = 0; i < 16; i++) controller.enqueue(new Uint8Array(MIB / 16).fill(97));
      if (++sent < mib) return;
      controller.enqueue(encoder.encode("\r\n--b--\r\n"));
      controller.close();
    },
  }, { highWaterMark: 0 });
  const headers = { "content-type": "multipart/form-data; boundary=b" };
  return new Request("http://localhost/v1/files", { method: "POST", headers, body });
}

Deno.test("readUpload: does not keep written content in memory", async () => {
  const before = Deno.memoryUsage().external;
  let most = 0;
  const sink = {
    bytes: 0,
    signal: new AbortController().signal,
    write(chunk: Uint8Array) {
      this.bytes += chunk.length;
      most = Math.max(most, Deno.memoryUsage().external - before);
      return Promise.resolve();
    },
    discard: () => Promise.resolve(),
  };
  const limits = { uploadBytes: 300 * MIB, bodyMs: 10_000, bodyBytesPerSecond: 1 };
  const form = await readUpload(formOf(256), limits, () => Promise.resolve(sink));
  assertEquals([form.file.filename, sink.bytes], ["f.jsonl", 256 * MIB]);
  assert(most < 128 * MIB, `${most / MIB} MiB were held`);
});
