import { assert, assertEquals, assertRejects } from "@std/assert";
import { BatchError } from "../jobs/errors.ts";
import type { Execute } from "../jobs/run/runner.ts";
import { Retry } from "../jobs/run/retry.ts";
import { runOn, TEST_LIMITS } from "../jobs/testing.ts";
import type { SimStorage } from "../tests/batch/sim_storage.ts";
import { AnswerForm } from "./answers.ts";
import { storageWith, tableJob } from "./testing.ts";

const FILES = { input: "in.csv", output: "out", errors: "err.jsonl" };

interface Chat {
  messages: { role: string; content: string }[];
}

/** A fake engine that answers with the question in capitals. Rows with "bad" fail. */
const shout: Execute = ({ body }) => {
  const text = (body as unknown as Chat).messages.at(-1)!.content;
  if (text.includes("bad")) {
    return Promise.resolve({ status: 400, body: { error: { message: `No: ${text}` } } });
  }
  return Promise.resolve({ status: 200, body: answer(text.toUpperCase()) });
};

function answer(content: string) {
  const usage = { prompt_tokens: 3, completion_tokens: 2 };
  return { choices: [{ message: { role: "assistant", content }, finish_reason: "stop" }], usage };
}

function run(storage: SimStorage, execute: Execute, job: Parameters<typeof tableJob>[0] = {}) {
  return runOn(storage, execute, { ...FILES, openInput: tableJob(job), judge: job.form?.judge });
}

Deno.test("table: asks each row once, and writes answers and errors beside it", async () => {
  const storage = storageWith('id,text\n1,"one, two"\n2,bad\n3,\n4,x,y\n5,five\n', "in.csv");
  const asked: unknown[] = [];
  const execute: Execute = (request) => {
    asked.push([request.url, request.body]);
    return shout(request);
  };
  const question = {
    prompt: "Say {text}!",
    system: "Be {brief}.",
    fields: { temperature: 0, max_tokens: 9 },
  };
  const { counts } = await run(storage, execute, { question });
  assertEquals(counts, { completed: 2, failed: 3, promptTokens: 6, outputTokens: 4 });
  assertEquals(asked.find((text) => JSON.stringify(text).includes("two")), ["/v1/chat/completions", {
    messages: [{ role: "system", content: "Be {brief}." }, { role: "user", content: "Say one, two!" }],
    temperature: 0,
    max_tokens: 9,
  }]);
  assertEquals(asked.length, 3);
  assertEquals(
    storage.content("out"),
    [
      "id,text,answer,error",
      '1,"one, two","SAY ONE, TWO!",',
      "2,bad,,No: Say bad!",
      '3,,,"Line 4 (row 3): the prompt would be empty: ""text"" is empty"',
      ',,,"Line 5 (row 4): must have 2 cells, as the first line has (got 3)"',
      "5,five,SAY FIVE!,",
      "",
    ].join("\n"),
  );
  const errors = storage.content("err.jsonl")!.trimEnd().split("\n").map((text) => JSON.parse(text));
  assertEquals(errors.map(({ custom_id }) => custom_id), ["row-2", "row-3", "row-4"]);
  assertEquals(errors[1].response.body.error.code, "empty_prompt");
});

Deno.test("table: writes a schema's properties as columns, in CSV and JSONL", async () => {
  const schema = {
    type: "object",
    properties: { label: { type: "string" }, tags: { type: "array" }, text: { type: "integer" } },
  };
  const execute: Execute = ({ body }) => {
    assertEquals((body.response_format as { json_schema: { schema: unknown } }).json_schema.schema, schema);
    return Promise.resolve({ status: 200, body: answer('{"label":"a;b","tags":["x"],"text":7}') });
  };
  const csv = storageWith("\ufefftext;n\nhi;1\n", "in.csv");
  const read = { format: "csv", separator: ";" } as const;
  await run(csv, execute, { schema, read, write: { format: "csv", separator: ";" } });
  assertEquals(csv.bytes("out")!.slice(0, 3), new Uint8Array([0xef, 0xbb, 0xbf]));
  assertEquals(csv.content("out"), 'text;n;label;tags;text_2;error\nhi;1;"a;b";"[""x""]";7;\n');
  const json = storageWith("text;n\nhi;1\n", "in.csv");
  await run(json, execute, { schema, read, write: { format: "jsonl", prefix: "m_" } });
  assertEquals(
    json.content("out"),
    '{"text":"hi","n":"1","m_label":"a;b","m_tags":["x"],"m_text":7,"m_error":null}\n',
  );
});

Deno.test("table: a text has one prompt per line", async () => {
  const storage = storageWith("one\n\n  two {x}\r\n", "in.csv");
  await run(storage, shout, { read: { format: "text" } });
  assertEquals(storage.content("out"), 'text,answer,error\none,ONE,\n"  two {x}","  TWO {X}",\n');
});

Deno.test("table: resumes a job only with the same file and question", async () => {
  const content = "id,text\n1,a\n2,b\n3,c\n";
  const stopped = async () => {
    const storage = storageWith(content, "in.csv");
    const drain = new AbortController();
    const execute: Execute = (request) => {
      drain.abort();
      return shout(request);
    };
    const open = { ...FILES, openInput: tableJob({}), parallel: 1, drainSignal: drain.signal };
    assertEquals((await runOn(storage, execute, open)).state, "stopped");
    return storage;
  };
  const storage = await stopped();
  assertEquals((await run(storage, shout)).counts.completed, 3);
  assertEquals((await run(storage, shout)).state, "already_done");

  const otherColumn = await stopped();
  // The new file has the same size, and a change in a column that the prompt does not use.
  otherColumn.rewrite("in.csv", content.replace("3,c", "4,c"));
  await assertRejects(() => run(otherColumn, shout), BatchError, "belongs to another input");
  const otherPrompt = await stopped();
  await assertRejects(
    () => run(otherPrompt, shout, { prompt: "{text}!" }),
    BatchError,
    'was begun with prompt "{text}" (now "{text}!")',
  );
});

Deno.test("table: writes no output if the file changes while the job runs", async () => {
  const storage = storageWith("id,text\n1,a\n2,b\n", "in.csv");
  const execute: Execute = (request) => {
    storage.rewrite("in.csv", "id,text\n9,a\n2,b\n");
    return shout(request);
  };
  await assertRejects(() => run(storage, execute), BatchError, '"in.csv" was changed while the job ran');
  assertEquals(storage.content("out"), undefined);
});

Deno.test("table: refuses a prompt with unknown columns before anything runs", async () => {
  const storage = storageWith("id,text\n1,a\n", "in.csv");
  const refused = run(storage, shout, { prompt: "{txt}" });
  await assertRejects(() => refused, BatchError, 'Invalid prompt for "in.csv": there is no column "txt"');
  assertEquals(storage.bytes("out.journal"), undefined);
});

for (const format of ["csv", "jsonl", "parquet"] as const) {
  Deno.test(`table: retries failed rows and keeps all others unchanged (${format})`, async () => {
    const rows = Array.from(
      { length: 50 },
      (_, n) => `${n},${n % 7 === 0 ? "bad" : `"line ${n}\r\nü ""q"""`},${n}`,
    );
    const input = `id,text,answer\n${rows.join("\n")}\n,,\n1,2\n`;
    const schema = { type: "object", properties: { text: { type: "string" }, n: { type: "integer" } } };
    const job = { schema, write: { format }, onRename: () => {} };
    const jsonAnswer: Execute = async (request) => {
      const { status, body } = await shout(request);
      if (status !== 200) return { status, body };
      const { content } = (body as ReturnType<typeof answer>).choices[0].message;
      return { status, body: answer(JSON.stringify({ text: content, n: content.length })) };
    };
    const storage = storageWith(input, "in.csv");
    assertEquals((await run(storage, jsonAnswer, job)).counts.failed, 10);
    const before = storage.bytes("out")!;

    const retry = await Retry.open(storage, FILES, TEST_LIMITS, tableJob(job));
    assert(await retry.prepare());
    let asked = 0;
    const better: Execute = () => {
      asked += 1;
      return Promise.resolve({ status: 200, body: answer('{"text":"better","n":1}') });
    };
    await runOn(storage, better, { ...retry.files });
    assertEquals(await retry.merge(), { completed: 50, failed: 2, promptTokens: 150, outputTokens: 100 });
    retry.close();
    assertEquals(asked, 8);
    const after = storage.bytes("out")!;

    // A run in which all answers succeed at once.
    const fresh = storageWith(input, "in.csv");
    const both: Execute = async (request) => {
      const first = await jsonAnswer(request);
      return first.status === 200 ? first : better(request);
    };
    await run(fresh, both, job);
    assertEquals(after, fresh.bytes("out"));
    assert(before.toHex() !== after.toHex());
  });
}

Deno.test("table: answers that do not match the schema fail, and can be retried", async () => {
  const storage = storageWith("text\na\nb\n", "in.csv");
  const schema = { type: "object", properties: { n: { type: "integer" } } };
  const form = new AnswerForm(schema);
  const execute: Execute = ({ body }) => {
    const isA = (body as unknown as Chat).messages[0].content === "a";
    return Promise.resolve({ status: 200, body: answer(isA ? '{"n":1}' : '{"n":') });
  };
  const { counts } = await run(storage, execute, { form });
  assertEquals([counts.completed, counts.failed, counts.outputTokens], [1, 1, 4]);
  assertEquals(
    storage.content("out"),
    "text,n,error\na,1,\nb,,The answer is not the JSON that the schema requires\n",
  );
});

Deno.test("table: a column of bytes, paths or structures gives each row an image before the prompt", async () => {
  const png = new Uint8Array([0x89, 0x50, 0xff]);
  const url = `data:image/png;base64,${png.toBase64()}`;
  const cells = [
    ["a/b.png", "file:a/b.png"],
    [url, url],
    ["file:c.png", "file:c.png"],
    [{ bytes: null, path: "d.png" }, "file:d.png"],
    [{ path: null }, undefined],
    ["", undefined],
    [null, undefined],
    [3, undefined],
  ] as const;
  const rows = cells.map(([image], i) => JSON.stringify({ i, image })).join("\n");
  const asked = new Map<string, unknown>();
  const execute: Execute = ({ body }) => {
    const [image, text] =
      (body.messages as { content: { text?: string; image_url?: { url: string } }[] }[])[0].content;
    asked.set(text.text!, image.image_url!.url);
    return Promise.resolve({ status: 200, body: answer("yes") });
  };
  const storage = storageWith(rows, "in.csv");
  const question = { prompt: "{i}", image: "image", fields: {} };
  const read = { format: "jsonl" } as const;
  await run(storage, execute, { question, read, write: { format: "jsonl" } });
  const expected = cells.flatMap(([, wanted], i) => wanted === undefined ? [] : [[`${i}`, wanted] as const]);
  assertEquals([...asked].sort(), expected);
  const faults = storage.content("out")!.trimEnd().split("\n").map((line) => JSON.parse(line).error);
  assertEquals(faults.slice(4), [5, 6, 7, 8].map((n) => `Line ${n}: "image" has no image`));
  const other = { ...question, image: "photo" };
  const error = await assertRejects(() =>
    run(storageWith(rows, "in.csv"), execute, { question: other, read })
  );
  assert((error as Error).message.includes('there is no column "photo"'), (error as Error).message);
});
