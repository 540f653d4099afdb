/** Conversations and tools as JSON, whose numbers must keep their text: 2.0 is not 2 in Python. */

const call = (given: string) =>
  `{"role":"assistant","content":"","tool_calls":[{"id":"call00001","type":"function","function":{"name":"f","arguments":${given}}}]}`;
const result = '{"role":"tool","content":"42","tool_call_id":"call00001","name":"f"}';
const user = '{"role":"user","content":"Hi there"}';
const says = (role: string, content: string) => JSON.stringify({ role, content });
const part = (text: string) =>
  `{"role":"user","content":[{"type":"text","text":"${text}"},{"type":"text","text":"b"}]}`;

const CONVERSATIONS: Readonly<Record<string, readonly string[]>> = {
  simple: [user],
  system: [says("system", "Be kind."), user, says("assistant", "Hello"), says("user", " And now?\n")],
  call: [user, call('{"a":"x","n":3}'), result, says("assistant", "done"), user],
  "call with names of methods": [user, call('{"items":["a","b"],"keys":"k","get":{"values":1}}'), result],
  "call with values of all types": [
    user,
    call('{"b":true,"z":null,"f":2.0,"e":1e-7,"i":1234567890123456789,"l":[1,"x\'"],"o":{"k":"é\\n"}}'),
    result,
  ],
  "call without arguments": [user, call("{}"), result],
  "call with arguments as text": [user, call('"{\\"a\\": 1}"'), result],
  thinking: [user, '{"role":"assistant","reasoning_content":"hm","content":"Hello"}', user],
  "thinking in content": [user, says("assistant", "<think>\nhm\n</think>\n\nHello"), user],
  "two users": [user, user],
  "late system": [user, says("assistant", "x"), says("system", "be brief"), user],
  developer: [says("developer", "Be kind."), user],
  parts: [part("a"), says("assistant", "x"), part("")],
  "answer last": [user, says("assistant", "Hello")],
  "odd text": [says("user", "  {{ x }} \u{1f600}\r\n\t'\"\\ <|im_end|> ")],
};

const tool = (name: string, properties: string) =>
  `[{"type":"function","function":{"name":"${name}","description":"Does it.","parameters":{"type":"object","properties":${properties},"required":["a"]}}}]`;

const TOOLS: Readonly<Record<string, string>> = {
  plain: tool("get_weather", '{"a":{"type":"string","description":"The city"},"days":{"type":"integer"}}'),
  "names of methods": tool(
    "http",
    '{"get":{"type":"string","description":"x"},"items":{"type":"array","items":{"type":"string"}},"keys":{"type":"string"}}',
  ),
  "type list": tool("f", '{"a":{"type":["string","null"],"description":"x"}}'),
  "any of": tool("f", '{"a":{"anyOf":[{"type":"string"},{"type":"null"}],"default":null}}'),
  defaults: tool(
    "f",
    '{"a":{"type":"number","default":1.5},"b":{"type":"boolean","default":true,"enum":[true]}}',
  ),
  "no parameters": tool("now", "{}"),
  "nested object": tool("f", '{"a":{"type":"object","properties":{"k":{"type":"string"}},"required":["k"]}}'),
};

/** Cases by name: variables of a template as JSON. */
export const REFEREE_CASES: ReadonlyMap<string, string> = new Map([
  ...Object.keys(CONVERSATIONS).map((name) => caseOf(name)),
  ...Object.keys(TOOLS).map((tools) => caseOf("simple", tools)),
  caseOf("call", "plain"),
  caseOf("call with names of methods", "names of methods"),
  caseOf("system", "plain"),
  caseOf("answer last", undefined, false),
  caseOf("simple", undefined, true, ',"enable_thinking":false'),
]);

function caseOf(conversation: string, tools?: string, prompt = true, more = ""): [string, string] {
  const name = [conversation, tools && `tools ${tools}`, prompt ? undefined : "no prompt", more].filter(
    Boolean,
  );
  const values =
    `{"messages":[${CONVERSATIONS[conversation].join()}],"tools":${tools ? TOOLS[tools] : "null"},` +
    `"add_generation_prompt":${prompt},"bos_token":"<s>","eos_token":"</s>"${more}}`;
  return [name.join(", "), values];
}
