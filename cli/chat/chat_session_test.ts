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
  assertMatch(asides, /^\[\d+ tokens, [\d.]+ a second\]\nTaken back\nThere is nothing to take back\n$/);
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
    "/set n",
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
    "a",
  ];
  const { good, problems, shown } = await talk([...wrong, "/set temperature 0", "Who are you?"]);
  assert(!good);
  assertEquals(shown, WHO);
  for (
    const part of [
      "There is no command /nonsense; /help lists them",
      '/retry takes nothing behind it (got "now")',
      '/set knows temperature, seed, top-p, n, effort (got "color")',
      'effort (got "constructor")',
      'must be a number (got "red")',
      "/clear begins anew",
      "temperature",
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

Deno.test("chat session: answers one message whatever its first character, and reports a refused one", async () => {
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
