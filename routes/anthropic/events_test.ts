import { assertEquals } from "@std/assert";
import type { ChatPart, Usage } from "../../engine/mod.ts";
import { FakeEngine } from "../testing.ts";
import type { Piece } from "../../engine/answers/pieces.ts";
import { messageEvents, type MessageShape, wholeMessage } from "./events.ts";

const usage: Usage = { promptTokens: 9, completionTokens: 5, cachedTokens: 4, thinkingTokens: 2 };

type Ending = Pick<Extract<Piece, { type: "finish" }>, "reason" | "stop">;

async function* pieces(
  parts: readonly ChatPart[],
  ending: Ending,
  counts = usage,
): AsyncGenerator<Piece> {
  yield { type: "progress", index: 0, progress: { total: 9, cached: 4, processed: 6, timeMs: 1 } };
  for (const part of parts) yield { type: "part", index: 0, part, tokens: [] };
  const timings = { queueMs: 0, prefillMs: 1, decodeMs: 1 };
  yield { type: "finish", index: 0, usage: counts, timings, ...ending };
}

const shape: MessageShape = { promptTokens: 9, maxTokens: 5, thoughts: "shown" };
const events = (parts: readonly ChatPart[], ending: Ending, counts?: Usage) =>
  messageEvents(new FakeEngine(), shape, pieces(parts, ending, counts));

const call = (index: number): ChatPart[] => [
  { type: "call", index, id: `c${index}`, name: "f" },
  { type: "arguments", index, text: '{"a":' },
  { type: "arguments", index, text: "1}" },
];

Deno.test("messageEvents: opens and closes one block per kind of part, in order", async () => {
  const parts: ChatPart[] = [
    { type: "reasoning", text: "a" },
    { type: "reasoning", text: "b" },
    { type: "content", text: "c" },
    ...call(0),
    ...call(1),
    { type: "content", text: "d" },
  ];
  const all = await Array.fromAsync(events(parts, { reason: "tool_calls" }));
  const told = all.flatMap((event) => {
    if (event.type === "content_block_start") return [`${event.index}(${event.content_block.type}`];
    if (event.type === "content_block_delta") return [event.delta.type];
    return event.type === "content_block_stop" ? [`${event.index})`] : [];
  });
  assertEquals(told, [
    ...["0(thinking", "thinking_delta", "thinking_delta", "signature_delta", "0)"],
    ...["1(text", "text_delta", "1)"],
    ...["2(tool_use", "input_json_delta", "input_json_delta", "2)"],
    ...["3(tool_use", "input_json_delta", "input_json_delta", "3)"],
    ...["4(text", "text_delta", "4)"],
  ]);
  const [start] = all;
  assertEquals(start.type === "message_start" && start.message.usage.cache_read_input_tokens, 4);
  const whole = await wholeMessage(events(parts, { reason: "tool_calls" }));
  assertEquals(whole.content.map((block) => block.type === "tool_use" ? block.input : block.type), [
    "thinking",
    "text",
    { a: 1 },
    { a: 1 },
    "text",
  ]);
});

Deno.test("messageEvents: stop_reason is tool_use even after a stop text, and stop_sequence even if the constraint is not complete", async () => {
  const endings: [Ending, Usage, string, string | null][] = [
    [{ reason: "stop" }, usage, "end_turn", null],
    [{ reason: "stop", stop: "x" }, usage, "stop_sequence", "x"],
    [{ reason: "length", stop: "x" }, usage, "stop_sequence", "x"],
    [{ reason: "tool_calls", stop: "x" }, usage, "tool_use", null],
    [{ reason: "length" }, usage, "max_tokens", null],
    [{ reason: "length" }, { ...usage, completionTokens: 4 }, "model_context_window_exceeded", null],
  ];
  for (const [ending, counts, reason, stop] of endings) {
    const { stop_reason, stop_sequence } = await wholeMessage(events([], ending, counts));
    assertEquals([stop_reason, stop_sequence], [reason, stop]);
  }
});

Deno.test("wholeMessage: an unfinished call has an empty input, and the number of stored prompt tokens is reported", async () => {
  const cut = await wholeMessage(events(call(0).slice(0, 2), { reason: "length" }));
  assertEquals(cut.content.map((block) => block.type === "tool_use" && block.input), [{}]);
  const stored = { tokens: 8, cache: "a place" };
  const read = await wholeMessage(events([], { reason: "length" }, { ...usage, stored }));
  assertEquals([read.usage.stored_tokens, read.usage.stored_in], [8, "a place"]);
});
