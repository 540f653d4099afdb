import { assertEquals } from "@std/assert";
import { channelForm } from "../routes/testing_chat.ts";
import { FakeEngine } from "../routes/testing.ts";
import { AnswerText } from "./answer_text.ts";

const START = 258;

async function shown(reply: string, thinking: { shown: boolean; dimmed: boolean }) {
  const engine = new FakeEngine({ reply: () => reply });
  const plan = channelForm(START, () => [1]).plan({ messages: [] });
  const answer = new AnswerText(plan.reader(), thinking);
  let output = "";
  const request = { prompt: plan.prompt, markers: plan.markers, thinking: plan.thinking };
  for await (const event of engine.submit(request)) output += answer.read(event);
  return { output, text: answer.text, reasoning: answer.reasoning };
}

const REPLY = "<|start|>think\nA capital 🙂<|start|>text\nParis";

Deno.test("thinking is dimmed on a terminal, left out of a pipe, and plain in one where it is asked for", async () => {
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

Deno.test("a terminal is bright again after an answer that ends while it thinks; without thinking nothing is added", async () => {
  const terminal = { shown: true, dimmed: true };
  assertEquals((await shown("<|start|>think\nHm", terminal)).output, "\x1b[2mHm\x1b[0m\n\n");
  assertEquals((await shown("Paris", terminal)).output, "Paris");
});

Deno.test("an answer that is read by nobody is its text", async () => {
  const engine = new FakeEngine({ reply: () => "Hello 🙂" });
  const answer = new AnswerText(undefined, { shown: true, dimmed: true });
  let output = "";
  for await (const event of engine.submit({ prompt: [1] })) output += answer.read(event);
  assertEquals([output, answer.text, answer.reasoning], ["Hello 🙂", "Hello 🙂", ""]);
});
