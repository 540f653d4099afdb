import { assertEquals, assertStringIncludes } from "@std/assert";
import type { Engine } from "../../engine/mod.ts";
import { batchCommand } from "./batch.ts";
import type { CommandHost } from "./world.ts";
import type { ExecuteOn, OpenedEngine } from "../../lib/batch/jobs.ts";

const bodies: Record<string, unknown>[] = [];

const execute: ExecuteOn = (_, { body }) => {
  bodies.push(body);
  const [{ content }] = (body.messages as { content: string }[]).slice(-1);
  const answer = { choices: [{ message: { content: content.toUpperCase() } }] };
  return Promise.resolve({
    status: 200,
    body: { ...answer, usage: { prompt_tokens: 1, completion_tokens: 2 } },
  });
};

function openEngine(): Promise<OpenedEngine> {
  const engine = { state: "ready", onState: () => () => {}, close: () => Promise.resolve() };
  return Promise.resolve({ engine: engine as unknown as Engine, identity: { model: "demo" } });
}

/** Runs the command. After `stopAfter` answers it is interrupted and gets no more answers. */
async function batch(
  args: string[],
  stopAfter = Infinity,
): Promise<{ code: number; out: string; err: string }> {
  const words = { out: "", err: "" };
  let interrupt = () => {};
  const some: ExecuteOn = (engine, request) => {
    if (stopAfter-- > 0) return execute(engine, request);
    interrupt();
    return Promise.resolve({ status: 503, body: {} });
  };
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
  return { code: await batchCommand(args, { openEngine, execute: some, host }), ...words };
}

async function inFolder(
  files: Record<string, string>,
  test: (path: (name: string) => string) => Promise<void>,
): Promise<void> {
  const folder = await Deno.makeTempDir({ prefix: "batch-table-" });
  try {
    for (const [name, text] of Object.entries(files)) await Deno.writeTextFile(`${folder}/${name}`, text);
    await test((name) => `${folder}/${name}`);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

const TABLE = "id\ttext\tanswer\n1\ta\tx\n2\tb\ty\n";

Deno.test("batch run: reads a table by its file extension and asks the question; other verbs accept the same options", async () => {
  await inFolder({ "in.tsv": TABLE }, async (path) => {
    bodies.length = 0;
    const asked = ["--prompt", "Say {text}", "--system", "Be brief", "--max-tokens", "7", "--effort", "none"];
    const args = [path("in.tsv"), ...asked, "--out", path("out.tsv")];
    const { code, err } = await batch(["run", ...args]);
    assertEquals([code, bodies.length], [0, 2]);
    assertEquals(bodies.find(({ messages }) => JSON.stringify(messages).includes("Say a")), {
      messages: [{ role: "system", content: "Be brief" }, { role: "user", content: "Say a" }],
      temperature: 0,
      max_tokens: 7,
      reasoning_effort: "none",
    });
    assertEquals(
      await Deno.readTextFile(path("out.tsv")),
      "id\ttext\tanswer\tanswer_2\terror\n1\ta\tx\tSAY A\t\n2\tb\ty\tSAY B\t\n",
    );
    assertStringIncludes(err, 'The table already has a column "answer": the new column is named "answer_2"');
    assertEquals((await batch(["status", path("out.tsv")])).out.includes("done, 2 of 2 lines"), true);
    assertEquals(
      (await batch(["retry-errors", ...args])).out,
      "No line to retry: all 2 lines have their answers\n",
    );
  });
});

Deno.test("batch run: asks one question per line of a text file and writes the format of --out-format", async () => {
  await inFolder({ "in.txt": "one\ntwo\n" }, async (path) => {
    const args = ["run", path("in.txt"), "--out", path("out.data"), "--out-format", "jsonl", "--json"];
    assertEquals((await batch(args)).code, 0);
    assertEquals(
      await Deno.readTextFile(path("out.data")),
      '{"text":"one","answer":"ONE","error":null}\n{"text":"two","answer":"TWO","error":null}\n',
    );
  });
});

Deno.test("batch check: reports malformed rows and missing columns", async () => {
  await inFolder({ "in.csv": "id,text\n1,a\n2\n3,\n" }, async (path) => {
    const check = (prompt: string) => batch(["check", path("in.csv"), "--prompt", prompt]);
    const { code, out } = await check("Say {text}");
    assertEquals(code, 1);
    assertStringIncludes(out, "Line 3 (row 2): must have 2 cells, as the first line has (got 1)\n");
    assertStringIncludes(out, 'Line 4 (row 3): the prompt would be empty: "text" is empty\n');
    assertStringIncludes(out, "3 lines, 2 bad");
  });
});

Deno.test("batch of a table: reports a stopped job, marks cancelled rows, and refuses to resume with another prompt", async () => {
  await inFolder({ "in.csv": "id,text\n1,a\n2,b\n3,c\n" }, async (path) => {
    const args = [path("in.csv"), "--prompt", "{text}", "--out", path("out.csv")];
    const { code, err } = await batch(["run", ...args, "--parallel", "1"], 1);
    assertEquals([code, err.includes("the same command resumes the job")], [1, true], err);
    assertStringIncludes((await batch(["status", path("out.csv")])).out, "stopped, 1 of 3 lines");
    const other = ["run", path("in.csv"), "--prompt", "{text}?", "--out", path("out.csv")];
    assertStringIncludes(
      (await batch(other)).err,
      'was begun with --prompt "{text}" (now "{text}?"): answers of both would be mixed',
    );
    assertStringIncludes((await batch(["cancel", ...args])).out, "Cancelled: 1 answers in ");
    const rows = (await Deno.readTextFile(path("out.csv"))).trimEnd().split("\n");
    assertEquals(rows.length, 4);
    assertEquals(
      rows.filter((row) => row.endsWith(",,The job was cancelled before this line was answered")).length,
      2,
    );
    assertStringIncludes((await batch(["retry-errors", ...args])).out, "Merged: 3 answers in ");
    assertEquals(await Deno.readTextFile(path("out.csv")), "id,text,answer,error\n1,a,A,\n2,b,B,\n3,c,C,\n");
  });
});

Deno.test("batch of a table: explains wrong usage", async () => {
  const schema = '{"type":"object","properties":{"a":{"type":"strin"}}}';
  const files = { "in.csv": "id,text\n1,a\n", "in.jsonl": "{}", "no.json": "[", "bad.json": schema };
  await inFolder(files, async (path) => {
    const out = ["--out", path("out.csv")];
    const prompt = ["--prompt", "{text}"];
    for (
      const [args, message] of [
        [
          [path("in.csv"), ...out],
          '--prompt is missing: the question for each row, such as "Translate: {text}"',
        ],
        [[path("in.jsonl"), "--system", "x", ...out], "--system is for rows of tables, but "],
        [
          [path("in.csv"), ...prompt, "--out", path("out.xlsx")],
          "--out must end in .csv, .tsv, .parquet or .jsonl",
        ],
        [[path("in.csv"), ...prompt, ...out, "--order", "completed"], "--order completed is for JSONL"],
        [
          [path("in.csv"), ...prompt, ...out, "--separator", "::"],
          "--separator must be one character other than a quote",
        ],
        [[path("in.csv"), ...prompt, ...out, "--schema", path("no.json")], 'Cannot use --schema "'],
        [[path("in.csv"), ...prompt, ...out, "--schema", path("bad.json")], 'Cannot use --schema "'],
      ] as const
    ) {
      const { code, err } = await batch(["run", ...args]);
      assertStringIncludes(err, message);
      assertEquals(code, 2, message);
    }
    const { code, err } = await batch(["run", path("in.csv"), "--prompt", "{txt}", ...out]);
    assertEquals(code, 1);
    assertStringIncludes(err, 'there is no column "txt"; the columns are "id", "text"');
  });
});
