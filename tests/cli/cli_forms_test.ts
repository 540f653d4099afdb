import { assertEquals, assertStringIncludes } from "@std/assert";
import { join } from "@std/path";
import { run, withFolder } from "../../testing/commands.ts";
import { fullTier } from "../../testing/tier.ts";

/* `generate` with constraints and tools, on the demo model. */

const schema = {
  type: "object",
  properties: { likes: { enum: ["stories", "rain"] } },
  required: ["likes"],
  additionalProperties: false,
};

Deno.test("cli: generate --schema and --grammar give a matching answer for a chat or a text", async () => {
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

fullTier.test("cli: generate exits with 1 and a reason for a bad constraint or a truncated answer", async () => {
  await withFolder(async (folder) => {
    const [good, bad, text] = ["good.json", "bad.json", "text.json"].map((name) => join(folder, name));
    await Deno.writeTextFile(good, JSON.stringify(schema));
    await Deno.writeTextFile(bad, '{"type":"no-such-type"}');
    await Deno.writeTextFile(text, "type: object");
    const cases: [file: string, more: string[], message: string][] = [
      [good, ["-n", "3"], "Truncated after 3 tokens: the constrained answer is incomplete"],
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

fullTier.test("cli: generate --prefill continues a text like the server, also with tools, but refuses constraints", async () => {
  await withFolder(async (folder) => {
    const [form, tools] = ["s.json", "t.json"].map((name) => join(folder, name));
    await Deno.writeTextFile(form, JSON.stringify(schema));
    await Deno.writeTextFile(tools, JSON.stringify([{ name: "like", parameters: schema }]));
    const ask = (...more: string[]) =>
      run(["generate", "--chat", "Who are you?", "--temperature", "0", ...more]);
    const whole = (await ask()).stdout.trimEnd();
    const begun = whole.slice(0, whole.indexOf(" ", whole.length / 2));
    const rest = await ask("--prefill", begun);
    assertEquals([rest.code, begun + rest.stdout.trimEnd()], [0, whole]);
    const report = JSON.parse((await ask("--prefill", begun, "--json", "--thinking")).stdout);
    assertEquals(report.text, whole.slice(begun.length));
    for (const choice of ["auto", "none"]) {
      const free = await ask("--prefill", begun, "--tools", tools, "--tool-choice", choice);
      assertEquals([free.code, free.stderr], [0, ""]);
      assertEquals(free.stdout.includes('"name"'), false);
    }
    const wrong: [more: string[], message: string][] = [
      [["--schema", form], "--schema cannot be enforced if the answer continues a text"],
      [["--grammar", form], "--grammar cannot be enforced"],
      [["--tools", tools, "--tool-choice", "required"], "--tool-choice required cannot be enforced"],
      [["--tools", tools, "--tool-choice", "like"], "--tool-choice like cannot be enforced"],
    ];
    for (const [more, message] of wrong) {
      const { code, stderr } = await ask("--prefill", begun, ...more);
      assertEquals(code, 2, stderr);
      assertStringIncludes(stderr, message);
    }
    const unasked = await run(["generate", "--prompt", "Hi", "--prefill", "x"]);
    assertStringIncludes(unasked.stderr, "--prefill is for messages");
  });
});

fullTier.test("cli: generate --tools prints calls that match their schemas, or the error of the tools", async () => {
  await withFolder(async (folder) => {
    const [tools, bare, twice, text] = ["t.json", "bare.json", "twice.json", "text.json"]
      .map((name) => join(folder, name));
    const like = { name: "like", description: "What is liked", parameters: schema };
    await Deno.writeTextFile(tools, JSON.stringify([{ type: "function", function: like }]));
    await Deno.writeTextFile(bare, JSON.stringify([like, { name: "now" }]));
    await Deno.writeTextFile(twice, JSON.stringify([like, like]));
    await Deno.writeTextFile(text, "like");
    const ask = (file: string, ...more: string[]) =>
      run(["generate", "--chat", "What does Pip like?", "--temperature", "0", "--tools", file, ...more]);
    for (const [file, choice] of [[tools, "like"], [bare, "like"]]) {
      const { code, stdout, stderr } = await ask(file, "--tool-choice", choice);
      assertEquals([code, stderr], [0, ""]);
      const { name, arguments: args } = JSON.parse(stdout);
      assertEquals([name, ["stories", "rain"].includes(args.likes)], ["like", true]);
    }
    const whole = await ask(bare, "--tool-choice", "now", "--json");
    assertEquals(JSON.parse(whole.stdout).calls, [{ name: "now", arguments: "{}" }]);
    const free = await ask(bare, "--tool-choice", "none");
    assertEquals([free.code, free.stdout.includes('"name"')], [0, false]);

    const problems: [file: string, more: string[], code: number, message: string][] = [
      [bare, ["--tool-choice", "like", "-n", "12"], 1, "the constrained answer is incomplete"],
      [bare, ["--tool-choice", "dislike"], 2, "one of the tools like, now"],
      [twice, [], 1, "must differ from the name"],
      [text, [], 1, "is not JSON"],
      [join(folder, "none.json"), [], 1, "there is no such file or folder"],
    ];
    for (const [file, more, code, message] of problems) {
      const failed = await ask(file, ...more);
      assertEquals(failed.code, code, failed.stderr);
      assertStringIncludes(failed.stderr, message);
    }
    const unasked = await run(["generate", "--prompt", "Hi", "--tools", tools]);
    assertStringIncludes(unasked.stderr, "--tools is for messages");
  });
});
