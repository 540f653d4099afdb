import { assert, assertEquals } from "@std/assert";
import { tryJson } from "../types.ts";
import { readEveryBeginning, readEveryWay, USER } from "../testing.ts";
import { everyNth } from "../../../testing/tier.ts";
import { FORMAT_CASES, scripts, TOOLS } from "./testing.ts";
import { checkAnswers, checkHistory } from "./testing_answers.ts";

for (
  const [index, { title, format, model, write, published, ...form }] of everyNth(6, [
    ...FORMAT_CASES.entries(),
  ])
) {
  Deno.test(`${title}: reads answers the same in every split, and leaves no mark in the text`, () => {
    const made = model();
    assertEquals(made.form.toolFormat, format);
    checkAnswers(made, { write, ...form }, index + 1, 50);
  });

  if (published) {
    Deno.test(`${title}: writes calls of earlier turns as the model does`, () => {
      checkHistory(model(), { write, ...form }, index + 200, 50);
    });
  }

  Deno.test(`${title}: reads an answer that is cut off anywhere`, () => {
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
        // A tag of this format begins with "<" before its token, so the content may end with "<".
        const shown = format === "dsml" ? content.replace(/<$/, "") : content;
        assert(script.content.startsWith(shown.trimEnd()), `${content} of ${text}`);
      }
      for (const [i, { name, arguments: args }] of calls.entries()) {
        assertEquals(name, whole.calls[i].name);
        // Truncated arguments must not look complete.
        const parsed = tryJson(args);
        if (parsed !== undefined) assertEquals(parsed, JSON.parse(whole.calls[i].arguments), text);
      }
    }
  });

  Deno.test(`${title}: a truncated answer that had to be a call has no content`, () => {
    const made = model();
    const plan = made.form.plan({ messages: USER, tools: TOOLS, toolChoice: "required" });
    const calls = scripts(7 * index + 1, 40, form).find(({ calls }) => calls.length > 0)!.calls.slice(0, 1);
    const text = write({ reasoning: "", content: "", calls });
    for (const { content } of readEveryBeginning(made, plan, text)) assertEquals(content, "", text);
  });
}
