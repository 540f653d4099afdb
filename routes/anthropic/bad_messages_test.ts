import { assert, assertEquals } from "@std/assert";
import {
  badSampling,
  hostileBodies,
  many,
  notBooleans,
  notInt,
  notTexts,
  refused,
  refuseFields,
  send,
  stillServes,
} from "../testing_bad.ts";
import { withServer } from "../testing_server.ts";

/* Invalid requests to Anthropic's and llama-server's endpoints. */

const MESSAGES = "/v1/messages";
const COUNT = "/v1/messages/count_tokens";
const user = '{"role":"user","content":"Hi"}';
const required: Record<string, Record<string, string>> = {
  [MESSAGES]: { max_tokens: "9", messages: `[${user}]` },
  [COUNT]: { messages: `[${user}]` },
  "/completion": { prompt: '"Hi"' },
  "/infill": { input_prefix: '"a"', input_suffix: '"b"' },
};

const content = (...blocks: string[]) => blocks.map((block) => `[{"role":"user","content":[${block}]}]`);
const said = (...blocks: string[]) => blocks.map((block) => `[{"role":"assistant","content":[${block}]}]`);

const prompt: Record<string, string[]> = {
  messages: [
    ...["null", "1", "[]", "{}", '"Hi"', "[1]", "[null]", "[{}]", '[{"role":"user"}]', many(10_001, user)],
    ...[
      '[{"role":"tool","content":"a"}]',
      '[{"role":["user"],"content":"a"}]',
      '[{"role":"user","content":null}]',
    ],
    ...[
      '[{"role":"user","content":1}]',
      '[{"role":"user","content":{}}]',
      '[{"role":"user","content":"raise"}]',
    ],
    '[{"role":"system","content":[{"type":"tool_result","tool_use_id":"a"}]}]',
    ...content(
      "1",
      "null",
      "[]",
      "{}",
      '{"type":"image"}',
      '{"type":["text"],"text":"a"}',
      '{"type":"text"}',
    ),
    ...content(
      '{"type":"text","text":1}',
      '{"type":"thinking","thinking":"a"}',
      '{"type":"tool_result","tool_use_id":1}',
    ),
    ...content('{"type":"tool_result","tool_use_id":"a","content":1}'),
    ...content('{"type":"tool_result","tool_use_id":"a","content":[{"type":"image"}]}'),
    ...content('{"type":"tool_result","tool_use_id":"a","is_error":"yes"}', '{"type":"document"}'),
    ...content('{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":""}}'),
    ...content('{"type":"document","source":{"type":"text","data":"a"},"citations":{"enabled":true}}'),
    ...content('{"type":"search_result","source":"a","title":"b","content":"c"}'),
    ...said('{"type":"tool_use"}', '{"type":"tool_use","id":"a","name":""}', '{"type":"server_tool_use"}'),
    ...said(
      '{"type":"tool_use","id":"a","name":"f","input":1}',
      '{"type":"tool_use","id":1,"name":"f","input":{}}',
    ),
    ...said('{"type":"tool_use","id":"a","name":"f","input":{"n":1e999}}', '{"type":"thinking"}'),
    `[{"role":"user","content":${many(1001, '{"type":"text","text":"a"}')}}]`,
    `[{"role":"user","content":${many(100_000, "1")}}]`,
  ],
  system: ["1", "true", "{}", "[1]", '[{"type":"image"}]', '[{"type":"text","text":null}]'],
  tools: [
    ...[
      "1",
      "{}",
      '"f"',
      "[1]",
      "[{}]",
      '[{"name":"f"}]',
      '[{"input_schema":{}}]',
      '[{"name":"a b","input_schema":{}}]',
    ],
    ...[
      '[{"name":"f","input_schema":true}]',
      '[{"name":"f","input_schema":[]}]',
      '[{"name":"f","input_schema":"{}"}]',
    ],
    '[{"name":"f","input_schema":{"maximum":1e999}}]',
    '[{"type":"custom","name":"bash"}]',
    '[{"name":"f","input_schema":{}},{"name":"f","input_schema":{}}]',
    many(129, '{"name":"f","input_schema":{}}'),
    `[{"name":"f","description":"${"d".repeat(2 ** 20)}","input_schema":{}}]`,
  ],
  tool_choice: [
    "1",
    '"auto"',
    "{}",
    '{"type":"required"}',
    '{"type":"tool"}',
    '{"type":"tool","name":"f"}',
    '{"type":"any"}',
  ],
  thinking: [
    ...[
      "1",
      "true",
      '"enabled"',
      "{}",
      '{"type":"on"}',
      '{"type":"enabled"}',
      '{"type":"enabled","budget_tokens":-1}',
    ],
    ...['{"type":"enabled","budget_tokens":1.5}', '{"type":"adaptive","display":"loud"}'],
  ],
  output_config: [
    ...["1", '"json"', "[]", '{"effort":"huge"}', '{"format":{}}', '{"format":{"type":"json_schema"}}'],
    ...['{"format":{"type":"json_schema","schema":[]}}', '{"format":{"type":"grammar","schema":{}}}'],
  ],
  output_format: ["1", '"json"', "{}", '{"type":"json_schema"}', '{"type":"json_schema","schema":"{}"}'],
  mcp_servers: ["1", '"a"', "{}", "[1]", '[{"type":"url","url":"https://a.example"}]'],
  thread: ["1", "{}", '{"type":"create"}', '{"type":"continue","previous_message_id":"msg_1"}'],
};

const older: Record<string, string[]> = {
  ...badSampling,
  seed: ["1.5", '"1"', "-2", "1e300"],
  n_predict: [...notInt(-1, 2 ** 31 - 1), "-2"],
  repeat_penalty: ["0", "-1", "10.1", '"1"'],
  stop: ["1", "{}", '[""]', "[1]", many(1025, '"a"'), `["${"s".repeat(1025)}"]`],
  return_progress: notBooleans,
  grammar: notTexts,
  json_schema: ["1", "[]", '"{}"'],
  n_probs: ["1", '"1"', "true"],
  // Pairs are valid for this endpoint.
  logit_bias: [
    ...badSampling.logit_bias.filter((value) => !value.startsWith("[")),
    "[1]",
    "[[]]",
    "[[1]]",
    "[[1,2,3]]",
    "[[1,101]]",
    "[[1,true]]",
    "[[1,null]]",
    "[[1.5,1]]",
    "[[-1,1]]",
    "[[259,1]]",
    "[[1e999,1]]",
    '[["",1]]',
    "[[null,1]]",
    `[["${"b".repeat(257)}",1]]`,
    many(1025, "[1,1]"),
  ],
  response_fields: ["1", '"content"', "[1]", '[""]', many(101, '"a"')],
};
// The field has another name in this endpoint.
delete older.repetition_penalty;

const fields: Record<string, Record<string, string[]>> = {
  [MESSAGES]: {
    ...badSampling,
    ...prompt,
    max_tokens: [...notInt(0, 2 ** 31 - 1), "-1", "null"],
    stop_sequences: ["1", '"a"', "{}", '[""]', "[1]", "[null]", many(1025, '"a"'), `["${"s".repeat(1025)}"]`],
  },
  [COUNT]: prompt,
  "/completion": {
    ...older,
    prompt: ["null", "1", "true", "{}", "[]", '["a"]', "[-1]", "[1.5]", "[259]", "[[1]]"],
  },
  "/infill": {
    ...older,
    input_prefix: [...notTexts, "null"],
    input_suffix: [...notTexts, "null"],
    prompt: notTexts,
    input_extra: [
      "1",
      '"a"',
      "{}",
      "[1]",
      "[{}]",
      '[{"text":1}]',
      '[{"text":"a","filename":1}]',
      many(1001, '{"text":""}'),
    ],
  },
};

const infill = { prefix: 1, suffix: 2, middle: 3, repo: undefined, file: undefined };

Deno.test("messages, completion and infill: every wrong field value is a 4xx that names the field", async () => {
  await withServer({ infill }, async (server) => {
    const count = await refuseFields(server, required, fields);
    assert(count >= 500, `${count}`);
  });
});

Deno.test("messages, completion and infill: malformed bodies are a 4xx in the path's error format", async () => {
  await withServer({ infill }, async (server) => {
    for (const path of Object.keys(required)) {
      for (const [name, body] of Object.entries(hostileBodies(required[path]))) {
        const response = await send(server, path, body);
        if (path.startsWith(MESSAGES)) assertEquals((await response.clone().json()).type, "error");
        await refused(response, `${path} ${name}`);
      }
      await stillServes(server, path);
    }
  });
});
