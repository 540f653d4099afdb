import { assertEquals, assertRejects, assertThrows } from "@std/assert";
import { UsageError } from "../shared/flags.ts";
import { ChatSettings, SETTING_NAMES } from "./chat_settings.ts";
import { loadChat, parseChat } from "./saved_chat.ts";

const HI = { role: "user", content: "Hi" };

Deno.test("saved chat: accepts messages with or without version and settings, and drops other fields", () => {
  const message = { ...HI, id: 3, versions: [] };
  assertEquals(parseChat({ version: 1, messages: [message], title: "x" }), { messages: [HI], settings: {} });
  assertEquals(parseChat({ messages: [{ role: "assistant", content: "a\ud800" }] }).messages, [
    { role: "assistant", content: "a\ufffd" },
  ]);
});

Deno.test("saved chat: refuses files that are not conversations", () => {
  const cases: [content: unknown, problem: string][] = [
    [[], "it must be a JSON object"],
    [{ version: 2, messages: [] }, '"version" must be 1 (got 2)'],
    [{ version: { a: "x".repeat(1e6) }, messages: [] }, '"version" must be 1 (got an object)'],
    [{}, '"messages" must be a list of at most 10000 messages'],
    [{ messages: Array(10_001).fill(HI) }, '"messages" must be a list of at most 10000 messages'],
    [{ messages: [HI, null] }, '"messages"[1]."role" must be one of system, user, assistant'],
    [{ messages: [{ role: "tool", content: "x" }] }, '"messages"[0]."role" must be one of'],
    [{ messages: [{ role: "user", content: [] }] }, '"messages"[0]."content" must be a text'],
    [{ messages: [{ ...HI, images: "x" }] }, '"messages"[0]."images" must be a list of at most 8 images'],
    [{ messages: [{ ...HI, images: ["!"] }] }, '"messages"[0]."images" must contain only texts in base64'],
    [{ messages: [], settings: [] }, '"settings" must be a JSON object'],
  ];
  for (const [content, problem] of cases) assertThrows(() => parseChat(content), UsageError, problem);
});

Deno.test("saved chat: refuses files that are long, not JSON or not ordinary files", async () => {
  const folder = await Deno.makeTempDir();
  try {
    await Deno.writeTextFile(`${folder}/bad.json`, "{");
    await assertRejects(() => loadChat(`${folder}/bad.json`), UsageError, "is not a saved conversation");
    await Deno.writeTextFile(`${folder}/long.json`, "");
    await Deno.truncate(`${folder}/long.json`, 2 ** 34);
    await assertRejects(() => loadChat(`${folder}/long.json`), UsageError, "at most 134217728 are read");
    await assertRejects(() => loadChat(folder), Error, "it is a folder");
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("chat settings: has every sampling setting, and refuses values out of range", () => {
  const settings = new ChatSettings({});
  assertEquals(SETTING_NAMES.length, 21);
  for (const name of SETTING_NAMES) settings.describe(name);
  const wrong: [name: string, value: string, rule: string][] = [
    ["temperature", "-1", "0 or more"],
    ["top-k", "1.5", "a whole number, 0 or more"],
    ["repetition-penalty", "0", "more than 0"],
    ["presence-penalty", "Infinity", "a finite number"],
    ["xtc-threshold", "2", "from 0 to 1"],
    ["dry-sequence-breakers", '["a", ""]', "a JSON list of non-empty texts"],
    ["logit-bias", '{"x": 1}', "JSON of token ids and numbers"],
    ["n", "many", "a whole number from 0 to 1000000"],
    ["effort", "huge", "one of none, minimal"],
  ];
  for (const [name, value, rule] of wrong) {
    assertThrows(() => settings.set(name, value), UsageError, `${name} must be ${rule}`);
  }
  assertEquals(settings.options, {});
});

Deno.test("chat settings: values survive saving and loading", () => {
  const settings = new ChatSettings({ temperature: 0.7 });
  settings.set("presence-penalty", "-0.5");
  settings.set("logit-bias", '{"42": -100}');
  settings.set("dry-sequence-breakers", '["\\n"]');
  settings.set("think-tokens", "9");
  const saved = JSON.parse(JSON.stringify(settings.saved()));
  assertEquals(saved, {
    temperature: 0.7,
    presence_penalty: -0.5,
    dry_sequence_breakers: ["\n"],
    logit_bias: { "42": -100 },
    thinking_budget_tokens: 9,
  });
  const loaded = new ChatSettings({});
  assertEquals(loaded.load({ ...saved, top_p: null, model: "x" }), ["model"]);
  assertEquals(loaded.options, settings.options);
  assertThrows(
    () => loaded.load({ temperature: "hot" }),
    UsageError,
    '"settings"."temperature" must be 0 or more',
  );
  assertEquals(loaded.options, settings.options, "a refused file changes nothing");
});
