import { assertEquals } from "@std/assert";
import { newAnswer, newConversation, replaceFrom, say } from "./conversation.js";
import { search } from "./search.js";

function conversation(...said: string[]) {
  const made = newConversation("demo", {}, 0);
  for (const text of said) say(made, text);
  return made;
}

const titles = (found: ReturnType<typeof search>) => found.map(({ conversation }) => conversation.title);

Deno.test("search: finds conversations with every word in title or messages, in any case", () => {
  const all = [conversation("Bread recipe", "How much YEAST?"), conversation("Bread of the Romans")];
  all[1].messages.push({ ...newAnswer("demo"), content: "They made\nsourdough, no yeast." });
  assertEquals(titles(search(all, "")), ["Bread recipe", "Bread of the Romans"]);
  assertEquals(titles(search(all, " bread  Yeast ")), ["Bread recipe", "Bread of the Romans"]);
  assertEquals(titles(search(all, "romans yeast")), ["Bread of the Romans"]);
  assertEquals(titles(search(all, "rye")), []);
  assertEquals(search(all, "recipe")[0].excerpt, undefined);
  assertEquals(search(all, "yeast").map(({ excerpt }) => excerpt), [
    { before: "How much ", match: "YEAST", after: "?" },
    { before: "They made sourdough, no ", match: "yeast", after: "." },
  ]);
});

Deno.test("search: finds words of versions that are not shown", () => {
  const edited = conversation("An old question");
  edited.messages.push({ ...newAnswer("demo"), content: "An old answer" });
  replaceFrom(edited, 0, "A new one");
  assertEquals(titles(search([edited], "old answer")), ["A new one"]);
});
