import { assert, assertEquals, assertMatch, assertRejects } from "@std/assert";
import { type BatchOptions, type BatchProgress, type BatchRefusal, runBatch } from "./batch.ts";
import { batchStatus, cancelBatch, checkBatch } from "./control.ts";
import { CompyError } from "../errors.ts";
import { loadModel, type Model } from "../model.ts";

const open = () => loadModel(undefined, { threads: 1, parallel: 4, ctx: 128 });

const line = (i: number, body: object = {}) =>
  JSON.stringify({
    custom_id: `q${i}`,
    method: "POST",
    url: "/v1/chat/completions",
    body: { messages: [{ role: "user", content: `Count to ${i}` }], max_tokens: 12, seed: i, ...body },
  });

async function inFolder(
  lines: readonly string[],
  test: (files: BatchOptions) => Promise<void>,
): Promise<void> {
  const folder = await Deno.makeTempDir({ prefix: "lib-batch-" });
  try {
    const files = { input: `${folder}/in.jsonl`, output: `${folder}/out.jsonl` };
    await Deno.writeTextFile(files.input, lines.map((line) => `${line}\n`).join(""));
    await test(files);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

/** Returns the answer to each line, without the fields that differ between runs. */
async function answersIn(path: string) {
  const text = await Deno.readTextFile(path);
  return text.trim().split("\n").map((line) => {
    const { custom_id, response } = JSON.parse(line);
    return [custom_id, response.status_code, response.body.choices?.[0].message.content];
  });
}

Deno.test("runBatch: resumes a stopped batch with the same call and gives the same answers as an uninterrupted one", async () => {
  await using model = await open();
  const lines = Array.from({ length: 24 }, (_, i) => line(i));
  let expected: unknown;
  await inFolder(lines, async (files) => {
    const { state, counts } = await runBatch(model, files);
    assertEquals([state, counts.completed, counts.failed], ["done", 24, 0]);
    expected = await answersIn(files.output);
  });
  await inFolder(lines, async (files) => {
    const stop = new AbortController();
    const onProgress = ({ completed }: BatchProgress) => completed >= 5 && stop.abort();
    const stopped = await runBatch(model, { ...files, parallel: 2, onProgress, signal: stop.signal });
    assertEquals(stopped.state, "stopped");
    assert(stopped.counts.completed >= 5 && stopped.counts.completed < 24);
    const drained = await runBatch(model, { ...files, drainSignal: AbortSignal.abort() });
    assertEquals(drained.state, "stopped");
    const told: BatchProgress[] = [];
    const ended = await runBatch(model, { ...files, onProgress: (progress) => told.push(progress) });
    assertEquals([ended.state, ended.counts.completed], ["done", 24]);
    assertEquals(
      told[0].completed,
      stopped.counts.completed,
      "what was answered before is not answered again",
    );
    assertEquals([told.at(-1)!.completed, told.at(-1)!.total], [24, 24]);
    assertEquals(await answersIn(files.output), expected);
    const never = () => Promise.reject(new Error("a job that is done loads no model"));
    assertEquals((await runBatch(never, files)).state, "already_done");
  });
});

Deno.test("runBatch: closes a model that it has loaded itself; other requests to the model run meanwhile", async () => {
  let own: Model | undefined;
  await inFolder([line(1), line(2, { max_tokens: -1 }), "no JSON"], async (files) => {
    const refused: BatchRefusal[] = [];
    const run = runBatch(async () => own = await open(), {
      ...files,
      onRefused: (refusal) => refused.push(refusal),
    });
    await using other = await open();
    const [{ state, counts }, answer] = await Promise.all([run, other.chat("Hi", { maxTokens: 4 }).answer()]);
    assertEquals([state, counts.completed, counts.failed], ["done", 1, 2]);
    assertEquals(answer.usage.completionTokens, 4);
    assertEquals(refused.map(({ line, code }) => [line, code]), [[2, "invalid_value"], [3, "invalid_json"]]);
    const errors = await answersIn(files.output.replace(".jsonl", ".errors.jsonl"));
    assertEquals(errors.map(([id, status]) => [id, status]), [["q2", 400], [null, 400]]);
    const closed = await assertRejects(() => own!.chat("Hi").answer(), CompyError);
    assertEquals(closed.code, "engine_closed");
  });
});

Deno.test("runBatch: throws an error with a code if a batch cannot run", async () => {
  await using model = await open();
  await inFolder([line(1), line(1)], async (files) => {
    await Deno.writeTextFile(`${files.output}.other`, "mine");
    const cases: [code: string, options: unknown][] = [
      ["input_unreadable", { ...files, input: `${files.input}.none` }],
      ["same_file", { ...files, output: files.input }],
      ["output_exists", { ...files, output: `${files.output}.other` }],
      ["output_unwritable", { ...files, output: `${files.input}-no/out.jsonl` }],
      ["lines_refused", { ...files, strict: true }],
      ["invalid_request", { ...files, parallel: 0 }],
      ["invalid_request", { ...files, limit: 0 }],
      ["invalid_request", { ...files, aliases: "gpt-4o-mini" }],
      ["invalid_request", { ...files, order: "random" }],
      ["invalid_request", { ...files, output: "" }],
      ["invalid_request", { ...files, out: "x" }],
    ];
    for (const [code, options] of cases) {
      const error = await assertRejects(() => runBatch(model, options as BatchOptions), CompyError);
      assertEquals(error.code, code as CompyError["code"], error.message);
    }
  });
});

Deno.test("runBatch: writes each answer beside its table row and names rows without a prompt", async () => {
  await using model = await open();
  await inFolder([], async ({ input, output }) => {
    const [csv, out] = [input.replace("jsonl", "csv"), output.replace("jsonl", "csv")];
    await Deno.writeTextFile(csv, "n,of\n1,cats\n2,\n");
    const table = { prompt: "Say {of}", maxTokens: 4, prefix: "m_" };
    const { counts } = await runBatch(model, { input: csv, output: out, table });
    assertEquals([counts.completed, counts.failed], [1, 1]);
    const [header, first, second] = (await Deno.readTextFile(out)).split("\n");
    assertEquals(header, "n,of,m_answer,m_error");
    assert(/^1,cats,.+,$/.test(first), first);
    assertEquals(second, '2,,,"Line 3 (row 2): the prompt would be empty: ""of"" is empty"');

    const files = { input: csv, output: `${out}.other.csv` };
    const cases: [code: string, options: unknown][] = [
      ["invalid_request", { ...files, table: {} }],
      ["invalid_request", { ...files, table: { ...table, prompts: "x" } }],
      ["invalid_request", { ...files, table: { ...table, separator: "::" } }],
      ["invalid_request", { ...files, table, order: "completed" }],
      ["invalid_request", { ...files, output: `${out}.xlsx`, table }],
      ["invalid_constraint", { ...files, table: { ...table, schema: { type: "strin" } } }],
      ["input_unreadable", { ...files, table: { prompt: "{text}" } }],
    ];
    for (const [code, options] of cases) {
      const error = await assertRejects(() => runBatch(model, options as BatchOptions), CompyError);
      assertEquals(error.code, code as CompyError["code"], error.message);
    }
  });
});

Deno.test("runBatch: with a limit answers the first lines, and accepts lines that name the model by an alias", async () => {
  await using model = await open();
  const lines = Array.from({ length: 6 }, (_, i) => line(i, { model: i === 4 ? "demo" : "gpt-4o-mini" }));
  await inFolder(lines, async (files) => {
    assertEquals((await checkBatch(files.input, { models: ["demo"] })).bad, 5);
    assertEquals((await checkBatch(files.input, { models: ["demo", "gpt-4o-mini"] })).bad, 0);
    assertEquals((await checkBatch(files.input)).bad, 0);
    assertEquals(await codeOf(runBatch(model, { ...files, strict: true })), "lines_refused");
    const job = { ...files, aliases: ["gpt-4o-mini"], strict: true };
    const told: BatchProgress[] = [];
    const first = await runBatch(model, { ...job, limit: 2, onProgress: (progress) => told.push(progress) });
    assertEquals([first.state, first.counts.completed, first.counts.failed], ["limited", 2, 0]);
    assertEquals([told.at(-1)!.completed, told.at(-1)!.total], [2, 2]);
    assertEquals((await answersIn(files.output)).map(([id]) => id), ["q0", "q1"]);
    assertEquals((await batchStatus(files.output)).state, "stopped");
    const { state, counts } = await runBatch(() => open(), job);
    assertEquals([state, counts.completed, counts.failed], ["done", 6, 0]);
  });
});

Deno.test("runBatch: with a table option reads JSONL rows, and limits the tokens of each answer", async () => {
  await using model = await open();
  await inFolder(['{"n":1,"of":"cats"}', '{"n":2,"of":"hens"}'], async ({ input, output }) => {
    const table = { prompt: "Say {of}", schema: { enum: ["yes", "no"] } };
    const { counts } = await runBatch(model, { input, output: output.replace("jsonl", "csv"), table });
    assertEquals([counts.completed, counts.failed], [2, 0]);
    assertMatch(
      await Deno.readTextFile(output.replace("jsonl", "csv")),
      /^n,of,answer,error\n1,cats,(yes|no),\n2,/,
    );
    assertEquals((await checkBatch(input, { table: { prompt: "Say {of}" } })).bad, 0);
  });
});

Deno.test("batchStatus and cancelBatch: report a running and a stopped batch, and cancel a batch that another caller runs", async () => {
  await using model = await open();
  const lines = Array.from({ length: 200 }, (_, i) => line(i, { max_tokens: 80, ignore_eos: true }));
  await inFolder(lines, async (files) => {
    assertEquals(await codeOf(batchStatus(files.output)), "no_job");
    assertEquals(await codeOf(cancelBatch(files)), "no_job");
    const stop = new AbortController();
    const onProgress = ({ completed }: BatchProgress) => completed >= 4 && stop.abort();
    await runBatch(model, { ...files, parallel: 1, onProgress, signal: stop.signal });
    const { state, total, completed, failed } = await batchStatus(files.output);
    assertEquals([state, total, failed], ["stopped", 200, 0]);
    assert(completed >= 4 && completed < 200, `${completed} lines`);

    // The batch resumes, and other callers see it run. When the batch is cancelled, it ends with the answers so far.
    const began = Promise.withResolvers<void>();
    const running = runBatch(model, { ...files, parallel: 1, onProgress: () => began.resolve() });
    await began.promise;
    assertEquals((await batchStatus(files.output)).state, "running");
    const cancelled = await cancelBatch(files);
    assertEquals(await running.then(({ state, counts }) => [state, counts.completed]), [
      "done",
      cancelled.completed,
    ]);
    assertEquals(cancelled.completed + cancelled.failed, 200);
    assert(cancelled.failed > 0);
    const ended = await batchStatus(files.output);
    assertEquals([ended.state, ended.failed], ["done", cancelled.failed]);
    assertEquals(await codeOf(cancelBatch(files)), "job_failed");
    const left = [...Deno.readDirSync(files.output.replace(/[^/]+$/, ""))].map(({ name }) => name).sort();
    assertEquals(left, ["in.jsonl", "out.errors.jsonl", "out.jsonl", "out.jsonl.journal"]);
  });
});

Deno.test("cancelBatch: cancels a stopped batch without a model", async () => {
  await using model = await open();
  await inFolder(Array.from({ length: 6 }, (_, i) => line(i)), async (files) => {
    const onProgress = ({ completed }: BatchProgress) => completed >= 2 && stop.abort();
    const stop = new AbortController();
    await runBatch(model, { ...files, parallel: 1, onProgress, signal: stop.signal });
    const { completed, failed } = await cancelBatch(files);
    assert(completed >= 2 && failed > 0 && completed + failed === 6);
    const errors = await Deno.readTextFile(files.output.replace(".jsonl", ".errors.jsonl"));
    assertEquals(errors.match(/batch_cancelled/g)?.length, failed);
  });
});

Deno.test("checkBatch: checks lines, constraints and table rows without a model", async () => {
  const bad = line(1, { response_format: { type: "regex", regex: "(" } });
  await inFolder([line(0), bad, "no JSON", line(0)], async ({ input }) => {
    const refused: BatchRefusal[] = [];
    const check = await checkBatch(input, { onRefused: (refusal) => refused.push(refusal) });
    assertEquals([check.lines, check.bad], [4, 3]);
    assertEquals(check.bytes, Deno.statSync(input).size);
    assertEquals(refused.map(({ line }) => line), [2, 3, 4]);
    assertEquals((await checkBatch(input, { endpoint: "/v1/embeddings" })).bad, 4);
    assertEquals(await codeOf(checkBatch(input, { endpoint: "/v1/dreams" })), "invalid_request");
    assertEquals(await codeOf(checkBatch("")), "invalid_request");
    assertEquals(await codeOf(checkBatch(`${input}.missing`)), "input_unreadable");
    const csv = input.replace(".jsonl", ".csv");
    await Deno.writeTextFile(csv, "town\nOslo\nBergen\n");
    assertEquals((await checkBatch(csv, { table: { prompt: "Where is {town}?" } })).lines, 2);
    assertEquals(await codeOf(checkBatch(csv, { table: {} })), "invalid_request");
  });
});

async function codeOf(doing: Promise<unknown>): Promise<string> {
  return (await assertRejects(() => doing, CompyError)).code;
}
