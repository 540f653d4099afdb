import { assert, assertEquals, assertNotEquals, assertThrows } from "@std/assert";
import { answerCall, imagesOf, newAnswer, newConversation, replaceFrom, say } from "./conversation.js";
import { asMarkdown, checkSize, exportedFile, importedFile } from "./exchange.js";
import { newImageId } from "./images.js";

function filled() {
  const conversation = newConversation("demo", { system: "Be brief.", temperature: "0" }, 5);
  say(conversation, "One");
  const calls = [{ id: "c", name: "f", arguments: '{"a":1}' }];
  const trouble = { text: "a", advice: "b", kind: "cut" };
  const usage = { promptTokens: 1, answerTokens: 2, cachedTokens: 0 };
  conversation.messages.push({ ...newAnswer("demo"), reasoning: "Hm", content: "A", calls, usage, trouble });
  answerCall(conversation, calls[0], "```\n42");
  say(conversation, "Two");
  replaceFrom(conversation, 3, "Three");
  replaceFrom(conversation, 0, "Four");
  return conversation;
}

/** The file of one conversation with a change of its JSON. */
function changed(change: (conversation: Record<string, unknown>) => void): string {
  const file = JSON.parse(exportedFile([filled()]));
  change(file.conversations[0]);
  return JSON.stringify(file);
}

Deno.test("conversation export: importing the file gives the same conversations, with all versions", () => {
  const conversations = [filled(), newConversation("", {}, 7)];
  assertEquals(importedFile(exportedFile(conversations)).conversations, conversations);
  assertEquals(importedFile(exportedFile([])).conversations, []);
});

Deno.test("conversation export: a file contains images, which get new ids at import", async () => {
  const id = newImageId(5);
  const image = { id, name: "a.png", thumb: "data:image/jpeg;base64,QUJD" };
  const conversation = newConversation("demo", {}, 5);
  say(conversation, "What is this?", [image]);
  replaceFrom(conversation, 0, "", [image]);
  assertEquals([conversation.title, conversation.messages.length], ["a.png", 1]);
  const file = exportedFile([conversation], new Map([[id, "data:image/png;base64,QUJDRA=="]]));
  const { conversations: [read], images } = importedFile(file);
  const shown = imagesOf(read.messages);
  assertEquals(imagesOf(read.forks![0][0]!.messages), shown);
  assertEquals([...images.keys()], [shown[0].id]);
  assertNotEquals(shown[0].id, id);
  const blob = images.get(shown[0].id)!;
  assertEquals([blob.type, await blob.text()], ["image/png", "ABCD"]);
  for (
    const [url, thumb] of [["data:text/html;base64,QUJD", image.thumb], ["https://a/b.png", image.thumb], [
      "data:image/png;base64,QUJDRA==",
      "https://a/b.png",
    ]]
  ) {
    const strange = file.replace("data:image/png;base64,QUJDRA==", url).replaceAll(image.thumb, thumb);
    if (thumb === image.thumb) assertEquals(importedFile(strange).images.size, 0);
    else assertThrows(() => importedFile(strange), Error, "images[0] is not an image of this page");
  }
});

Deno.test("conversation import: refuses files of other kinds and says what is wrong", () => {
  const nested = { messages: [], forks: { 0: [null, {}] } };
  for (
    const [text, problem] of [
      ["{", "not JSON"],
      ["null", "no conversations"],
      ['{"messages":[]}', "no conversations"],
      ['{"format":"compy conversations","version":1}', "conversations is not a list"],
      [
        '{"format":"compy conversations","version":1,"conversations":[null]}',
        "conversations[0] is not an object",
      ],
      [changed((c) => c.messages = [{ role: "system", content: "" }]), "messages[0].role is not user"],
      [changed((c) => c.messages = [{ role: "user", content: 1 }]), "messages[0].content is not a text"],
      [changed((c) => c.messages = Array(10_001).fill({ role: "user", content: "" })), "more than 10000"],
      [changed((c) => c.settings = { system: [] }), "settings.system is not a text"],
      [changed((c) => c.updated = "now"), "updated is not a number"],
      [changed((c) => c.forks = { "-1": [null] }), "is not the number of a message"],
      [changed((c) => c.forks = { 1e9: [null] }), "is not the number of a message"],
      [changed((c) => c.forks = { 0: [] }), "must have one null"],
      [changed((c) => c.forks = { 0: [null, nested] }), "messages is not a list"],
      [
        `{"format":"compy conversations","version":1,"conversations":${"[".repeat(1e5)}${"]".repeat(1e5)}}`,
        "not an object",
      ],
    ]
  ) {
    assertThrows(() => importedFile(text), Error, problem);
  }
  assertThrows(() => checkSize(50_000_001), Error, "larger than 50 MB");
  let deep: unknown = { messages: [] };
  for (let i = 0; i < 200; i++) deep = { messages: [], forks: { 0: [null, deep] } };
  assertThrows(() => importedFile(changed((c) => c.forks = { 0: [null, deep] })), Error, "nested too deep");
});

Deno.test("conversation import: reads only known fields, and replaces an invalid id", () => {
  const { conversations: [read] } = importedFile(
    changed((conversation) => {
      Object.assign(conversation, { id: "../x", extra: 1, settings: { extra: "1", top_p: "0.5" } });
      Object.assign((conversation.messages as object[])[0], { html: "<b>" });
    }).replace('"extra":1', '"__proto__":{"polluted":1}'),
  );
  assert(/^[0-9a-f]{16}$/.test(read.id));
  assertEquals(Object.keys(read).sort(), Object.keys(filled()).sort());
  assertEquals([read.settings, read.messages], [{ top_p: "0.5" }, [{ role: "user", content: "Four" }]]);
  assertEquals("polluted" in read, false);
});

Deno.test("conversation export: Markdown has the shown messages, and no message text can close its code fence", () => {
  const conversation = filled();
  conversation.messages = conversation.forks![0][0]!.messages;
  assertEquals(
    asMarkdown(conversation),
    "# Four\n\n## System prompt\n\nBe brief.\n\n## You\n\nOne\n\n## demo\n\n" +
      "<details>\n<summary>Thinking</summary>\n\nHm\n\n</details>\n\nA\n\n" +
      'Calls f:\n\n```json\n{"a":1}\n```\n\n## Result of f\n\n````\n```\n42\n````\n\n## You\n\nThree\n',
  );
});
