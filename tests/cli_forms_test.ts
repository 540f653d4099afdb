import { assertEquals, assertStringIncludes } from "@std/assert";
import { join } from "@std/path";
import { run, withFolder } from "./commands.ts";

/* `generate` with a form for its answer, on the demo model. */

const schema = {
  type: "object",
  properties: { likes: { enum: ["stories", "rain"] } },
  required: ["likes"],
  additionalProperties: false,
};

Deno.test("cli: generate --schema and --grammar give an answer in its form, from a chat or a text", async () => {
  await withFolder(async (folder) => {
    const [json, gbnf, lark] = ["s.json", "g.gbnf", "g.lark"].map((name) => join(folder, name));
    await Deno.writeTextFile(json, JSON.stringify(schema));
    await Deno.writeTextFile(gbnf, 'root ::= "left" | "right"\n');
    await Deno.writeTextFile(lark, 'start: "up" | "down"\n');
    for (const ask of [["--chat", "What does Pip like?"], ["--prompt", "Pip likes: "]]) {
      const formed = await run(["generate", ...ask, "--schema", json, "--temperature", "0"]);
      assertEquals([formed.code, formed.stderr], [0, ""]);
      assertEquals(["stories", "rain"].includes(JSON.parse(formed.stdout).likes), true);
    }
    for (const [grammar, words] of [[gbnf, ["left\n", "right\n"]], [lark, ["up\n", "down\n"]]] as const) {
      const { code, stdout } = await run([
        "generate",
        "--prompt",
        "Go ",
        "--grammar",
        grammar,
        "--seed",
        "1",
      ]);
      assertEquals([code, words.includes(stdout as never)], [0, true], stdout);
    }
  });
});

Deno.test("cli: generate says what is wrong with a form, and when an answer was cut before it had it: exit code 1", async () => {
  await withFolder(async (folder) => {
    const [good, bad, text] = ["good.json", "bad.json", "text.json"].map((name) => join(folder, name));
    await Deno.writeTextFile(good, JSON.stringify(schema));
    await Deno.writeTextFile(bad, '{"type":"no-such-type"}');
    await Deno.writeTextFile(text, "type: object");
    const cases: [file: string, more: string[], message: string][] = [
      [good, ["-n", "3"], "Cut after 3 tokens: the answer has not its form yet"],
      [bad, [], "no-such-type"],
      [text, [], `Cannot use the schema "${text}": it is not JSON`],
      [join(folder, "none.json"), [], "there is no such file or folder"],
    ];
    for (const [file, more, message] of cases) {
      const { code, stderr } = await run(["generate", "--chat", "Hi", "--schema", file, ...more]);
      assertEquals(code, 1, stderr);
      assertStringIncludes(stderr, message);
    }
  });
});
