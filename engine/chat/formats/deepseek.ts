import { type ChatMessage, MarkedText } from "../../tokenizer/types.ts";
import { argumentsOf, callsWritten, type MadeCall, textOf } from "../history.ts";
import type { Input, Reading } from "../input.ts";
import type { LarkGrammar } from "../lark.ts";
import type { Marks } from "../marks.ts";
import { argumentsForm, type CheckedTool } from "../tools.ts";
import type { CallFormat } from "./format.ts";
import { sectionSyntax } from "./section.ts";

/**
 * DeepSeek V3.1: `<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{…}<｜tool▁call▁end｜><｜tool▁calls▁end｜>`. V2.5, V3
 * and R1 begin with `function<｜tool▁sep｜>f` and the arguments as a JSON code block.
 */
export const deepseek: CallFormat = {
  name: "deepseek",
  recognises: (source) => source.includes(BEGIN.mark),
  syntax(marks, source) {
    const form = source.includes("```json") ? BLOCK : PLAIN;
    const toolsInMessages = !/\btools\b/.test(source);
    return sectionSyntax({
      tags: {
        begin: marks.mark(BEGIN.mark),
        call: marks.mark(CALL.mark),
        separator: marks.mark(SEPARATOR.mark),
        callEnd: marks.mark(CALL_END.mark),
        end: marks.mark(END.mark),
      },
      between: form.between,
      toolsInMessages,
      messages(messages, tools) {
        // The templates of V3 and R1 drop calls beside content, and the end of a single call. V3.1's template keeps
        // thoughts beside content.
        const shown = callsWritten(messages, (calls) => written(calls, form));
        return toolsInMessages && tools.length > 0 ? withTools(shown, tools, form) : shown;
      },
      write: (lark, tool) => toolCall(lark, tool, marks, form),
      readName,
    });
  },
};

const BEGIN = { mark: "<｜tool▁calls▁begin｜>" };
const CALL = { mark: "<｜tool▁call▁begin｜>" };
const SEPARATOR = { mark: "<｜tool▁sep｜>" };
const CALL_END = { mark: "<｜tool▁call▁end｜>" };
const END = { mark: "<｜tool▁calls▁end｜>" };

type Pieces = MarkedText["pieces"];

/** Text around a call's arguments and between calls. */
interface Form {
  head(name: string): Pieces;
  readonly tail: Pieces;
  readonly between: string;
}

const PLAIN: Form = { head: (name) => [CALL, name, SEPARATOR], tail: [CALL_END], between: "" };
const BLOCK: Form = {
  head: (name) => [CALL, "function", SEPARATOR, `${name}\n\`\`\`json\n`],
  tail: ["\n```", CALL_END],
  between: "\n",
};

function written(calls: readonly MadeCall[], { head, tail, between }: Form): Pieces {
  const each = calls.flatMap((call, at) => [
    ...at === 0 ? [] : [between],
    ...head(String(call.function?.name)),
    argumentsOf(call),
    ...tail,
  ]);
  return [BEGIN, ...each, END];
}

/** Describes the tools in the system message, for templates without tools. */
function withTools(
  messages: readonly ChatMessage[],
  tools: readonly CheckedTool[],
  form: Form,
): ChatMessage[] {
  const [first, ...others] = messages;
  const hasSystem = first?.role === "system" || first?.role === "developer";
  const said = hasSystem && textOf(first) !== "" ? [textOf(first), "\n\n"] : [];
  const system = {
    role: "system",
    content: "",
    written: new MarkedText([...said, ...instructions(tools, form)]),
  };
  return [system, ...hasSystem ? others : messages];
}

function instructions(tools: readonly CheckedTool[], { head, tail }: Form): Pieces {
  const shown = tools.map(({ name, description, parameters }) =>
    `### ${name}\n${description ? `Description: ${description}\n\n` : ""}Parameters: ${
      JSON.stringify(parameters)
    }\n\n`
  );
  return [
    `## Tools\nYou can call these tools:\n\n${
      shown.join("")
    }To call one, write its name and its arguments as JSON in exactly ` +
    "this form; several calls stand one behind the other, before the last mark:\n",
    BEGIN,
    ...head("the tool's name"),
    `{"a parameter's name": "its value"}`,
    ...tail,
    END,
  ];
}

function toolCall(
  lark: LarkGrammar,
  tool: CheckedTool,
  marks: Marks,
  { head, tail }: Form,
): string {
  const expression = (pieces: Pieces) =>
    pieces.map((piece) => typeof piece === "string" ? lark.text(piece) : lark.mark(marks.mark(piece.mark)))
      .join(" ");
  return lark.rule(
    `${expression(head(tool.name))} ${lark.part(argumentsForm(tool))} ${expression(tail)}`,
  );
}

/** Reads a call's name in either form. */
function* readName(input: Input, head: string): Reading<string | undefined> {
  yield* input.blank();
  if ((yield* input.peek()) === "{") return head;
  const name = yield* input.characters(/[^\s`{\p{Surrogate}]/u);
  yield* input.blank();
  yield* input.accept(["```json"]);
  yield* input.blank();
  return (yield* input.peek()) === "{" ? name : undefined;
}
