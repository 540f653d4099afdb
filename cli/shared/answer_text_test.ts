import { assertEquals } from "@std/assert";
import { channelForm } from "../../routes/testing_chat.ts";
import { FakeEngine } from "../../routes/testing.ts";
import { AnswerText } from "./answer_text.ts";

const START = 258;

/** Returns the text shown for the answer `reply`; thinking is in parentheses. */
async function shown(reply: string, thinking: boolean) {
  const engine = new FakeEngine({ reply: () => reply });
  const plan = channelForm(START, () => [1]).plan({ messages: [] });
  let output = "";
  const show = (text: string, isThinking: boolean) => void (output += isThinking ? `(${text})` : text);
  const answer = new AnswerText(plan.reader(), { thinking, show });
  const request = { prompt: plan.prompt, markers: plan.markers, thinking: plan.thinking };
  for await (const event of engine.submit(request)) answer.read(event);
  const { text, reasoning, calls, hasCutCall } = answer;
  return {
    output: output.replaceAll(")(", ""),
    text,
    reasoning,
    ...(calls.length > 0 ? { calls } : {}),
    ...(hasCutCall ? { hasCutCall } : {}),
  };
}

const REPLY = "<|start|>think\nA capital 🙂<|start|>text\nParis";

Deno.test("answer text: shows thinking apart from the answer, or not at all", async () => {
  const kept = { text: "Paris", reasoning: "A capital 🙂" };
  assertEquals(await shown(REPLY, true), { output: "(A capital 🙂)\n\nParis", ...kept });
  assertEquals(await shown(REPLY, false), { output: "Paris", ...kept });
});

Deno.test("answer text: ends thinking with an empty line, also if no answer follows, and adds nothing without thinking", async () => {
  assertEquals((await shown("<|start|>think\nHm", true)).output, "(Hm)\n\n");
  assertEquals((await shown("Paris", true)).output, "Paris");
});

Deno.test("answer text: shows each complete call as a line of JSON and hides a truncated one", async () => {
  const call = (name: string, args: string) => `<|start|>call ${name}\n${args}`;
  const rome = { name: "weather", arguments: '{"city": "Rome"}' };
  const calls = [rome, { name: "now", arguments: "{}" }];
  const lines = '{"name": "weather", "arguments": {"city": "Rome"}}\n{"name": "now", "arguments": {}}';
  const both = call("weather", rome.arguments) + call("now", "{}");
  assertEquals(await shown(both, false), { output: lines, text: "", reasoning: "", calls });
  assertEquals(await shown(`Let me see.${both}<|start|>text\nDone`, false), {
    output: `Let me see.\n${lines}\nDone`,
    text: "Let me see.Done",
    reasoning: "",
    calls,
  });
  assertEquals(await shown(`<|start|>think\nHm${both}`, true), {
    output: `(Hm)\n\n${lines}`,
    text: "",
    reasoning: "Hm",
    calls,
  });
  assertEquals(await shown(call("weather", rome.arguments) + call("now", '{"a'), false), {
    output: lines.split("\n")[0],
    text: "",
    reasoning: "",
    calls: [rome],
    hasCutCall: true,
  });
});

Deno.test("answer text: collects the text when nothing is displayed", async () => {
  const engine = new FakeEngine({ reply: () => "Hello 🙂" });
  let output = "";
  const answer = new AnswerText(undefined, { thinking: true, show: (text) => void (output += text) });
  for await (const event of engine.submit({ prompt: [1] })) answer.read(event);
  assertEquals([output, answer.text, answer.reasoning], ["Hello 🙂", "Hello 🙂", ""]);
});
