import { assertEquals } from "@std/assert";
import {
  answerCall,
  AnswerReader,
  canContinue,
  exported,
  newAnswer,
  newConversation,
  openCalls,
  replaceFrom,
  requestBody,
  say,
} from "./conversation.js";
import { showVersion } from "./versions.js";

function begun(...said: string[]) {
  const conversation = newConversation("demo", {}, 0);
  for (const text of said) say(conversation, text);
  return conversation;
}

/** Returns a chunk of a chat completion. */
const chunk = (delta: Record<string, unknown>, finish: string | null = null) => ({
  choices: [{ index: 0, delta, finish_reason: finish }],
});

Deno.test("conversation: is named by its first words unless the user named it", () => {
  assertEquals(begun("  What\n is  it? ").title, "What is it?");
  assertEquals(begun("word ".repeat(40)).title.length, 60);
  const named = { ...begun(), title: "Mine", named: true };
  say(named, "Hello");
  assertEquals(named.title, "Mine");
});

Deno.test("replaceFrom: an edited message begins a new version of the conversation", () => {
  const conversation = begun("One");
  conversation.messages.push({ ...newAnswer("demo"), content: "A" });
  say(conversation, "Two");
  replaceFrom(conversation, 0, "Three");
  assertEquals(requestBody(conversation).messages, [{ role: "user", content: "Three" }]);
  assertEquals(conversation.title, "Three");
  showVersion(conversation, 0, 0);
  assertEquals(conversation.messages.map(({ content }) => content), ["One", "A", "Two"]);
});

Deno.test("requestBody: has system prompt, thinking and calls, but no answer that failed before its first word", () => {
  const conversation = begun("One");
  conversation.settings = { system: " Be brief. ", temperature: "0", seed: "" };
  const answer = { ...newAnswer("demo"), reasoning: "Hm", calls: [{ id: "c1", name: "f", arguments: "{}" }] };
  conversation.messages.push(
    { ...newAnswer("demo"), trouble: { text: "x", advice: "y", kind: "cut" } },
    answer,
  );
  answerCall(conversation, answer.calls[0], "42");
  const { messages, ...fields } = requestBody(conversation);
  assertEquals(messages, [
    { role: "system", content: "Be brief." },
    { role: "user", content: "One" },
    {
      role: "assistant",
      content: null,
      reasoning_content: "Hm",
      tool_calls: [{ id: "c1", type: "function", function: { name: "f", arguments: "{}" } }],
    },
    { role: "tool", tool_call_id: "c1", content: "42" },
  ]);
  assertEquals(fields, {
    model: "demo",
    stream: true,
    stream_options: { include_usage: true },
    return_progress: true,
    temperature: 0,
  });
});

Deno.test("requestBody: images come before the text of their message", () => {
  const conversation = begun();
  const image = (id: string) => ({ id, name: `${id}.png`, thumb: "" });
  say(conversation, "What is this?", [image("a")]);
  say(conversation, "", [image("b")]);
  assertEquals(conversation.title, "What is this?");
  const part = (url: string) => ({ type: "image_url", image_url: { url } });
  assertEquals(requestBody(conversation, new Map([["a", "data:1"], ["b", "data:2"]])).messages, [
    { role: "user", content: [part("data:1"), { type: "text", text: "What is this?" }] },
    { role: "user", content: [part("data:2")] },
  ]);
});

Deno.test("openCalls: calls stay open until they have results or the user writes again", () => {
  const conversation = begun("One");
  const calls = ["c1", "c2"].map((id) => ({ id, name: "f", arguments: "{}" }));
  conversation.messages.push({ ...newAnswer("demo"), calls });
  assertEquals(openCalls(conversation).map(({ id }) => id), ["c1", "c2"]);
  answerCall(conversation, calls[1], "");
  assertEquals(openCalls(conversation).map(({ id }) => id), ["c1"]);
  say(conversation, "Never mind");
  assertEquals(openCalls(conversation), []);
});

Deno.test("canContinue: a cut answer can continue, but not one with calls or without text", () => {
  const answer = newAnswer("demo");
  assertEquals(canContinue({ ...answer, finish: "length" }), false);
  assertEquals(canContinue({ ...answer, content: "a", finish: "length" }), true);
  assertEquals(canContinue({ ...answer, content: "a", finish: "stopped" }), true);
  assertEquals(canContinue({ ...answer, content: "a", finish: "stop" }), false);
  const calls = [{ id: "c", name: "f", arguments: "{" }];
  assertEquals(canContinue({ ...answer, content: "a", calls, finish: "length" }), false);
});

Deno.test("AnswerReader: assembles thinking, text, call fragments and figures from chunks", () => {
  const answer = newAnswer("demo");
  const reader = new AnswerReader(answer, 1000);
  const progress = { total: 9, cache: 0, processed: 4, time_ms: 1 };
  assertEquals(
    reader.read({ ...chunk({ role: "assistant", content: "" }), prompt_progress: progress }, 1050),
    {
      processed: 4,
      total: 9,
    },
  );
  reader.read(chunk({ reasoning_content: "Hm" }), 1100);
  reader.read(chunk({ reasoning_content: "m" }), 1300);
  reader.read(chunk({ content: "Yes" }), 1500);
  reader.read(chunk({ tool_calls: [{ index: 0, id: "c1", function: { name: "f", arguments: "" } }] }), 1600);
  reader.read(chunk({ tool_calls: [{ index: 0, function: { arguments: '{"a"' } }] }), 1700);
  reader.read(chunk({ tool_calls: [{ index: 0, function: { arguments: ":1}" } }] }), 2100);
  assertEquals(Math.round(reader.rate!), 5);
  reader.read(chunk({}, "tool_calls"), 2110);
  reader.read({
    choices: [],
    usage: { prompt_tokens: 9, completion_tokens: 11, prompt_tokens_details: { cached_tokens: 3 } },
  }, 2110);
  assertEquals(answer, {
    ...newAnswer("demo"),
    content: "Yes",
    reasoning: "Hmm",
    calls: [{ id: "c1", name: "f", arguments: '{"a":1}' }],
    finish: "tool_calls",
    usage: { promptTokens: 9, answerTokens: 11, cachedTokens: 3 },
    tokensPerSecond: 10,
    firstTokenMs: 100,
    thinkingMs: 200,
  });
});

Deno.test("AnswerReader: the server's figures override the page's own", () => {
  const answer = newAnswer("demo");
  const reader = new AnswerReader(answer, 0);
  reader.read({ ...chunk({ content: "a" }), timings: undefined }, 5);
  reader.read({
    choices: [],
    usage: { prompt_tokens: 1, completion_tokens: 2 },
    timings: { predicted_per_second: 77 },
  }, 9);
  assertEquals(answer.tokensPerSecond, 77);
});

Deno.test("exported conversation: is a request body with a title and times", () => {
  const conversation = begun("One");
  conversation.messages.push({ ...newAnswer("demo"), content: "A" });
  assertEquals(JSON.parse(exported(conversation)), {
    title: "One",
    created: "1970-01-01T00:00:00.000Z",
    updated: "1970-01-01T00:00:00.000Z",
    model: "demo",
    messages: [{ role: "user", content: "One" }, { role: "assistant", content: "A" }],
  });
});
