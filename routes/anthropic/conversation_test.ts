import { assert, assertEquals } from "@std/assert";
import { message } from "./content.ts";
import { conversationOf, signatureOf } from "./conversation.ts";

/** Returns the turns of messages after validating them. */
function turns(messages: unknown[], system?: Parameters<typeof conversationOf>[0]["system"]) {
  return conversationOf({ system, messages: messages.map((one) => message.parse(one)) });
}

const text = (text: string) => ({ type: "text" as const, text });

Deno.test("conversationOf: text and text blocks give the same turns, with blocks joined by line breaks", () => {
  const asTexts = turns([{ role: "user", content: "A\nB" }, { role: "assistant", content: "C" }], "S\nT");
  const asBlocks = turns([
    { role: "user", content: [text("A"), { ...text("B"), cache_control: { type: "ephemeral" } }] },
    { role: "assistant", content: [text("C")] },
  ], [text("S"), text("T")]);
  assertEquals(asBlocks, asTexts);
  assertEquals(asTexts, [
    { role: "system", content: "S\nT" },
    { role: "user", content: "A\nB" },
    { role: "assistant", content: "C" },
  ]);
});

Deno.test("conversationOf: leaves out Claude Code's billing block, and no other system text", () => {
  const hi = [{ role: "user", content: "Hi" }];
  const billing = "x-anthropic-billing-header: cc_version=2.1.0.a1; cc_entrypoint=cli;";
  const systemOf = (system: Parameters<typeof turns>[1]) =>
    turns(hi, system).flatMap(({ role, content }) => role === "system" ? [content] : []);
  assertEquals(systemOf([text(billing), text("S"), text("T")]), ["S\nT"]);
  assertEquals(systemOf([text(billing)]), []);
  assertEquals(systemOf([text("S"), text(billing)]), [`S\n${billing}`]);
  assertEquals(systemOf(billing), [billing]);
});

Deno.test("conversationOf: keeps calls and results in order, including failed ones", () => {
  const input = { city: "Paris", days: [1, 2.5], deep: { yes: true } };
  const conversation = turns([
    { role: "user", content: "Weather?" },
    {
      role: "assistant",
      content: [
        { type: "thinking", thinking: "Two calls", signature: "anybody's" },
        { type: "redacted_thinking", data: "secret" },
        text("Looking"),
        { type: "tool_use", id: "a", name: "weather", input },
        { type: "tool_use", id: "b", name: "time", input: {} },
      ],
    },
    {
      role: "user",
      content: [
        { type: "tool_result", tool_use_id: "a", content: [text("sunny"), text("warm")] },
        { type: "tool_result", tool_use_id: "b", content: "no clock", is_error: true },
        { type: "tool_result", tool_use_id: "c" },
        { type: "tool_result", tool_use_id: "d", content: [text("seen"), { type: "image", source: {} }] },
        text("Hurry"),
        text("please"),
      ],
    },
  ]);
  assertEquals(conversation, [
    { role: "user", content: "Weather?" },
    {
      role: "assistant",
      content: "Looking",
      reasoning_content: "Two calls",
      tool_calls: [
        { id: "a", function: { name: "weather", arguments: JSON.stringify(input) } },
        { id: "b", function: { name: "time", arguments: "{}" } },
      ],
    },
    { role: "tool", tool_call_id: "a", content: "sunny\nwarm" },
    { role: "tool", tool_call_id: "b", content: "Error: no clock" },
    { role: "tool", tool_call_id: "c", content: "" },
    {
      role: "tool",
      tool_call_id: "d",
      content: [
        { type: "text", text: "seen" },
        { type: "image_url", image_url: "", param: "messages[2].content[3].content[1].source" },
      ],
    },
    { role: "user", content: "Hurry\nplease" },
  ]);
});

Deno.test("conversationOf: merges neighbours of one role, except after tool calls", () => {
  const call = { type: "tool_use", id: "a", name: "f", input: {} };
  const conversation = turns([
    { role: "system", content: [text("T")] },
    { role: "user", content: "A" },
    { role: "user", content: [] },
    { role: "user", content: "B" },
    { role: "assistant", content: "C" },
    { role: "assistant", content: [{ type: "thinking", thinking: "D" }, call] },
    { role: "assistant", content: "E" },
  ], "S");
  assertEquals(conversation.map(({ role, content }) => [role, content]), [
    ["system", "S\nT"],
    ["user", "A\nB"],
    ["assistant", "C"],
    ["assistant", "E"],
  ]);
  assertEquals(conversation[2].reasoning_content, "D");
});

Deno.test("conversationOf: merges ten thousand messages of one role in linear time", () => {
  const text = "x".repeat(800);
  const messages = Array.from({ length: 10_000 }, () => ({ role: "user" as const, content: text }));
  const started = performance.now();
  const [{ content }, ...others] = conversationOf({ messages });
  assertEquals([others, new TextEncoder().encode(content as string).length], [[], 10_000 * 801 - 1]);
  assert(performance.now() - started < 5000, `${performance.now() - started} ms`);
});

Deno.test("conversationOf: turns documents and search results into their texts", () => {
  const [turn] = turns([{
    role: "user",
    content: [
      {
        type: "document",
        title: "T",
        context: "C",
        source: { type: "text", media_type: "text/plain", data: "D" },
      },
      {
        type: "document",
        source: { type: "content", content: [text("E"), text("F")] },
        citations: { enabled: false },
      },
      { type: "search_result", title: "G", source: "https://h", content: [text("I")] },
    ],
  }]);
  assertEquals(turn.content, "T\nC\nD\nE\nF\nG\nhttps://h\nI");
});

Deno.test("conversationOf: restores hidden thinking from a signature, but not from a changed one", () => {
  const thought = "Paris… 🙂";
  const thoughtOf = (thinking: string, signature: string) =>
    turns([{ role: "assistant", content: [{ type: "thinking", thinking, signature }] }])[0].reasoning_content;
  assertEquals(thoughtOf("", signatureOf(thought, false)), thought);
  assertEquals(thoughtOf(thought, signatureOf(thought, true)), thought);
  assertEquals(thoughtOf("", signatureOf(thought, true)), "");
  assertEquals(thoughtOf("", "EqQBCgIYAhIM"), "");
  assertEquals(typeof thoughtOf("", "hidden:no base64 …"), "string");
});
