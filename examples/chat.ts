/**
 * Chats in a terminal: `deno run -P=library examples/chat.ts [MODEL.gguf]`. The chat ends at the end of the input.
 */
import { stdin, stdout } from "node:process";
import { createInterface } from "node:readline";
import { loadModel, type Message } from "compy";

await using model = await loadModel(Deno.args[0]);
const conversation: Message[] = [{ role: "system", content: "You answer in one sentence." }];

stdout.write("> ");
for await (const line of createInterface({ input: stdin })) {
  conversation.push({ role: "user", content: line });
  const chat = model.chat(conversation, { temperature: 0.7, seed: 1 });
  for await (const { text } of chat) stdout.write(text ?? "");
  const { text: content, usage } = await chat.answer();
  conversation.push({ role: "assistant", content });
  stdout.write(
    `\n(${usage.promptTokens} + ${usage.completionTokens} tokens, ${usage.cachedTokens} found)\n> `,
  );
}
