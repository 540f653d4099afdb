import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { loadModel } from "../../lib/model.ts";
import { ChatSession, type Screen } from "./chat_session.ts";
import { type Input, PipedLines } from "./chat_input.ts";

/**
 * Runs a conversation with the demo model. Returns the displayed text and whether every message was answered.
 */
async function talk(lines: readonly (string | Input["type"])[]) {
  await using model = await loadModel(undefined, { threads: 1, ctx: 128, parallel: 1 });
  const screen = new Shown();
  const session = new ChatSession(model, { temperature: 0, asides: true }, screen);
  const given = lines.map((line): Input =>
    line === "interrupt" || line === "end" ? { type: line } : { type: "text", text: line }
  );
  const read = () => Promise.resolve(given.shift() ?? { type: "end" as const });
  const good = await session.run({ read });
  const [shown, asides, problems] = [screen.texts, screen.asides, screen.problems].map((all) => all.join(""));
  return { good, shown, asides, problems, left: given.length };
}

class Shown implements Screen {
  readonly texts: string[] = [];
  readonly asides: string[] = [];
  readonly problems: string[] = [];

  text(text: string): void {
    this.texts.push(text);
  }

  aside(text: string): void {
    this.asides.push(text);
  }

  problem(text: string): void {
    this.problems.push(text);
  }

  reading(): void {}
}

const WHO = "My name is compy. I am a very small language model.\n";

Deno.test("chat session: answers a message and sends earlier messages with the next one", async () => {
  const { good, shown, asides } = await talk(["Who are you?", "/show", "/undo", "/undo", "/show"]);
  assert(good);
  assertMatch(shown, new RegExp(`^${WHO}demo, (?!0)\\d+ of 128 tokens used\n`));
  assertMatch(
    asides,
    /^\[\d+ tokens, [\d.]+ a second\]\nThe last exchange is removed\nThere is nothing to undo\n$/,
  );
});

Deno.test("chat session: joins the lines between two fences into one message", async () => {
  const { shown } = await talk(['"""Who', 'are you?"""', '"""Who are you?"""', '"""', "cut"]);
  assertEquals(shown, await talk(["Who\nare you?", "Who are you?"]).then(({ shown }) => shown));
});

Deno.test("chat session: regenerates an answer with the options set since", async () => {
  const { shown, problems } = await talk([
    "Who are you?",
    "/set n 2",
    "/retry",
    "/set n default",
    "/retry",
    "/clear",
    "/retry",
  ]);
  assertEquals(shown, `${WHO}My name\n${WHO}`);
  assertEquals(problems, "Error: There is no message to answer again\n");
});

Deno.test("chat session: reports an error and continues the conversation", async () => {
  const wrong = [
    "/nonsense",
    "/retry now",
    "/set color 3",
    "/set constructor 3",
    "/set seed red",
    "x ".repeat(200),
    "/set temperature -1",
    "/unset color",
    "/save",
    "/load /no/such/file",
  ];
  const { good, problems, shown } = await talk([...wrong, "Who are you?"]);
  assert(!good);
  assertEquals(shown, WHO);
  for (
    const part of [
      "There is no command /nonsense; /help lists them. To send this as a message, put a space before it",
      '/retry takes no argument (got "now")',
      'There is no setting "color"; there are temperature, top-p, ',
      'There is no setting "constructor"',
      'seed must be a whole number up to 2^53 - 1 (got "red")',
      "/clear starts a new conversation",
      'temperature must be 0 or more (got "-1")',
      "/save needs a file",
      'Cannot read "/no/such/file": there is no such file or folder',
    ]
  ) assertStringIncludes(problems, part);
});

Deno.test("chat session: keeps the text of an interrupted answer and continues the conversation", async () => {
  await using model = await loadModel(undefined, { threads: 1 });
  const screen = new Shown();
  screen.text = (text) => {
    if (screen.texts.push(text) === 3) session.interrupt();
  };
  const session = new ChatSession(model, { temperature: 0, asides: true }, screen);
  await session.run(
    new PipedLines(
      ReadableStream.from(["Tell me a st", "ory.\r\nWho are you?"]).pipeThrough(new TextEncoderStream()),
    ),
  );
  assertMatch(screen.asides[0], /; interrupted\]\n$/);
  assert(screen.texts.join("").endsWith(WHO), screen.texts.join(""));
});

Deno.test("chat session: ends on Ctrl-C twice, the end of input and /bye", async () => {
  for (const last of ["end", "/bye"] as const) assertEquals((await talk([last, "more"])).left, 1);
  assertEquals((await talk(["interrupt", "interrupt", "more"])).left, 1);
  assertEquals((await talk(["interrupt", "Who are you?", "interrupt", "/bye"])).shown, WHO);
});

Deno.test("chat session: answers one message whatever its first character, and reports a refused message", async () => {
  await using model = await loadModel(undefined, { threads: 1, ctx: 64, parallel: 1 });
  const screen = new Shown();
  const session = new ChatSession(model, { temperature: 0, asides: false }, screen);
  assertEquals(await session.ask("/help\nWho are you?"), true);
  assert(screen.texts.join("").length > 1, "there is no answer");
  assertEquals(screen.texts.join("").includes("/clear"), false);
  assertEquals(await session.ask("word ".repeat(80)), false);
  assertMatch(screen.problems.join(""), /^Error: /);
});

Deno.test("chat session: leave() does not wait for a pipe that nobody writes to", async () => {
  const { promise: written, resolve: write } = Promise.withResolvers<void>();
  const lines = new PipedLines(
    new ReadableStream({
      async pull(controller) {
        await written;
        controller.close();
      },
    }),
  );
  const read = lines.read();
  lines.close();
  assertEquals([await read, await lines.read()], [{ type: "end" }, { type: "end" }]);
  write();
});

Deno.test("chat session: sends a message that begins with a slash if a space precedes the slash", async () => {
  const { shown, problems } = await talk([" /help", "/show"]);
  assertEquals([problems, shown.includes("/clear")], ["", false]);
  assertMatch(shown, /\n {2}system: none\n$/);
});

Deno.test("chat session: /set and /unset change, explain and list settings", async () => {
  const { shown, asides, problems } = await talk([
    "/set top_p 0.5",
    "/set top-p",
    "/set seed 7",
    "/unset seed",
    "/set",
    "/show",
  ]);
  assertEquals([asides, problems], ["top-p: 0.5\nseed: 7\nseed: random (default)\n", ""]);
  const [explained, all, short] = shown.split("  temperature: 0\n");
  assertEquals(short, "  top-p: 0.5\n  system: none\n");
  assertStringIncludes(explained, "top-p: 0.5\n  keeps the fewest");
  assertStringIncludes(explained, "It must be from 0 to 1; without /set and options: 1\n");
  assertStringIncludes(all, "\n  repetition-penalty: 1 (default)\n");
  assertStringIncludes(all, "demo, 0 of 128 tokens used\n");
});

Deno.test("chat session: /load continues the conversation that /save stored, with its settings", async () => {
  const folder = await Deno.makeTempDir();
  const file = `${folder}/talk.json`;
  try {
    const first = await talk([
      "/system Be short.",
      "/set n 3",
      "Who are you?",
      `/save ${file}`,
      `/save ${file}`,
    ]);
    assertEquals(first.problems, "");
    assertStringIncludes(first.asides, `2 messages are saved in "${file}"\n`);
    const saved = JSON.parse(await Deno.readTextFile(file));
    assertEquals(saved.version, 1);
    assertEquals(saved.messages.map(({ role }: { role: string }) => role), ["system", "user", "assistant"]);
    assertEquals(saved.settings, { temperature: 0, max_tokens: 3 });
    assertEquals((await Deno.stat(file)).mode! & 0o777, 0o600);
    const second = await talk([`/load ${file}`, "/retry", "/show"]);
    assertEquals(second.problems, "");
    assertStringIncludes(second.asides, `2 messages are loaded from "${file}"\n`);
    assert(second.shown.startsWith(first.shown), second.shown);
    assertStringIncludes(second.shown, "  n: 3\n  system: Be short.\n");
    assertStringIncludes((await talk(["Who are you?", `/save ${file}`])).problems, "Cannot save to");
    await Deno.writeTextFile(file, JSON.stringify({ messages: [], settings: { "\x1bc\nError: x": 1 } }));
    const { asides } = await talk([`/load ${file}`]);
    assertStringIncludes(asides, "Settings that chat does not have: \\u001bc\\nError: x\n");
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("chat session: a second Ctrl-C, while an answer stops or after the answer, ends the session", async () => {
  await using model = await loadModel(undefined, { threads: 1 });
  const screen = new Shown();
  screen.text = (text) => {
    if (screen.texts.push(text) === 3) session.interrupt();
  };
  const session = new ChatSession(model, { temperature: 0, asides: true }, screen);
  const given: Input[] = [{ type: "text", text: "Tell me a story." }, { type: "interrupt" }];
  await session.run({ read: () => Promise.resolve(given.shift() ?? { type: "text", text: "/show" }) });
  assertEquals([given.length, screen.texts.join("").includes("system:")], [0, false]);
});
