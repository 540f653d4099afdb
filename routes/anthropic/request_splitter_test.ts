import { assertEquals } from "@std/assert";
import { RequestSplitter } from "./request_splitter.ts";

const limits = { requestBytes: 1000, requests: 100 };
const encoder = new TextEncoder();

function split(bytes: Uint8Array, size: number): string[] {
  const splitter = new RequestSplitter(limits);
  const found: string[] = [];
  for (let start = 0; start < bytes.length; start += size) {
    for (const request of splitter.add(bytes.subarray(start, start + size))) {
      found.push(new TextDecoder().decode(request));
    }
  }
  splitter.end();
  return found;
}

Deno.test("RequestSplitter: returns the same requests however the body is divided into chunks", () => {
  const requests = [
    { custom_id: "a", params: { text: 'brackets ]}[{ and \\" quotes "', list: [{ a: [] }, {}] } },
    { custom_id: "ü🙂", params: {} },
    { custom_id: "c", params: { requests: [{ custom_id: "inner" }], s: "\\" } },
  ];
  const body = `\n{ "more": ["[{", {"a": []}, 1], "requests" :\t${
    JSON.stringify(requests, null, 1)
  }, "x": "]" }\n`
    .replace(', {"a": []}', "");
  const bytes = encoder.encode(body);
  for (let size = 1; size <= bytes.length; size++) {
    assertEquals(split(bytes, size).map((request) => JSON.parse(request)), requests);
  }
});
