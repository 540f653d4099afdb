import { assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import type { ModelIdentity } from "../model_identity.ts";
import {
  answerReply,
  answerRequest,
  chunkBytes,
  decodeMessage,
  encodeJson,
  encodeMessage,
  joinMessage,
  leaveMessage,
  lineAnswer,
  lineRequest,
  MAX_ANSWER_BYTES,
  modelDifference,
  parseJson,
  runNotice,
  takeReply,
  takeRequest,
  versionDifference,
  WireError,
} from "./wire.ts";

const MODEL: ModelIdentity = {
  "model": "m",
  "weights": "0123456789ab".padEnd(64, "0"),
  "KV cache": "f16",
  "context length": 512,
};
const ATTEMPT = crypto.randomUUID();

Deno.test("NATS messages: numbers in the arguments of earlier calls reach the worker as written", () => {
  const line =
    '{"url":"/v1/messages","body":{"messages":[{"content":[{"type":"tool_use","input":{"n":1.0}}]}]}}';
  const taken = parseJson(lineRequest, new TextEncoder().encode(line));
  assertEquals(new TextDecoder().decode(encodeJson(taken)), line);
});

Deno.test("NATS messages: decoding returns the header and the bytes that were encoded", () => {
  const bytes = Uint8Array.from([10, 0, 255]);
  const message = encodeMessage({ attempt: ATTEMPT, line: 1, offset: 5, total: 8 }, bytes);
  assertEquals(decodeMessage(answerRequest, message), {
    head: { attempt: ATTEMPT, line: 1, offset: 5, total: 8 },
    bytes,
  });
});

Deno.test("NATS messages: a message that does not match its schema is refused", () => {
  const notice = { version: 4, run: "0123456789abcdef", leaseMs: 1000, model: MODEL, ended: false };
  const join = { worker: "w", parallel: 16, refused: null };
  const take = { line: 1, worker: "w", attempt: ATTEMPT, offset: 0 };
  const answer = { attempt: ATTEMPT, line: 1, offset: 0, total: 8 };
  const cases: [Parameters<typeof decodeMessage>[0], unknown][] = [
    [runNotice, { ...notice, run: "../../etc" }],
    [runNotice, { ...notice, leaseMs: 0 }],
    [runNotice, { ...notice, run: "0123456789abcdef.>" }],
    [runNotice, { ...notice, model: undefined }],
    [runNotice, { ...notice, model: "m" }],
    [joinMessage, { ...join, worker: "a b" }],
    [joinMessage, { ...join, worker: "w".repeat(81) }],
    [joinMessage, { ...join, parallel: -1 }],
    [joinMessage, { ...join, parallel: 1e9 }],
    [joinMessage, { ...join, refused: undefined }],
    [joinMessage, { ...join, refused: "x".repeat(2001) }],
    [runNotice, { ...notice, model: { ...MODEL, weights: { size: 1 } } }],
    [runNotice, { ...notice, model: { ...MODEL, weights: "x".repeat(513) } }],
    [runNotice, { ...notice, model: Object.fromEntries(Array.from({ length: 33 }, (_, n) => [n, n])) }],
    [leaveMessage, { worker: "" }],
    [takeRequest, { ...take, line: -1 }],
    [takeRequest, { ...take, line: 0.5 }],
    [takeRequest, { ...take, attempt: "a" }],
    [takeRequest, { ...take, offset: -1 }],
    [takeReply, { state: "granted", total: 1e12 }],
    [takeReply, { state: "granted" }],
    [takeReply, { state: "perhaps" }],
    [answerRequest, { ...answer, line: -1 }],
    [answerRequest, { ...answer, attempt: "f" }],
    [answerRequest, { ...answer, total: MAX_ANSWER_BYTES + 1 }],
    [answerRequest, { ...answer, offset: -1 }],
    [answerReply, { state: "more" }],
    [lineRequest, { url: "/v1/completions", body: [] }],
    [lineRequest, { url: "u".repeat(257), body: {} }],
    [lineAnswer, { status: 99, body: {} }],
    [leaveMessage, null],
  ];
  for (const [schema, value] of cases) {
    assertThrows(
      () => decodeMessage(schema, encodeMessage(value)),
      WireError,
      "a message whose",
      JSON.stringify(value),
    );
  }
  const noJson = [
    new Uint8Array(0),
    new Uint8Array(1 << 20),
    new TextEncoder().encode("{}"),
    Uint8Array.from([255, 10]),
  ];
  for (const bytes of noJson) assertThrows(() => decodeMessage(leaveMessage, bytes), WireError);
  assertThrows(
    () => decodeMessage(leaveMessage, new TextEncoder().encode("[".repeat(100_000) + "\n")),
    WireError,
  );
});

Deno.test("NATS messages: a message and its header together fit the NATS server's limit", () => {
  const head = { line: 2 ** 40, attempt: ATTEMPT, offset: MAX_ANSWER_BYTES, total: MAX_ANSWER_BYTES };
  for (const max of [16_384, 1_048_576]) {
    assertEquals(encodeMessage(head, new Uint8Array(chunkBytes(max))).length <= max, true);
  }
  assertThrows(() => chunkBytes(1000), WireError, "max_payload must be at least 16384 bytes (got 1000)");
});

Deno.test("NATS messages: if models or versions differ, the report names both", () => {
  assertEquals(modelDifference(MODEL, { ...MODEL }), undefined);
  const cases: [ModelIdentity, string][] = [
    [{ "model": "other" }, 'the run wants model "m", the worker has "other"'],
    [{ "weights": "f".repeat(64) }, "weights 0123456789ab0000…, the worker has ffffffffffffffff…"],
    [{ "context length": 100 }, "the run wants context length 512, the worker has 100"],
    [{ "KV cache": "q8_0" }, 'the run wants KV cache "f16", the worker has "q8_0"'],
    [{ "backend": "cpu" }, 'the run wants backend not recorded, the worker has "cpu"'],
  ];
  for (const [other, words] of cases) {
    assertStringIncludes(modelDifference(MODEL, { ...MODEL, ...other })!, words);
  }
  assertEquals(versionDifference(3, 3), undefined);
  assertStringIncludes(versionDifference(3, 2)!, "the run speaks version 3");
});
