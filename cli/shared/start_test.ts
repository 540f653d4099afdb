import { assertEquals, assertMatch } from "@std/assert";
import { COMMANDS } from "../commands.ts";
import { calledFrom, obstacle, quoted } from "./start.ts";

const ROOT = "/home/ü r/compy";

const isCommand = (word: string) => Object.hasOwn(COMMANDS, word);

Deno.test("start hints: inside the checkout's folder, a hint names the task", () => {
  const text = "See: deno task chat --help, or deno run -P=serve --allow-write=/x main.ts serve";
  for (const caller of [ROOT, `${ROOT}/docs`]) {
    assertEquals(calledFrom(text, { linked: false, caller, root: ROOT }), text);
  }
});

Deno.test("start hints: outside the checkout's folder, a hint names the quoted path of its configuration", () => {
  const hint = (text: string) => calledFrom(text, { linked: false, caller: `${ROOT}2`, root: ROOT });
  assertEquals(
    hint("deno task chat; deno task -q build"),
    `deno task --config '${ROOT}/deno.json' chat; deno task --config '${ROOT}/deno.json' build`,
  );
  assertEquals(
    hint("deno run -P=serve --allow-write='/a b' main.ts serve"),
    `deno run -P=serve --allow-write='/a b' '${ROOT}/main.ts' serve`,
  );
  assertEquals(hint("deno run main.ts --help"), `deno run '${ROOT}/main.ts' --help`);
});

Deno.test("start hints: after `deno task link`, a hint says compy, except for tasks that are not commands", () => {
  const hint = (text: string) => calledFrom(text, { linked: true, caller: "/", root: ROOT });
  assertEquals(hint("deno task ${name} --help"), "compy ${name} --help");
  assertEquals(hint("deno run main.ts --help"), "compy --help");
  assertEquals(
    hint("deno run -P=pull --allow-write='/a b' main.ts pull …"),
    "compy --allow-write='/a b' pull …",
  );
  assertEquals(hint("Run `deno task build`"), `Run \`deno task --config '${ROOT}/deno.json' build\``);
});

Deno.test("start hints: a word that a shell would change is quoted", () => {
  assertEquals(["a-b/c.d:e", "a b", "it's", "", "ü", "~"].map(quoted), [
    "a-b/c.d:e",
    "'a b'",
    "'it'\\''s'",
    "''",
    "'ü'",
    "'~'",
  ]);
});

Deno.test("start: a command without permissions names the task to run, in one line", () => {
  const without = (...words: string[]) => obstacle(words, { deno: "2.9.6", mayRead: false, isCommand });
  assertMatch(
    without("--log-level", "debug", "chat", "Who's there?")!,
    /^[^\n]*: deno task .*chat --log-level debug 'Who'\\''s there\?'$/,
  );
  assertMatch(without("generate", "two\nlines")!, /^[^\n]*generate …$/);
  assertEquals(
    [without(), without("--help"), without("--version"), without("sevre")],
    Array(4).fill(undefined),
  );
  assertEquals(obstacle(["chat"], { deno: "2.9.6", mayRead: true, isCommand }), undefined);
});

Deno.test("start: an old Deno is named with the oldest supported version", () => {
  const at = (deno: string) => obstacle(["chat"], { deno, mayRead: true, isCommand });
  for (const old of ["1.46.3", "2.4.4", "2.8.3"]) {
    assertMatch(at(old)!, new RegExp(`^compy needs Deno 2\\.9 or newer \\(this is ${old}\\)[^\n]*$`));
  }
  assertEquals(["2.9.0", "2.10.1", "3.0.0"].map(at), [undefined, undefined, undefined]);
});
