import { assert, assertEquals } from "@std/assert";
import { tryJson } from "../types.ts";
import { readEveryBeginning, readEveryWay, USER } from "../testing.ts";
import { FORMAT_CASES, scripts, TOOLS } from "./testing.ts";
import { checkAnswers, checkHistory } from "./testing_answers.ts";

for (const [index, { title, format, model, write, published, ...form }] of FORMAT_CASES.entries()) {
  Deno.test(`${title}: answers are read the same in every cut, and nothing of a mark is left`, () => {
    const made = model();
    assertEquals(made.form.toolFormat, format);
    checkAnswers(made, { write, ...form }, index + 1, 50);
  });

  if (published) {
    Deno.test(`${title}: calls of earlier turns are written as the model writes them`, () => {
      checkHistory(model(), { write, ...form }, index + 200, 50);
    });
  }

  Deno.test(`${title}: an answer that is cut off anywhere is read as far as it goes`, () => {
    const made = model();
    const plan = made.form.plan({ messages: USER, tools: TOOLS });
    const script = scripts(7 * index + 1, 40, form).find(({ calls, reasoning }) =>
      calls.length > 0 && (reasoning !== "" || !form.thinks)
    )!;
    const text = write(script);
    const whole = readEveryWay(made, plan, text);
    for (const { reasoning, content, calls } of readEveryBeginning(made, plan, text)) {
      if (made.form.markers.size > 0) {
        assert(script.reasoning.startsWith(reasoning.trimEnd()), `${reasoning} of ${text}`);
        assert(script.content.startsWith(content.trimEnd()), `${content} of ${text}`);
      }
      for (const [i, { name, arguments: args }] of calls.entries()) {
        assertEquals(name, whole.calls[i].name);
        // What is cut does not look whole.
        const parsed = tryJson(args);
        if (parsed !== undefined) assertEquals(parsed, JSON.parse(whole.calls[i].arguments), text);
      }
    }
  });

  Deno.test(`${title}: an answer that had to be a call and is cut off says nothing beside it`, () => {
    const made = model();
    const plan = made.form.plan({ messages: USER, tools: TOOLS, toolChoice: "required" });
    const calls = scripts(7 * index + 1, 40, form).find(({ calls }) => calls.length > 0)!.calls.slice(0, 1);
    const text = write({ reasoning: "", content: "", calls });
    for (const { content } of readEveryBeginning(made, plan, text)) assertEquals(content, "", text);
  });
}
