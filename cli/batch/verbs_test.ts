import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import type { Engine } from "../../engine/mod.ts";
import { batchCommand } from "./batch.ts";
import type { CommandHost } from "./world.ts";
import type { ExecuteOn, OpenedEngine } from "../../lib/batch/jobs.ts";

const LINES = 20;
const CHAT = "/v1/chat/completions";

function lineOf(customId: string, url: string, body: unknown): string {
  return JSON.stringify({ custom_id: customId, method: "POST", url, body });
}

function line(n: number): string {
  return lineOf(`q${n}`, "/v1/completions", { model: "demo", prompt: "Hi", seed: n });
}

const good: ExecuteOn = () =>
  Promise.resolve({ status: 200, body: { usage: { prompt_tokens: 5, completion_tokens: 7 } } });

/** A fake engine that answers `count` lines and then no more. */
function only(count: number): ExecuteOn {
  return (engine, request) => {
    if (count-- > 0) return good(engine, request);
    return new Promise((_, reject) => {
      request.signal.addEventListener("abort", () => reject(request.signal.reason), { once: true });
    });
  };
}

function openEngine(): Promise<OpenedEngine> {
  const engine = {
    model: { id: "demo", path: "demo.gguf" },
    state: "ready",
    onState: () => () => {},
    close: () => Promise.resolve(),
  };
  return Promise.resolve({ engine: engine as unknown as Engine, identity: { model: "demo" } });
}

interface Run {
  readonly code: Promise<number>;
  readonly words: { out: string; err: string };
  interrupt(): void;
}

function batch(args: string[], execute: ExecuteOn = good): Run {
  const words = { out: "", err: "" };
  let interrupt = () => {};
  const host: CommandHost = {
    out: (text) => words.out += text,
    err: (text) => words.err += text,
    draw: () => {},
    columns: () => undefined,
    input: () => ReadableStream.from([]),
    now: () => performance.now(),
    onInterrupt: (handler) => {
      interrupt = handler;
      return () => {};
    },
  };
  return { code: batchCommand(args, { openEngine, execute, host }), words, interrupt: () => interrupt() };
}

async function inFolder(test: (path: (name: string) => string) => Promise<void>): Promise<void> {
  const folder = await Deno.makeTempDir({ prefix: "batch-verbs-" });
  const lines = Array.from({ length: LINES }, (_, n) => line(n));
  await Deno.writeTextFile(`${folder}/in.jsonl`, lines.join("\n"));
  try {
    await test((name) => `${folder}/${name}`);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

// deno-lint-ignore no-explicit-any -- what the tests are about
async function status(output: string): Promise<any> {
  const { code, words } = batch(["status", output, "--json"]);
  assertEquals(await code, 0);
  return JSON.parse(words.out);
}

Deno.test("batch status and cancel: work on a job that another process runs", async () => {
  await inFolder(async (path) => {
    const output = path("out.jsonl");
    const job = batch(["run", path("in.jsonl"), "--out", output, "--parallel", "2"], only(6));
    let told;
    for (let i = 0; told?.done !== 6 && i < 1000; i++) {
      await new Promise((resolve) => setTimeout(resolve, 5));
      if (await Deno.stat(`${output}.status`).catch(() => undefined)) told = await status(output);
    }
    assertEquals([told.state, told.total, told.done, told.failed], ["running", LINES, 6, 0]);
    assertEquals([told.prompt_tokens, told.output_tokens], [30, 42]);

    const cancel = batch(["cancel", path("in.jsonl"), "--out", output]);
    assertEquals(await cancel.code, 0);
    assertEquals(await job.code, 0);
    assertStringIncludes(job.words.err, "Cancelled: lines without an answer will get none");
    assertStringIncludes(cancel.words.out, "Cancelled: 6 answers in ");
    const errors = (await Deno.readTextFile(path("out.errors.jsonl"))).trim().split("\n").map((text) =>
      JSON.parse(text)
    );
    assertEquals(errors.length, LINES - 6);
    assertEquals([errors[0].response, errors[0].error.code], [null, "batch_cancelled"]);
    assertEquals((await status(output)).state, "done");
    const left = [...Deno.readDirSync(path("."))].map(({ name }) => name).sort();
    assertEquals(left, ["in.jsonl", "out.errors.jsonl", "out.jsonl", "out.jsonl.journal"]);
    await assertRejects(() => batch(["cancel", path("in.jsonl"), "--out", output]).code, Error, "it is done");
  });
});

Deno.test("batch status and cancel: work on a stopped job without a model", async () => {
  await inFolder(async (path) => {
    const output = path("out.jsonl");
    const job = batch(["run", path("in.jsonl"), "--out", output, "--parallel", "1"], async (...request) => {
      if (request[1].body.seed === 4) job.interrupt();
      return await good(...request);
    });
    assertEquals(await job.code, 1);
    const { state, total, done } = await status(output);
    assertEquals([state, total], ["stopped", LINES]);
    assert(done === 5 || done === 6, `${done}`); // one more line may have been in progress
    const words = batch(["status", output]);
    await words.code;
    assertStringIncludes(
      words.words.out,
      `stopped, ${done} of 20 lines, 0 failed; ${5 * done} prompt and ${7 * done} output tokens\n`,
    );
    const cancel = batch(["cancel", path("in.jsonl"), "--out", output, "--json"], () => {
      throw new Error("not to be asked");
    });
    assertEquals(await cancel.code, 0);
    assertEquals(JSON.parse(cancel.words.out), {
      event: "cancelled",
      completed: done,
      failed: LINES - done,
    });
    // A second run finds the job done.
    assertEquals(await batch(["run", path("in.jsonl"), "--out", output]).code, 0);
  });
});

Deno.test("batch retry-errors: runs failed lines again and replaces their errors with answers", async () => {
  await inFolder(async (path) => {
    const lines = Array.from({ length: LINES }, (_, n) => line(n));
    lines[3] = lines[2];
    await Deno.writeTextFile(path("in.jsonl"), lines.join("\n"));
    const failing = (...bad: number[]): ExecuteOn => async (engine, request) => {
      const n = request.body.seed as number;
      const answer = await good(engine, request);
      return bad.includes(n) ? { status: 400, body: { error: { message: `no ${n}` } } } : answer;
    };
    const output = path("out.jsonl");
    const retry = ["retry-errors", path("in.jsonl"), "--out", output];
    assertEquals(await batch(["run", path("in.jsonl"), "--out", output], failing(0, 2, 9, 19)).code, 0);
    const ids = async (name: string) =>
      (await Deno.readTextFile(path(name))).trim().split("\n").map((text) => JSON.parse(text).custom_id);
    const all = Array.from({ length: LINES }, (_, n) => `q${n}`).filter((id) => id !== "q3");
    for (const [bad, failed] of [[[2, 19], ["q2", "q2", "q19"]], [[], ["q2"]]] as [number[], string[]][]) {
      const asked: unknown[] = [];
      const { code, words } = batch(retry, (engine, request) => {
        asked.push(request.body.seed);
        return failing(...bad)(engine, request);
      });
      assertEquals(await code, 0, words.err);
      assertStringIncludes(words.out, `Merged: ${LINES - failed.length} answers`);
      assertEquals(asked.length, bad.length > 0 ? 4 : 2);
      assertEquals(await ids("out.errors.jsonl"), failed);
      assertEquals(
        await ids("out.jsonl"),
        all.filter((id) => bad.length === 0 || !["q2", "q19"].includes(id)),
      );
    }
    const none = batch(retry);
    assertEquals(await none.code, 0);
    assertStringIncludes(
      none.words.out,
      `No line to retry: the check refuses all lines in ${
        path("out.errors.jsonl")
      } (1), and would refuse them again`,
    );
    assertEquals(await batch(["run", path("in.jsonl"), "--out", output]).code, 0);
    const left = [...Deno.readDirSync(path("."))].map(({ name }) => name).sort();
    assertEquals(left, ["in.jsonl", "out.errors.jsonl", "out.jsonl", "out.jsonl.journal"]);
  });
});

for (const order of ["completed", "input"]) {
  Deno.test(`batch retry-errors: after --order ${order}, asks only failed lines and keeps good answers byte for byte`, async () => {
    await inFolder(async (path) => {
      const lines = Array.from({ length: 40 }, (_, n) => line(n));
      lines[13] = lines[12]; // shares the custom_id of a failing line
      lines[14] = "{";
      await Deno.writeTextFile(path("in.jsonl"), lines.join("\n"));
      const tooLong = (n: number) => n % 4 === 0;
      const asked: number[] = [];
      const answering = (isBad: (n: number) => boolean): ExecuteOn => async (engine, request) => {
        const n = request.body.seed as number;
        asked.push(n);
        await new Promise((resolve) => setTimeout(resolve, (n * 7) % 11));
        return isBad(n)
          ? { status: 400, body: { error: { message: "too long" } } }
          : await good(engine, request);
      };
      const output = path("out.jsonl");
      const run = ["run", path("in.jsonl"), "--out", output, "--order", order, "--parallel", "8"];
      assertEquals(await batch(run, answering(tooLong)).code, 0);
      const read = async (name: string) => (await Deno.readTextFile(path(name))).trim().split("\n");
      const before = await read("out.jsonl");
      assertEquals([before.length, (await read("out.errors.jsonl")).length], [28, 12]);
      for (
        const [isBad, failing] of [[() => true, 10], [(n: number) => n > 20, 10], [() => false, 4]] as const
      ) {
        asked.length = 0;
        const retry = batch(
          ["retry-errors", path("in.jsonl"), "--out", output, "--ctx", "10"],
          answering(isBad),
        );
        assertEquals(await retry.code, 0, retry.words.err);
        assert(asked.every(tooLong), `asked ${asked}`);
        assertEquals(new Set(asked).size, failing);
        const now = await read("out.jsonl");
        assertEquals(now.filter((text) => before.includes(text)), before);
        if (order === "completed") assertEquals(now.slice(0, before.length), before);
      }
      const ids = (await read("out.jsonl")).map((text) => Number(JSON.parse(text).custom_id.slice(1)));
      const all = Array.from({ length: 40 }, (_, n) => n).filter((n) => n !== 13 && n !== 14);
      assertEquals(order === "input" ? ids : ids.toSorted((a, b) => a - b), all);
      const errors = (await read("out.errors.jsonl")).map((text) => JSON.parse(text));
      assertEquals(errors.map(({ response }) => response.body.error.line).toSorted(), [14, 15]);
    });
  });
}

Deno.test("batch retry-errors: prefills failed lines of batch prefill again and never answers them", async () => {
  await inFolder(async (path) => {
    const body = { model: "demo", prompt: "Hi", max_tokens: 50, n: 2 };
    const lines = [1, 2, 3].map((n) => lineOf(`p${n}`, "/v1/completions", { ...body, seed: n }));
    lines.push(lineOf("r", "/v1/responses", { model: "demo", input: "Hi" }));
    await Deno.writeTextFile(path("in.jsonl"), lines.join("\n"));
    const long: ExecuteOn = (engine, request) =>
      request.body.seed === 2
        ? Promise.resolve({ status: 400, body: { error: { message: "too long" } } })
        : good(engine, request);
    const cache = ["--cache-disk", path("prompts")];
    const output = path("in.prefilled.jsonl");
    assertEquals(await batch(["prefill", path("in.jsonl"), ...cache], long).code, 0);

    const retry = ["retry-errors", path("in.jsonl"), "--out", output];
    const refused = batch(retry);
    assertEquals(await refused.code, 2);
    assertStringIncludes(refused.words.err, "--cache-disk is missing");
    const asked: unknown[] = [];
    const again = batch([...retry, ...cache], (engine, request) => {
      asked.push(request.body);
      return good(engine, request);
    });
    assertEquals(await again.code, 0, again.words.err);
    assertStringIncludes(again.words.out, "Merged: 3 answers");
    assertEquals(asked, [{ model: "demo", prompt: "Hi", max_tokens: 0, seed: 2 }]);
    const errors = (await Deno.readTextFile(path("in.prefilled.errors.jsonl"))).trim();
    assertEquals(JSON.parse(errors).response.body.error.code, "invalid_url");
  });
});

Deno.test("batch retry-errors: explains why it cannot run when the journal is missing or outputs were changed", async () => {
  await inFolder(async (path) => {
    const bad: ExecuteOn = () => Promise.resolve({ status: 400, body: { error: { message: "no" } } });
    const output = path("out.jsonl");
    assertEquals(await batch(["run", path("in.jsonl"), "--out", output], bad).code, 1);
    const retry = ["retry-errors", path("in.jsonl"), "--out", output];
    const errors = await Deno.readTextFile(path("out.errors.jsonl"));
    await Deno.writeTextFile(path("out.errors.jsonl"), errors.slice(errors.indexOf("\n") + 1));
    await assertRejects(() => batch(retry).code, Error, "bytes now instead of");
    await Deno.writeTextFile(path("out.errors.jsonl"), errors);
    await Deno.writeTextFile(path("other.jsonl"), line(0));
    await assertRejects(
      () => batch(["retry-errors", path("other.jsonl"), "--out", output]).code,
      Error,
      `other.jsonl" is not what "${output}" was made from: the job belongs to another input of 20 lines and `,
    );
    await Deno.remove(path("out.jsonl.journal"));
    await assertRejects(() => batch(retry).code, Error, "it has no journal");
    assertEquals(await Deno.readTextFile(path("out.errors.jsonl")), errors);
  });
});

Deno.test("batch check: lists every bad line with its number and exits with 1; exits with 0 for a good file", async () => {
  await inFolder(async (path) => {
    const lines = [
      line(0),
      "{\u001b[2J",
      line(0),
      lineOf("q1", CHAT, { model: "demo", messages: [{ role: "user", content: "Hi" }] }),
    ];
    lines.push(line(2).replace('"seed"', '"stream":true,"seed"'));
    await Deno.writeTextFile(path("bad.jsonl"), lines.join("\n"));
    const text = batch(["check", path("bad.jsonl")]);
    assertEquals(await text.code, 1);
    for (const words of ["Line 2: not valid JSON", "Line 3: custom_id", "Line 5: ", "5 lines, 3 bad\n"]) {
      assertStringIncludes(text.words.out, words);
    }
    assert(!text.words.out.includes("\u001b"));
    const json = batch(["check", path("bad.jsonl"), "--endpoint", "/v1/completions", "--json"]);
    assertEquals(await json.code, 1);
    const events = json.words.out.trim().split("\n").map((text) => JSON.parse(text));
    assertEquals(events.slice(0, -1).map(({ line, code }) => [line, code]), [
      [2, "invalid_json"],
      [3, "duplicate_custom_id"],
      [4, "endpoint_mismatch"],
      [5, "stream_not_allowed"],
    ]);
    assertEquals([events.at(-1).lines, events.at(-1).bad], [5, 4]);
    assertEquals(await batch(["check", path("in.jsonl")]).code, 0);
    assertEquals(await batch(["check", path("in.jsonl"), "--endpoint", "/v1/images"]).code, 2);
    await assertRejects(() => batch(["check", path("none.jsonl")]).code, Error, "there is no such file");
  });
});

Deno.test("batch check: refuses invalid bodies and impossible constraints without a model", async () => {
  const tool = (name: string, parameters: unknown, strict?: true) => ({
    type: "function",
    function: { name, parameters, strict },
  });
  const chat = (extra: Record<string, unknown>) => {
    return { model: "demo", messages: [{ role: "user", content: "Hi" }], ...extra };
  };
  const schema = { type: "object", properties: { a: { type: "integer" } } };
  const bad = { type: "no-such-type" };
  const bodies: [url: string, body: Record<string, unknown>, refusal?: [code: string, param: string]][] = [
    [CHAT, chat({ response_format: { type: "json_schema", json_schema: { name: "a", schema } } })],
    [CHAT, chat({ tools: [tool("f", schema), tool("g", {})], tool_choice: "required", stop: ["x"] })],
    [CHAT, chat({ functions: [{ name: "f", parameters: schema }] })],
    ["/v1/completions", { model: "demo", prompt: "Hi", guided_choice: ["a", "b"] }],
    [CHAT, chat({ temperature: 3 }), ["invalid_value", "body.temperature"]],
    [CHAT, { model: "demo" }, ["missing_required_parameter", "body.messages"]],
    [
      CHAT,
      chat({ response_format: { type: "json_schema", json_schema: { name: "a", schema: bad } } }),
      ["invalid_constraint", "body.response_format.json_schema.schema"],
    ],
    [CHAT, chat({ json_schema: bad }), ["invalid_constraint", "body.json_schema"]],
    [
      CHAT,
      chat({ tools: [tool("f", schema), tool("g", bad, true)] }),
      ["invalid_constraint", "body.tools[1].function.parameters"],
    ],
    [CHAT, chat({ tools: [tool("g", bad)] })], // relaxed schema
    [CHAT, chat({ functions: [{ name: "f", parameters: bad }] })], // relaxed schema
    [CHAT, chat({ tool_choice: "required" }), ["invalid_value", "body.tool_choice"]],
    [
      "/v1/completions",
      { model: "demo", prompt: "Hi", grammar: "root ::= (" },
      ["invalid_constraint", "body.grammar"],
    ],
    [
      "/v1/completions",
      { model: "demo", prompt: "Hi", guided_regex: "(" },
      ["invalid_constraint", "body.guided_regex"],
    ],
    [
      "/v1/completions",
      { model: "demo", prompt: "Hi", guided_regex: "a", guided_choice: ["a"] },
      ["conflicting_parameters", "body.guided_choice"],
    ],
  ];
  await inFolder(async (path) => {
    const lines = bodies.map(([url, body], i) => lineOf(`q${i}`, url, body));
    await Deno.writeTextFile(path("forms.jsonl"), lines.join("\n"));
    const { code, words } = batch(["check", path("forms.jsonl"), "--json"]);
    assertEquals(await code, 1);
    const events = words.out.trim().split("\n").map((text) => JSON.parse(text));
    const refused = bodies.flatMap(([, , refusal], i) => refusal ? [[i + 1, `q${i}`, ...refusal]] : []);
    assertEquals(
      events.slice(0, -1).map(({ line, custom_id, code, param }) => [line, custom_id, code, param]),
      refused,
    );
    assertEquals([events.at(-1).lines, events.at(-1).bad], [bodies.length, refused.length]);
    for (const { line, message, param } of events.slice(0, -1)) {
      assert(message.startsWith(`Line ${line}: `), message);
      assertStringIncludes(message, `"${param.slice("body.".length)}"`);
    }
  });
});

Deno.test("batch status, cancel, check, retry-errors: explain usage with --help, exit with 2 on wrong usage, fail without a job", async () => {
  for (const verb of ["status", "cancel", "check", "retry-errors"]) {
    const { code, words } = batch([verb, "--help"]);
    assertEquals(await code, 0);
    for (const part of ["Usage: deno task batch", "--json", "Exit code", "Example:"]) {
      assertStringIncludes(words.out, part);
    }
    assertEquals(await batch([verb]).code, 2);
    assertEquals(await batch([verb, "a", "b", "--out", "c"]).code, 2);
  }
  await assertRejects(() => batch(["status", "nothing.jsonl"]).code, Error, "There is no job");
  await assertRejects(
    () => batch(["cancel", "in.jsonl", "--out", "nothing.jsonl"]).code,
    Error,
    "There is no job",
  );
});
