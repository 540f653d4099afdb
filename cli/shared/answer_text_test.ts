import { assertEquals } from "@std/assert";
import { channelForm } from "../../routes/testing_chat.ts";
import { FakeEngine } from "../../routes/testing.ts";
import { AnswerText } from "./answer_text.ts";

const START = 258;

async function shown(reply: string, thinking: { shown: boolean; dimmed: boolean }) {
  const engine = new FakeEngine({ reply: () => reply });
  const plan = channelForm(START, () => [1]).plan({ messages: [] });
  const answer = new AnswerText(plan.reader(), thinking);
  let output = "";
  const request = { prompt: plan.prompt, markers: plan.markers, thinking: plan.thinking };
  for await (const event of engine.submit(request)) output += answer.read(event);
  const { text, reasoning, calls, hasCutCall } = answer;
  return {
    output,
    text,
    reasoning,
    ...(calls.length > 0 ? { calls } : {}),
    ...(hasCutCall ? { hasCutCall } : {}),
  };
}

const REPLY = "<|start|>think\nA capital 🙂<|start|>text\nParis";

Deno.test("answer text: dims thinking on a terminal, drops it in a pipe, and shows it plain there on request", async () => {
  const kept = { text: "Paris", reasoning: "A capital 🙂" };
  assertEquals(await shown(REPLY, { shown: true, dimmed: true }), {
    output: "\x1b[2mA capital 🙂\x1b[0m\n\nParis",
    ...kept,
  });
  assertEquals(await shown(REPLY, { shown: false, dimmed: false }), { output: "Paris", ...kept });
  assertEquals(await shown(REPLY, { shown: true, dimmed: false }), {
    output: "A capital 🙂\n\nParis",
    ...kept,
  });
});

Deno.test("answer text: resets the terminal when an answer ends while thinking, and adds nothing without thinking", async () => {
  const terminal = { shown: true, dimmed: true };
  assertEquals((await shown("<|start|>think\nHm", terminal)).output, "\x1b[2mHm\x1b[0m\n\n");
  assertEquals((await shown("Paris", terminal)).output, "Paris");
});

Deno.test("answer text: shows each complete call as a line of JSON and hides a truncated one", async () => {
  const call = (name: string, args: string) => `<|start|>call ${name}\n${args}`;
  const plain = { shown: false, dimmed: false };
  const rome = { name: "weather", arguments: '{"city": "Rome"}' };
  const calls = [rome, { name: "now", arguments: "{}" }];
  const lines = '{"name": "weather", "arguments": {"city": "Rome"}}\n{"name": "now", "arguments": {}}';
  const both = call("weather", rome.arguments) + call("now", "{}");
  assertEquals(await shown(both, plain), { output: lines, text: "", reasoning: "", calls });
  assertEquals(await shown(`Let me see.${both}<|start|>text\nDone`, plain), {
    output: `Let me see.\n${lines}\nDone`,
    text: "Let me see.Done",
    reasoning: "",
    calls,
  });
  assertEquals(await shown(`<|start|>think\nHm${both}`, { shown: true, dimmed: true }), {
    output: `\x1b[2mHm\x1b[0m\n\n${lines}`,
    text: "",
    reasoning: "Hm",
    calls,
  });
  assertEquals(await shown(call("weather", rome.arguments) + call("now", '{"a'), plain), {
    output: lines.split("\n")[0],
    text: "",
    reasoning: "",
    calls: [rome],
    hasCutCall: true,
  });
});

Deno.test("answer text: collects the text when nothing is displayed", async () => {
  const engine = new FakeEngine({ reply: () => "Hello 🙂" });
  const answer = new AnswerText(undefined, { shown: true, dimmed: true });
  let output = "";
  for await (const event of engine.submit({ prompt: [1] })) output += answer.read(event);
  assertEquals([output, answer.text, answer.reasoning], ["Hello 🙂", "Hello 🙂", ""]);
});
