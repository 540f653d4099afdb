import { assert, assertEquals } from "@std/assert";
import {
  badSampling,
  hostileBodies,
  json,
  many,
  notBooleans,
  notInt,
  notNumbers,
  notTexts,
  refused,
  refuseFields,
  send,
  stillServes,
} from "../testing_bad.ts";
import { withServer } from "../testing_server.ts";

/* Invalid requests to Ollama's endpoints. */

const CHAT = "/api/chat";
const GENERATE = "/api/generate";
const EMBED = "/api/embed";
const EMBEDDINGS = "/api/embeddings";
const SHOW = "/api/show";

const required: Record<string, Record<string, string>> = {
  [CHAT]: {},
  [GENERATE]: {},
  [EMBED]: { input: '"a"' },
  [EMBEDDINGS]: {},
  [SHOW]: {},
};

const { repetition_penalty, stream: _, ...sampling } = badSampling;
const badOptions: Record<string, string[]> = {
  ...sampling,
  logit_bias: sampling.logit_bias.filter((value) => !/"(259|9{9})"/.test(value)), // seen by a model only
  repeat_penalty: repetition_penalty,
  num_predict: notInt(-2, 2 ** 31 - 1),
  num_ctx: ["0", ...notInt(1, 2 ** 31 - 1)],
  repeat_last_n: notInt(-1, 2 ** 31 - 1),
  stop: ["1", "{}", '""', "[1]", '[""]', many(1025, '"a"'), `"${"s".repeat(1025)}"`],
  tfs_z: ["0.5"],
};
const options = [
  ...["1", '"a"', "[]", "true"],
  ...Object.entries(badOptions).flatMap(([name, values]) => values.map((value) => json({ [name]: value }))),
  '{"repeat_penalty":1.2,"repeat_last_n":64}',
  '{"presence_penalty":0.5,"repeat_last_n":64}',
];

const ofAll = {
  model: ["1", "[]", "{}", '""', `"${"m".repeat(257)}"`],
  keep_alive: [
    '"5 min"',
    "true",
    "[]",
    "{}",
    '""',
    '"soon"',
    '"5 m"',
    '"1d"',
    `"${"1h".repeat(9)}"`,
  ],
};
const ofAnswers = {
  ...ofAll,
  format: ["1", "[]", '"xml"', '{"maximum":1e999}'],
  think: ["1", "{}", "[]", '"loud"', '""'],
  options,
  stream: notBooleans,
  logprobs: notBooleans,
  top_logprobs: [...notInt(0, 20), "1"],
  template: ['"{{ .Prompt }}"', "1", "{}"],
  truncate: ["true", "1"],
  shift: ["true", "1"],
};

const call = (call: string) => `[{"role":"assistant","tool_calls":[${call}]}]`;

const chat: Record<string, string[]> = {
  ...ofAnswers,
  messages: [
    ...[
      "1",
      '"Hi"',
      "{}",
      "[1]",
      "[null]",
      "[{}]",
      '[{"content":"a"}]',
      '[{"role":"developer","content":"a"}]',
    ],
    ...['[{"role":"user","content":1}]', '[{"role":"user","content":[{"type":"text","text":"a"}]}]'],
    ...[
      '[{"role":"user","content":"a","images":["aGk="]}]',
      '[{"role":"user","content":"a","images":"aGk="}]',
    ],
    ...['[{"role":"assistant","thinking":1}]', '[{"role":"tool","content":"a","tool_name":1}]'],
    ...[call("1"), call("{}"), call('{"function":{}}'), call('{"function":{"name":""}}')],
    ...[call('{"function":{"name":"f","arguments":1}}'), call('{"function":{"name":"f","arguments":[]}}')],
    call('{"function":{"name":"f","arguments":{"n":1e999}}}'),
    many(10_001, '{"role":"user","content":"Hi"}'),
  ],
  tools: [
    ...["1", "{}", "[1]", "[{}]", '[{"type":"function"}]', '[{"type":"function","function":{}}]'],
    '[{"type":"function","function":{"name":"a b"}}]',
    '[{"type":"function","function":{"name":"f","parameters":[]}}]',
    '[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"f"}}]',
    many(129, '{"type":"function","function":{"name":"f"}}'),
  ],
};

const generate: Record<string, string[]> = {
  ...ofAnswers,
  prompt: notTexts,
  suffix: notTexts,
  system: notTexts,
  raw: notBooleans,
  context: ["[1,2]", "1", "{}"],
  images: ['["aGk="]', '"aGk="', "{}"],
};

const embed: Record<string, string[]> = {
  ...ofAll,
  input: ["1", "{}", "true", "[1]", '["a",1]', '[["a"]]', many(2049, '"a"')],
  truncate: notBooleans,
  dimensions: [...notNumbers, "1.5", "-1", "9", "1e300"],
  options: options.slice(0, 20),
};

Deno.test("bad requests: a wrong value in any field of Ollama's endpoints is refused, and the error names the field", async () => {
  await withServer({}, async (server) => {
    const fields = {
      [CHAT]: chat,
      [GENERATE]: generate,
      [EMBED]: embed,
      [EMBEDDINGS]: { ...ofAll, prompt: notTexts, options: options.slice(0, 20) },
      [SHOW]: { model: ofAll.model, name: ofAll.model, verbose: notBooleans },
    };
    assert(await refuseFields(server, required, fields) > 500);
  });
});

Deno.test("bad requests: fields of Ollama's endpoints that contradict each other are refused, and the error names one of the fields", async () => {
  const cases: [path: string, body: Record<string, unknown>, param: string][] = [
    [GENERATE, { prompt: "Hi", raw: true, system: "Be brief" }, "system"],
    [GENERATE, { prompt: "Hi", suffix: "end", think: true }, "think"],
    [GENERATE, { prompt: "Hi", options: { num_ctx: 2048 } }, "options.num_ctx"],
    [GENERATE, { prompt: "Hi", options: { logit_bias: { 259: 1 } } }, "logit_bias"],
    [CHAT, { messages: [{ role: "assistant", content: "{" }], format: "json" }, "format"],
    [EMBED, { input: ["a"], options: { num_ctx: 2048 } }, "options.num_ctx"],
  ];
  await withServer({}, async ({ post }) => {
    for (const [path, body, param] of cases) {
      const response = await post(path, body);
      const error = await refused(response, path);
      assertEquals([response.status, error.param], [400, param]);
    }
  });
});

Deno.test("bad requests: Ollama's endpoints answer every malformed body with a 4xx", async () => {
  await withServer({}, async (server) => {
    for (const [what, body] of Object.entries(hostileBodies({ model: '"demo"', prompt: '"Hi"' }))) {
      for (const path of [CHAT, EMBED]) await refused(await send(server, path, body), `${path} ${what}`);
      await stillServes(server, what);
    }
  });
});
