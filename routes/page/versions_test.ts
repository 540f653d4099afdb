import { assertEquals } from "@std/assert";
import { newAnswer } from "./conversation.js";
import { beginVersion, type Branch, everyMessage, showVersion, versionsAt } from "./versions.js";

const user = (content: string) => ({ role: "user" as const, content });
const answer = (content: string) => ({ ...newAnswer("demo"), content });
const contents = ({ messages }: Branch) => messages.map(({ content }) => content).join(" ");

/** A conversation with answers A, B and C to question 1, and two versions of the question after B. */
function forked(): Branch {
  const conversation: Branch = { messages: [user("1"), answer("A"), user("2"), answer("a")] };
  beginVersion(conversation, 1);
  conversation.messages.push(answer("B"), user("3"), answer("b"));
  beginVersion(conversation, 2);
  conversation.messages.push(user("4"));
  beginVersion(conversation, 1);
  conversation.messages.push(answer("C"));
  return conversation;
}

Deno.test("versions: each version of an answer shows the messages that follow it", () => {
  const conversation = forked();
  assertEquals([contents(conversation), versionsAt(conversation, 1)], ["1 C", { shown: 2, count: 3 }]);
  assertEquals(versionsAt(conversation, 2), { shown: 0, count: 1 });
  showVersion(conversation, 1, 0);
  assertEquals([contents(conversation), versionsAt(conversation, 2).count], ["1 A 2 a", 1]);
  showVersion(conversation, 1, 1);
  assertEquals([contents(conversation), versionsAt(conversation, 2)], ["1 B 4", { shown: 1, count: 2 }]);
  showVersion(conversation, 2, 0);
  assertEquals(contents(conversation), "1 B 3 b");
  showVersion(conversation, 1, 2);
  assertEquals(contents(conversation), "1 C");
  showVersion(conversation, 1, 1);
  assertEquals([contents(conversation), versionsAt(conversation, 2)], ["1 B 3 b", { shown: 0, count: 2 }]);
});

Deno.test("versions: a version that does not exist changes nothing", () => {
  const conversation = forked();
  for (const [index, number] of [[1, 2], [1, 3], [1, -1], [0, 0], [9, 1]]) {
    showVersion(conversation, index, number);
  }
  assertEquals(conversation, forked());
});

Deno.test("versions: an answer that failed before its first word is not kept", () => {
  const conversation: Branch = { messages: [user("1"), answer("")] };
  beginVersion(conversation, 1);
  conversation.messages.push(answer("A"));
  assertEquals(versionsAt(conversation, 1), { shown: 0, count: 1 });
  beginVersion(conversation, 1);
  conversation.messages.push(answer(""));
  beginVersion(conversation, 1);
  conversation.messages.push(answer("B"));
  assertEquals(versionsAt(conversation, 1), { shown: 1, count: 2 });
});

Deno.test("versions: all messages can be visited, and are kept as JSON", () => {
  const conversation = JSON.parse(JSON.stringify(forked()));
  assertEquals(
    [...everyMessage(conversation)].map(({ content }) => content).sort().join(" "),
    "1 2 3 4 A B C a b",
  );
});
