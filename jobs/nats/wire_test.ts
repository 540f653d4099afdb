import { assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import {
  answerRequest,
  beatRequest,
  chunkBytes,
  decodeMessage,
  encodeMessage,
  joinRequest,
  leaseReply,
  leaseRequest,
  MAX_ANSWER_BYTES,
  modelDifference,
  type ModelIdentity,
  rangePayload,
  runNotice,
  WireError,
  workItem,
} from "./wire.ts";

const MODEL: ModelIdentity = {
  id: "m",
  bytes: 100,
  fingerprint: "0123456789ab".padEnd(64, "0"),
  contextLength: 512,
  kvType: "f16",
};
const FENCE = crypto.randomUUID();

Deno.test("wire: a message is what was put into it", () => {
  const bytes = Uint8Array.from([10, 0, 255]);
  const message = encodeMessage({ fence: FENCE, line: 1, offset: 5, total: 8 }, bytes);
  assertEquals(decodeMessage(answerRequest, message), {
    head: { fence: FENCE, line: 1, offset: 5, total: 8 },
    bytes,
  });
});

Deno.test("wire: what is no message of its kind is refused", () => {
  const join = { version: 1, worker: "w", parallel: 16, model: MODEL };
  const answer = { fence: FENCE, line: 1, offset: 0, total: 8 };
  const cases: [Parameters<typeof decodeMessage>[0], unknown][] = [
    [runNotice, { version: 1, run: "../../etc", leaseMs: 1000, ended: false }],
    [runNotice, { version: 1, run: "0123456789abcdef", leaseMs: 0, ended: false }],
    [runNotice, { version: 1, run: "0123456789abcdef.>", leaseMs: 1000, ended: false }],
    [joinRequest, { ...join, worker: "a b" }],
    [joinRequest, { ...join, worker: "w".repeat(81) }],
    [joinRequest, { ...join, parallel: -1 }],
    [joinRequest, { ...join, parallel: 1e9 }],
    [joinRequest, { ...join, model: { ...MODEL, bytes: "100" } }],
    [joinRequest, { ...join, model: { ...MODEL, fingerprint: "x" } }],
    [leaseRequest, { range: -1, attempt: 0, worker: "w" }],
    [leaseRequest, { range: 0.5, attempt: 0, worker: "w" }],
    [leaseReply, { state: "granted", fence: "f", total: 1 }],
    [leaseReply, { state: "granted", fence: FENCE, total: 1e12 }],
    [leaseReply, { state: "perhaps" }],
    [answerRequest, { ...answer, line: 8 }],
    [answerRequest, { ...answer, total: MAX_ANSWER_BYTES + 1 }],
    [answerRequest, { ...answer, offset: -1 }],
    [beatRequest, { worker: "w", fences: Array(1025).fill(FENCE) }],
    [rangePayload, { lines: [{ line: 0, url: "/v1/completions", body: [] }] }],
    [rangePayload, { lines: Array(9).fill({ line: 0, url: "u", body: {} }) }],
    [workItem, null],
  ];
  for (const [schema, value] of cases) {
    assertThrows(
      () => decodeMessage(schema, encodeMessage(value)),
      WireError,
      "wrong",
      JSON.stringify(value),
    );
  }
  const noJson = [
    new Uint8Array(0),
    new Uint8Array(1 << 20),
    new TextEncoder().encode("{}"),
    Uint8Array.from([255, 10]),
  ];
  for (const bytes of noJson) assertThrows(() => decodeMessage(workItem, bytes), WireError);
  assertThrows(
    () => decodeMessage(workItem, new TextEncoder().encode("[".repeat(100_000) + "\n")),
    WireError,
  );
});

Deno.test("wire: a message fits what the server allows, with its head", () => {
  const head = { fence: FENCE, line: 7, offset: MAX_ANSWER_BYTES, total: MAX_ANSWER_BYTES };
  for (const max of [16_384, 1_048_576]) {
    assertEquals(encodeMessage(head, new Uint8Array(chunkBytes(max))).length <= max, true);
  }
  assertThrows(() => chunkBytes(1000), Error, "allows messages of 1000 bytes; 16384 are needed");
});

Deno.test("wire: models that differ are told apart, and both are named", () => {
  assertEquals(modelDifference(MODEL, { ...MODEL }), undefined);
  const cases: [Partial<ModelIdentity>, string][] = [
    [{ id: "other" }, 'the run wants the model "m", the worker has "other"'],
    [{ bytes: 99 }, "the run's file has 100 bytes and the worker's 99"],
    [{ fingerprint: "f".repeat(64) }, "(fingerprint 0123456789ab… of the run, ffffffffffff… of the worker)"],
    [{ contextLength: 100 }, "512 tokens, the worker has room for 100; give both the same --ctx"],
    [{ kvType: "q8_0" }, "wants a KV cache in f16, the worker's is in q8_0; give both the same --kv-type"],
  ];
  for (const [other, words] of cases) {
    assertStringIncludes(modelDifference(MODEL, { ...MODEL, ...other })!, words);
  }
});
