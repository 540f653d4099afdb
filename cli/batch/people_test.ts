import { assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import type { Engine } from "../../engine/mod.ts";
import { batchCommand } from "./batch.ts";
import type { CommandHost } from "./world.ts";
import { inFlags } from "../shared/words.ts";
import type { ExecuteOn, OpenedEngine } from "../../lib/batch/jobs.ts";

/*
 * Batches in the forms that users bring: files for another service, JSONL rows, pipes, first attempts, cron
 * jobs.
 */

interface Called {
  readonly code: number;
  readonly out: string;
  readonly err: string;
  /** The bodies that the engine received, in order. */
  readonly asked: Record<string, unknown>[];
}

/** A fake engine that answers a chat with its last message in capitals. A message with "bad" fails. */
const shout: ExecuteOn = (engine, { body }) => {
  const { model, messages } = body as { model?: string; messages: { content: string }[] };
  if (model !== undefined && model !== engine.model.id) {
    return Promise.resolve({ status: 404, body: { error: { code: "model_not_found", message: "no" } } });
  }
  const { content } = messages.at(-1)!;
  if (content.includes("bad")) return Promise.resolve({ status: 400, body: { error: { message: "No" } } });
  const usage = { prompt_tokens: 1, completion_tokens: 2 };
  const message = { content: content.toUpperCase() };
  return Promise.resolve({ status: 200, body: { choices: [{ message }], usage } });
};

async function batch(
  args: readonly string[],
  { execute = shout, stdin = "", stopAfter = Infinity }: {
    execute?: ExecuteOn;
    stdin?: string;
    stopAfter?: number;
  } = {},
): Promise<Called> {
  const words = { out: "", err: "" };
  const asked: Record<string, unknown>[] = [];
  let interrupt = () => {};
  const host: CommandHost = {
    out: (text) => words.out += text,
    err: (text) => words.err += text,
    draw: () => {},
    columns: () => undefined,
    now: () => performance.now(),
    input: () => ReadableStream.from(stdin === "" ? [] : [new TextEncoder().encode(stdin)]),
    onInterrupt: (handler) => {
      interrupt = handler;
      return () => {};
    },
  };
  const openEngine = ({ model }: { model?: string }): Promise<OpenedEngine> => {
    const engine = {
      model: { id: model?.replace(".gguf", "") ?? "demo" },
      state: "ready",
      onState: () => () => {},
      close: () => Promise.resolve(),
    };
    return Promise.resolve({ engine: engine as unknown as Engine, identity: { model: "demo" } });
  };
  const counting: ExecuteOn = (engine, request) => {
    if (stopAfter-- <= 0) {
      interrupt();
      return Promise.resolve({ status: 503, body: {} });
    }
    asked.push(request.body);
    return execute(engine, request);
  };
  return { code: await batchCommand(args, { openEngine, execute: counting, host }), ...words, asked };
}

async function inFolder(
  files: Record<string, string>,
  test: (path: (name: string) => string) => Promise<void>,
): Promise<void> {
  const folder = await Deno.makeTempDir({ prefix: "batch-people-" });
  try {
    for (const [name, text] of Object.entries(files)) await Deno.writeTextFile(`${folder}/${name}`, text);
    await test((name) => `${folder}/${name}`);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

const chat = (id: string, content: string, more: Record<string, unknown> = {}) =>
  JSON.stringify({
    custom_id: id,
    method: "POST",
    url: "/v1/chat/completions",
    body: { messages: [{ role: "user", content }], ...more },
  });
const lines = (...contents: string[]) => contents.map((content, i) => chat(`q${i}`, content)).join("\n");
const namesIn = (folder: string) => [...Deno.readDirSync(folder)].map(({ name }) => name).sort();

Deno.test("batch run --fail-on-errors: exits with 1 when any line has failed, also when the job is already done", async () => {
  await inFolder({ "in.jsonl": lines("a", "bad", "c") }, async (path) => {
    const args = ["run", path("in.jsonl"), "--out", path("out.jsonl")];
    assertEquals((await batch(args)).code, 0);
    for (const more of [["--fail-on-errors"], ["--fail-on-errors", "--json"]]) {
      assertEquals((await batch([...args, ...more])).code, 1);
    }
    const retry = ["retry-errors", path("in.jsonl"), "--out", path("out.jsonl"), "--fail-on-errors"];
    assertEquals((await batch(retry)).code, 1);
    const good: ExecuteOn = () => Promise.resolve({ status: 200, body: {} });
    assertEquals((await batch(retry, { execute: good })).code, 0);
    assertEquals((await batch(retry)).code, 0);
  });
});

Deno.test("batch retry-errors: merges and exits with 1 when no line of the job is answered", async () => {
  await inFolder({ "in.jsonl": lines("bad 1", "bad 2") }, async (path) => {
    const files = [path("in.jsonl"), "--out", path("out.jsonl")];
    assertEquals((await batch(["run", ...files])).code, 1);
    const { code, out, asked } = await batch(["retry-errors", ...files]);
    assertEquals([code, asked.length], [1, 2]);
    assertStringIncludes(out, "Merged: 0 answers in ");
  });
});

Deno.test("batch run --limit: answers the first lines and writes them; a later run answers the other lines", async () => {
  await inFolder({ "in.jsonl": lines("a", "bad", "c", "d", "e") }, async (path) => {
    const args = ["run", path("in.jsonl"), "--out", path("out.jsonl")];
    const ids = async (name: string) =>
      (await Deno.readTextFile(path(name))).trim().split("\n").map((text) => JSON.parse(text).custom_id);
    const first = await batch([...args, "--limit", "2"]);
    assertEquals([first.code, first.asked.length], [0, 2]);
    assertStringIncludes(first.err, `1 answers in ${path("out.jsonl")}, 1 errors in `);
    assertStringIncludes(first.err, "The same command without --limit answers the other lines\n");
    assertEquals([await ids("out.jsonl"), await ids("out.errors.jsonl")], [["q0"], ["q1"]]);
    assertStringIncludes((await batch(["status", path("out.jsonl")])).out, "stopped, 2 of 5 lines, 1 failed");
    const retry = ["retry-errors", path("in.jsonl"), "--out", path("out.jsonl")];
    await assertRejects(() => batch(retry), Error, "is not done yet: run it to its end first");

    const same = await batch([...args, "--limit", "2", "--json"]);
    assertEquals([same.code, same.asked.length], [0, 0]);
    assertEquals(JSON.parse(same.out.trim().split("\n").at(-1)!).event, "limited");
    assertEquals((await batch([...args, "--limit", "4"])).asked.length, 2);
    assertEquals(await ids("out.jsonl"), ["q0", "q2", "q3"]);
    assertEquals((await batch([...args, "--limit", "3"])).asked.length, 0);
    assertEquals(await ids("out.jsonl"), ["q0", "q2", "q3"], "what is answered stays in the output");

    const rest = await batch(args);
    assertEquals([rest.code, rest.asked.length], [0, 1]);
    assertStringIncludes(rest.err, "Resuming: 4 of 5 lines are answered already");
    assertEquals([await ids("out.jsonl"), await ids("out.errors.jsonl")], [["q0", "q2", "q3", "q4"], ["q1"]]);
    assertStringIncludes((await batch([...args, "--limit", "1"])).err, "This job is done already");
  });
});

Deno.test("batch run --alias: answers lines that name another service's model; check refuses the lines that run refuses", async () => {
  const text = [chat("q0", "a", { model: "gpt-4o-mini" }), chat("q1", "b", { model: "m" }), chat("q2", "c")];
  await inFolder({ "in.jsonl": text.join("\n") }, async (path) => {
    const model = ["--model", "m.gguf"];
    const words = '"model" must be "m" (got "gpt-4o-mini"): name that one, or make it an alias (--alias)';
    const check = await batch(["check", path("in.jsonl"), ...model]);
    assertEquals(check.code, 1);
    assertStringIncludes(check.out, `Line 1: ${words}\n`);
    const strict = ["run", path("in.jsonl"), "--out", path("no.jsonl"), ...model, "--strict"];
    const refused = await batch(strict);
    assertEquals([refused.code, refused.asked.length], [1, 0]);
    assertStringIncludes(refused.err, words);

    const alias = ["--alias", "gpt-4o", "--alias", "gpt-4o-mini"];
    assertEquals((await batch(["check", path("in.jsonl"), ...model, ...alias])).code, 0);
    const run = ["run", path("in.jsonl"), "--out", path("out.jsonl"), ...model];
    assertEquals((await batch([...run, ...alias, "--fail-on-errors"])).code, 0);
    assertEquals((await batch(["check", path("in.jsonl"), "--endpoint", "/v1/chat/completions"])).code, 0);
    assertEquals((await batch([...run, "--alias", "a=b"])).code, 2);
  });
});

Deno.test("batch: reports each unsupported parameter once; --strict-parameters refuses lines with such a parameter", async () => {
  const text = [
    chat("q0", "a", { colour: 1 }),
    chat("q1", "b", { colour: 2, user: "u" }),
    chat("q2", "c", { lora: [1] }),
  ];
  await inFolder({ "in.jsonl": text.join("\n") }, async (path) => {
    const note = 'The parameter "colour" is not supported and is ignored\n';
    for (const endpoint of [[], ["--endpoint", "/v1/chat/completions"]]) {
      const check = ["check", path("in.jsonl"), ...endpoint];
      const lenient = await batch(check);
      assertEquals([lenient.code, lenient.err], [1, note]);
      assertStringIncludes(lenient.out, "3 lines, 1 bad");
      assertStringIncludes((await batch([...check, "--strict-parameters"])).out, "3 lines, 3 bad");
    }
    const run = ["run", path("in.jsonl"), "--out", path("out.jsonl")];
    const refused = await batch([...run, "--strict-parameters", "--strict"]);
    assertEquals([refused.code, refused.asked.length], [1, 0]);
    const none = await batch([...run, "--strict-parameters"]);
    assertEquals([none.code, none.asked.length], [1, 0]);
    assertStringIncludes(
      await Deno.readTextFile(path("out.errors.jsonl")),
      'Unsupported parameter \\"colour\\"',
    );
    const ran = await batch(["run", path("in.jsonl"), "--out", path("all.jsonl")]);
    assertEquals([ran.code, ran.err.split(note).length], [0, 2]);
  });
});

Deno.test("batch run --alias: a resumed job keeps its aliases, and retry-errors may add one", async () => {
  const text = Array.from({ length: 6 }, (_, i) => chat(`q${i}`, "a", { model: i < 4 ? "gpt-4" : "gpt-5" }));
  await inFolder({ "in.jsonl": text.join("\n") }, async (path) => {
    const files = [path("in.jsonl"), "--out", path("out.jsonl")];
    const run = ["run", ...files, "--alias", "gpt-4", "--parallel", "1"];
    assertEquals((await batch(run, { stopAfter: 2 })).code, 1);
    const resumed = await batch(run);
    assertEquals([resumed.code, resumed.asked.length], [0, 4]);
    assertStringIncludes(resumed.err, "4 answers in ");
    const retry = await batch(["retry-errors", ...files, "--alias", "gpt-5", "--fail-on-errors"]);
    assertEquals([retry.code, retry.asked.length], [0, 2]);
  });
});

Deno.test("batch check: prints the first 20 bad lines and counts the others; --json prints all", async () => {
  await inFolder({ "in.jsonl": "{\n".repeat(25) }, async (path) => {
    const { out } = await batch(["check", path("in.jsonl")]);
    assertEquals(out.match(/not valid JSON/g)?.length, 20);
    assertStringIncludes(out, "… and 5 more lines\n");
    const json = await batch(["check", path("in.jsonl"), "--json"]);
    assertEquals(json.out.match(/"event":"refused"/g)?.length, 25);
  });
});

const ROWS =
  '{"id":12345678901234567,"text":"a","tags":["x"]}\n{"id":2,"text":null}\n{"id":3,"text":"b","n":1.5}\n';

Deno.test("batch run --prompt: treats JSONL rows as a table with the column names of all rows", async () => {
  await inFolder({ "in.jsonl": ROWS }, async (path) => {
    const asked = [path("in.jsonl"), "--prompt", "Say {text}"];
    assertStringIncludes((await batch(["check", ...asked])).out, '"text" is empty');
    const { code, err } = await batch(["run", ...asked, "--out", path("out.jsonl")]);
    assertEquals(code, 0);
    assertStringIncludes(
      err,
      "Each answer may have at most 1024 tokens; --max-tokens N gives another bound\n",
    );
    assertEquals((await Deno.readTextFile(path("out.jsonl"))).trim().split("\n"), [
      '{"id":12345678901234567,"text":"a","tags":["x"],"n":null,"answer":"SAY A","error":null}',
      '{"id":2,"text":null,"tags":null,"n":null,"answer":null,"error":"Line 2: the prompt would be empty: \\"text\\" is empty"}',
      '{"id":3,"text":"b","tags":null,"n":1.5,"answer":"SAY B","error":null}',
    ]);
  });
});

Deno.test("batch retry-errors: applies another --max-tokens without answering good lines again", async () => {
  await inFolder({ "in.csv": "text\na\nbad\nc\n" }, async (path) => {
    const files = [path("in.csv"), "--out", path("out.csv")];
    const prompt = ["--prompt", "{text}"];
    assertEquals((await batch(["run", ...files, ...prompt, "--max-tokens", "7"])).code, 0);
    const wider = ["retry-errors", ...files, ...prompt, "--max-tokens", "90", "--temperature", "0.5"];
    const again = await batch(wider);
    assertEquals(again.asked.map(({ messages, ...fields }) => [JSON.stringify(messages), fields]), [
      ['[{"role":"user","content":"bad"}]', { temperature: 0.5, max_tokens: 90 }],
    ]);
    const same = await batch(["retry-errors", ...files, ...prompt]);
    assertEquals(same.asked.map(({ max_tokens, temperature }) => [max_tokens, temperature]), [[7, 0]]);
    const good: ExecuteOn = () =>
      Promise.resolve({ status: 200, body: { choices: [{ message: { content: "better" } }] } });
    assertEquals((await batch(wider, { execute: good })).asked.length, 1);
    assertEquals(await Deno.readTextFile(path("out.csv")), "text,answer,error\na,A,\nbad,better,\nc,C,\n");
  });
});

Deno.test("batch retry-errors: the message names each option that may not differ, and both values", async () => {
  await inFolder({ "in.csv": "text\na\nbad\n" }, async (path) => {
    const files = [path("in.csv"), "--out", path("out.csv")];
    assertEquals((await batch(["run", ...files, "--prompt", "{text}", "--system", "Be brief"])).code, 0);
    const cases: [args: string[], words: string][] = [
      [["--prompt", "{text}?", "--system", "Be brief"], '--prompt "{text}" (now "{text}?")'],
      [["--prompt", "{text}"], '--system "Be brief" (now not given)'],
    ];
    for (const [args, words] of cases) {
      const retry = () => batch(["retry-errors", ...files, ...args]);
      assertStringIncludes(inFlags(await assertRejects(retry)), `the job was begun with ${words}`);
    }
  });
});

Deno.test("batch retry-errors: resumes a stopped retry only with its first options", async () => {
  await inFolder({ "in.csv": "text\na\nbad 1\nbad 2\nbad 3\n" }, async (path) => {
    const files = [path("in.csv"), "--out", path("out.csv"), "--prompt", "{text}"];
    assertEquals((await batch(["run", ...files])).code, 0);
    const retry = ["retry-errors", ...files, "--parallel", "1", "--max-tokens"];
    const good: ExecuteOn = () =>
      Promise.resolve({ status: 200, body: { choices: [{ message: { content: "better" } }] } });
    assertEquals((await batch([...retry, "50"], { execute: good, stopAfter: 1 })).code, 1);
    const words = 'which was begun with --max-tokens "50" (now "60")';
    assertStringIncludes(inFlags(await assertRejects(() => batch([...retry, "60"]))), words);
    const ended = await batch([...retry, "50"], { execute: good });
    assertEquals([ended.code, ended.asked.length], [0, 2]);
  });
});

Deno.test("batch run -: stores standard input under the job's name and writes the answers to standard output", async () => {
  await inFolder({}, async (path) => {
    const args = ["run", "-", "--job", path("q"), "--out", "-", "--parallel", "1"];
    const stdin = lines("a", "b", "bad");
    const stopped = await batch(args, { stdin, stopAfter: 1 });
    assertEquals([stopped.code, stopped.out], [1, ""]);
    for (const again of [stdin, "", stdin]) {
      const { code, out } = await batch(args, { stdin: again });
      assertEquals(code, 0);
      assertEquals(out.trim().split("\n").map((text) => JSON.parse(text).custom_id), ["q0", "q1"]);
    }
    const kept = ["q.in.jsonl", "q.out.errors.jsonl", "q.out.jsonl", "q.out.jsonl.journal"];
    assertEquals(namesIn(path(".")), kept);
    await assertRejects(
      () => batch(args, { stdin: lines("c") }),
      Error,
      "standard input has different lines",
    );
    assertEquals(namesIn(path(".")), kept);
    const table = ["run", "-", "--job", path("t"), "--in-format", "csv", "--prompt", "{text}", "--out", "-"];
    assertEquals((await batch(table, { stdin: "text\na\n" })).out, "text,answer,error\na,A,\n");
  });
});

Deno.test("batch run -: says what to do when the job has no name or cannot use a pipe", async () => {
  const cases: [args: string, words: string][] = [
    ["- --out o", "Give --job NAME, which keeps the lines in NAME.in.jsonl"],
    ["in.jsonl --out -", "Give --job NAME, which keeps the lines in NAME.in.jsonl"],
    ["in.jsonl --out o --job j", "--job names the files of pipes"],
    ["- --job j --dry-run", "--dry-run writes nothing"],
    ["in.jsonl --job j --out - --json", "standard output cannot have the events of --json"],
    ["in.parquet --job j --out -", "standard output cannot have a Parquet file"],
  ];
  for (const [args, words] of cases) {
    const { code, err } = await batch(["run", ...args.split(" ")]);
    assertEquals(code, 2, args);
    assertStringIncludes(err, words);
  }
});
