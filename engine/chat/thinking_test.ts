import { assert, assertEquals } from "@std/assert";
import { createGrammars } from "../grammar/grammars.ts";
import type { Constraint, Grammars } from "../grammar/types.ts";
import { readEveryWay, type TestModel, testModel, USER, WEATHER } from "./testing.ts";
import type { ChatRequest } from "./types.ts";

/**
 * Constrained content after thinking: thinking is free, may end at any time, and the constraint holds after
 * it.
 */

const STYLES = [
  ["<think>\n", "\n</think>\n\n"],
  ["<thought>\n", "\n</thought>\n\n"],
  ["[THINK]", "[/THINK]"],
  ["<seed:think>", "</seed:think>"],
  ["<|START_THINKING|>", "<|END_THINKING|>"],
  ["<|channel>thought\n", "<channel|>"],
] as const;

const OK: Constraint = {
  kind: "json_schema",
  schema: {
    type: "object",
    properties: { ok: { type: "boolean" } },
    required: ["ok"],
    additionalProperties: false,
  },
};

function styled(
  [begin, end]: typeof STYLES[number],
  { open, asTokens }: { open: boolean; asTokens: boolean },
) {
  const marks = [begin, end].map((text) => text.trim().replace(/thought$/, ""));
  const template = `{{ messages[0].content }}[assistant]${open ? begin : ""}{# ${begin} ${end} #}`;
  return testModel({ template, control: asTokens ? marks : [] });
}

/** Measures the length of a text that a model's grammars accept. */
class Judge implements Disposable {
  readonly #grammars: Grammars;

  constructor(readonly model: TestModel) {
    this.#grammars = createGrammars(model.tokenizer, model.form.markers);
  }

  /** Returns "whole", "unfinished", or the text accepted before the grammar refused. */
  async taken(request: Partial<ChatRequest>, text: string): Promise<string> {
    const { form, tokenizer } = this.model;
    const { constraint } = form.plan({ messages: USER, ...request });
    const matcher = (await this.#grammars.compile(constraint!)).matcher();
    try {
      const tokens = tokenizer.encode(text, { parseSpecial: true });
      const refused = tokens.findIndex((token) => !matcher.consume(token));
      if (refused >= 0) return tokenizer.decode(tokens.slice(0, refused), { special: true });
      return matcher.mayEnd || matcher.complete ? "whole" : "unfinished";
    } finally {
      matcher.close();
    }
  }

  [Symbol.dispose](): void {
    this.#grammars.close();
  }
}

for (const style of STYLES) {
  const [begin, end] = style;
  Deno.test(`${begin.trim()}: constrains the content, not the thinking before it`, async () => {
    for (const asTokens of [true, false]) {
      using free = new Judge(styled(style, { open: false, asTokens }));
      using open = new Judge(styled(style, { open: true, asTokens }));
      for (const request of [{ constraint: OK }, { constraint: OK, tools: [WEATHER] }]) {
        for (const thought of ["", 'so {"ok": 1} or <b', "日本 🙂\n\n"]) {
          for (const [judge, before] of [[free, begin], [open, ""]] as const) {
            const thinking = `${before}${thought}${end}`;
            assertEquals(await judge.taken(request, `${thinking}{"ok": true}`), "whole", thinking);
            assertEquals(await judge.taken(request, `${before}${thought}`), "unfinished");
            assertEquals(await judge.taken(request, `${thinking}{"ok": 1}`), `${thinking}{"ok": `);
            assertEquals(await judge.taken(request, `${thinking}Yes`), thinking);
          }
        }
        assertEquals(await free.taken(request, '{"ok": true}'), "whole");
      }
    }
  });

  Deno.test(`${begin.trim()}: calls may follow the thinking, and nothing else may if a call is required`, async () => {
    for (const asTokens of [true, false]) {
      using judge = new Judge(styled(style, { open: true, asTokens }));
      const call = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Bonn"}}\n</tool_call>';
      const auto = { tools: [WEATHER] };
      const required = { tools: [WEATHER], toolChoice: "required" } as const;
      assertEquals(await judge.taken(auto, `hm${end}I look. ${call}`), "whole");
      assertEquals(await judge.taken(auto, `hm${end}I know.`), "whole");
      assertEquals(await judge.taken(auto, "hm"), "unfinished");
      assertEquals(await judge.taken(required, `hm${end}${call}`), "whole");
      assert((await judge.taken(required, `hm${end}I know.`)).endsWith(end));
    }
  });
}

Deno.test("thinking: the grammar accepts no thinking when it is disabled", async () => {
  for (const style of STYLES) {
    using judge = new Judge(styled(style, { open: false, asTokens: true }));
    assertEquals(await judge.taken({ constraint: OK, effort: false }, `${style[0]}hm`), "");
  }
});

Deno.test("thinking: content that is not JSON follows the thinking at once and keeps its blanks", async () => {
  const model = styled(["[THINK]", "[/THINK]"], { open: true, asTokens: true });
  using judge = new Judge(model);
  const constraint = { kind: "regex", pattern: " +[a-z]" } as const;
  assertEquals(await judge.taken({ constraint }, "hm[/THINK]  a"), "whole");
  const reader = model.form.plan({ messages: USER, constraint }).reader();
  const [end] = model.tokenizer.encode("[/THINK]", { parseSpecial: true });
  const parts = [...reader.text("hm"), ...reader.marker(end), ...reader.text("  a"), ...reader.end()];
  assertEquals(parts, [{ type: "reasoning", text: "hm" }, { type: "content", text: "  a" }]);
});

Deno.test("thinking: removes the template's marks around content, but only after a thought", () => {
  const model = testModel({ template: "{# between <think></think> and <response></response> #}" });
  for (const tools of [[], [WEATHER]]) {
    const plan = model.form.plan({ messages: USER, tools });
    const read = readEveryWay(model, plan, "<think>so\n</think>\n\n<response>a <b>c</response>");
    assertEquals(read, { reasoning: "so", content: "a <b>c", calls: [] });
    const plain = "<response>a</response>";
    assertEquals(readEveryWay(model, plan, plain).content, plain);
  }
});

Deno.test("cohere: the content is between markers, with and without tools or a constraint", async () => {
  const marks = ["THINKING", "RESPONSE", "ACTION"].flatMap((
    name,
  ) => [`<|START_${name}|>`, `<|END_${name}|>`]);
  const [think, thought, begin, end] = marks;
  for (const closed of ["", think + thought]) {
    const model = testModel({
      template: `{{ messages[0].content }}[assistant]${closed}{# ${marks.join(" ")} #}`,
      userDefined: marks,
    });
    using judge = new Judge(model);
    for (const tools of [[], [WEATHER]]) {
      const read = (text: string, constraint?: Constraint) =>
        readEveryWay(model, model.form.plan({ messages: USER, tools, constraint }), text);
      for (const thinking of closed === "" ? ["", `${think}hm${thought}`] : [""]) {
        const reasoning = thinking && "hm";
        for (const [before, after] of [[begin, end], [begin, ""], ["", ""]]) {
          const expected = (content: string) => ({ reasoning, content, calls: [] });
          assertEquals(read(`${thinking}${before}Yes.${after}`), expected("Yes."));
          const formed = `${thinking}${before}{"ok": true}${after}`;
          assertEquals(read(formed, OK), expected('{"ok": true}'));
          assertEquals(await judge.taken({ tools, constraint: OK }, formed), "whole", formed);
          if (tools.length > 0) {
            assertEquals(await judge.taken({ tools }, `${thinking}${before}Yes.${after}`), "whole");
          }
        }
      }
    }
  }
});
