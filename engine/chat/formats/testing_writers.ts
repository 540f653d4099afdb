/** Functions that write answers as the models of each family do, for tests. */

export const MINIMAX_MARKS = ["<minimax:tool_call>", "</minimax:tool_call>"];
export const TOOL_MARKS = ["<tool_call>", "</tool_call>"];

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
type Arguments = { [key: string]: Json };

/** The parts of a test answer, before formatting. */
export interface Script {
  readonly reasoning: string;
  readonly content: string;
  readonly calls: readonly { readonly name: string; readonly args: Arguments }[];
}

/** Returns a value as JSON in the format of Python's json.dumps. */
export function dumps(value: Json): string {
  if (Array.isArray(value)) return `[${value.map(dumps).join(", ")}]`;
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  return `{${
    Object.entries(value).map(([key, inner]) => `${JSON.stringify(key)}: ${dumps(inner)}`).join(", ")
  }}`;
}

export const think = (begin: string, end: string) => (reasoning: string) =>
  reasoning && `${begin}${reasoning}${end}`;
export const lines = think("<think>\n", "\n</think>\n\n");

export const jsonList = (calls: Script["calls"]) =>
  `[${calls.map(({ name, args }) => dumps({ name, arguments: args })).join(", ")}]`;

export const hermesWith = (line: string) => ({ reasoning, content, calls }: Script) =>
  lines(reasoning) + content +
  calls.map(({ name, args }) => `\n<tool_call>${line}${dumps({ name, arguments: args })}${line}</tool_call>`)
    .join("").slice(content ? 0 : 1);
export const hermes = hermesWith("\n");

export function xml(tag: string, line: string, thinking: (reasoning: string) => string) {
  const shown = (value: Json) =>
    typeof value === "string" ? value : typeof value === "boolean" ? python(value) : dumps(value);
  const parameter = ([name, value]: [string, Json]) =>
    `<parameter=${name}>${line}${shown(value)}${line}</parameter>\n`;
  return ({ reasoning, content, calls }: Script) => {
    const written = calls.map(({ name, args }) =>
      `<${tag}>\n<function=${name}>\n${Object.entries(args).map(parameter).join("")}</function>\n</${tag}>`
    );
    return [thinking(reasoning) + content, ...written].filter((text) => text !== "").join("\n");
  };
}

export function glm(line: string, thinking: (reasoning: string) => string) {
  const shown = (value: Json) => typeof value === "string" ? value : dumps(value);
  const parameter = ([name, value]: [string, Json]) =>
    `<arg_key>${name}</arg_key>${line}<arg_value>${shown(value)}</arg_value>${line}`;
  return ({ reasoning, content, calls }: Script) => {
    const written = calls.map(({ name, args }) =>
      TOOL_MARKS.join(`${name}${line}${Object.entries(args).map(parameter).join("")}`)
    );
    return thinking(reasoning) + [content, ...written].filter((text) => text !== "").join(line);
  };
}

export function deepseekCalls(
  calls: Script["calls"],
  line: string,
  write: (call: Script["calls"][number]) => string,
) {
  const written = calls.map((call) => `<｜tool▁call▁begin｜>${write(call)}<｜tool▁call▁end｜>`).join(line);
  return written && `<｜tool▁calls▁begin｜>${written}<｜tool▁calls▁end｜>`;
}

export const deepseekBlocks =
  (thinking: (reasoning: string) => string) => ({ reasoning, content, calls }: Script) =>
    thinking(reasoning) + content +
    deepseekCalls(
      calls,
      "\n",
      ({ name, args }) => `function<｜tool▁sep｜>${name}\n\`\`\`json\n${dumps(args)}\n\`\`\``,
    );

export function kimi({ reasoning, content, calls }: Script): string {
  const written = calls.map(({ name, args }, index) =>
    `<|tool_call_begin|>functions.${name}:${index}<|tool_call_argument_begin|>${dumps(args)}<|tool_call_end|>`
  ).join("");
  return think("<think>", "</think>")(reasoning) + content +
    (written && `<|tool_calls_section_begin|>${written}<|tool_calls_section_end|>`);
}

/** Returns a writer of Cohere's answers. `name` is part of the marks around content. */
export const cohere = (name: string) => ({ reasoning, content, calls }: Script) => {
  const list = calls.map(({ name, args }, index) =>
    `\n    ${dumps({ tool_call_id: String(index), tool_name: name, parameters: args })}`
  ).join(",");
  return think("<|START_THINKING|>", "<|END_THINKING|>")(reasoning) +
    (content && `<|START_${name}|>${content}<|END_${name}|>`) +
    (list && `<|START_ACTION|>[${list}\n]<|END_ACTION|>`);
};

export function minimax({ reasoning, content, calls }: Script): string {
  const parameter = ([name, value]: [string, Json]) =>
    `<parameter name="${name}">${typeof value === "string" ? value : dumps(value)}</parameter>\n`;
  const invokes = calls.map(({ name, args }) =>
    `<invoke name="${name}">\n${Object.entries(args).map(parameter).join("")}</invoke>\n`
  );
  const written = invokes.length > 0 ? [MINIMAX_MARKS.join(`\n${invokes.join("")}`)] : [];
  return [lines(reasoning) + content, ...written].filter((text) => text !== "").join("\n");
}

export function dsml({ reasoning, content, calls }: Script): string {
  const parameter = ([name, value]: [string, Json]) =>
    `<｜DSML｜parameter name="${name}" string="${typeof value === "string"}">` +
    `${typeof value === "string" ? value : dumps(value)}</｜DSML｜parameter>\n`;
  const invokes = calls.map(({ name, args }) =>
    `<｜DSML｜invoke name="${name}">\n${Object.entries(args).map(parameter).join("")}</｜DSML｜invoke>\n`
  );
  return think("<think>", "</think>")(reasoning) + content +
    (calls.length > 0 ? `<｜DSML｜function_calls>\n${invokes.join("")}</｜DSML｜function_calls>` : "");
}

/** The token that precedes every tag of MiniMax M3. */
export const M3_TOKEN = "]<]minimax[>[";

function m3Element(name: string, value: Json): string {
  const inner = typeof value === "string"
    ? value
    : Array.isArray(value)
    ? value.map((item) => m3Element("item", item)).join("")
    : typeof value === "object" && value !== null
    ? m3Members(value)
    : dumps(value);
  return `${M3_TOKEN}<${name}>${inner}${M3_TOKEN}</${name}>`;
}

const m3Members = (members: Arguments) =>
  Object.entries(members).map(([name, value]) => m3Element(name, value)).join("");

export function minimaxM3({ reasoning, content, calls }: Script): string {
  const invokes = calls.map(({ name, args }) =>
    `${M3_TOKEN}<invoke name="${name}">${m3Members(args)}${M3_TOKEN}</invoke>\n`
  );
  return think("<mm:think>", "</mm:think>")(reasoning) + content +
    (calls.length > 0 ? `${M3_TOKEN}<tool_call>\n${invokes.join("")}${M3_TOKEN}</tool_call>` : "");
}

function gemmaValue(value: Json): string {
  if (typeof value === "string") return `<|"|>${value}<|"|>`;
  if (Array.isArray(value)) return `[${value.map(gemmaValue).join(",")}]`;
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  return `{${Object.entries(value).map(([key, inner]) => `${key}:${gemmaValue(inner)}`).join(",")}}`;
}

export const gemma = ({ reasoning, content, calls }: Script) =>
  think("<|channel>thought\n", "<channel|>")(reasoning) + content +
  calls.map(({ name, args }) => `<|tool_call>call:${name}${gemmaValue(args)}<tool_call|>`).join("");

const python = (value: Json) => typeof value === "boolean" ? (value ? "True" : "False") : dumps(value);
export const callWith = (shown: (value: Json) => string) => ({ name, args }: Script["calls"][number]) =>
  `${name}(${Object.entries(args).map(([key, value]) => `${key}=${shown(value)}`).join(", ")})`;
export const pythonCall = callWith(python);

export function harmony({ reasoning, content, calls: [call] }: Script): string {
  const message = (channel: string, text: string) =>
    `<|channel|>${channel}<|message|>${text}<|end|><|start|>assistant`;
  const thought = reasoning && message("analysis", reasoning);
  if (!call) return `${thought}<|channel|>final<|message|>${content}`;
  const preamble = content && message("commentary", content);
  const recipient = ` to=functions.${call.name}`;
  const head = call.name.length % 2 === 0
    ? `<|channel|>commentary${recipient}`
    : `${recipient}<|channel|>commentary`;
  return `${thought}${preamble}${head} <|constrain|>json<|message|>${dumps(call.args)}`;
}
