import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import type { Engine } from "../../engine/mod.ts";
import { batchCommand } from "./batch.ts";
import type { CommandHost } from "./world.ts";
import type { ExecuteOn, OpenedEngine } from "../../lib/batch/jobs.ts";

interface FakeHost extends CommandHost {
  stdout: string;
  stderr: string;
  interrupt?: () => void;
}

function fakeHost(columns?: number): FakeHost {
  const host: FakeHost = {
    stdout: "",
    stderr: "",
    out: (text) => host.stdout += text,
    err: (text) => host.stderr += text,
    draw: (line) => host.stderr += `\r${line}`,
    columns: () => columns,
    input: () => ReadableStream.from([]),
    now: () => performance.now(),
    onInterrupt: (handler) => {
      host.interrupt = handler;
      return () => host.interrupt = undefined;
    },
  };
  return host;
}

let closed = 0;

function openEngine({ model }: { model?: string }): Promise<OpenedEngine> {
  if (model === "missing.gguf") return Promise.reject(new Error(`Cannot open "missing.gguf"`));
  const engine = {
    model: { id: model ?? "demo", path: "demo.gguf" },
    state: "ready",
    onState: () => () => {},
    close: () => Promise.resolve(void closed++),
  };
  return Promise.resolve({ engine: engine as unknown as Engine, identity: { model: "demo" } });
}

const execute: ExecuteOn = (engine, { url, body, priority }) =>
  Promise.resolve({
    status: 200,
    body: {
      model: engine.model.id,
      url,
      priority,
      n: body.seed,
      usage: { prompt_tokens: 5, completion_tokens: 7 },
    },
  });

function line(n: number): string {
  return JSON.stringify({
    custom_id: `id-${n}`,
    method: "POST",
    url: "/v1/completions",
    body: { seed: n, prompt: "p" },
  });
}

/** Runs the test in a temporary folder, whose `in.jsonl` has 20 lines, two of them bad. */
async function inFolder(test: (path: (name: string) => string) => Promise<void>): Promise<void> {
  const folder = await Deno.makeTempDir({ prefix: "batch-cli-" });
  const lines = Array.from({ length: 20 }, (_, n) => line(n));
  lines[4] = "{\u001b[2J";
  lines[7] = lines[6];
  await Deno.writeTextFile(`${folder}/in.jsonl`, lines.join("\n"));
  try {
    await test((name) => `${folder}/${name}`);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

Deno.test("batch run: writes answers and errors to their files and progress to standard error, and exits with 0", async () => {
  await inFolder(async (path) => {
    const host = fakeHost();
    closed = 0;
    const args = ["run", path("in.jsonl"), "--out", path("out.jsonl"), "--model", "m", "--parallel", "3"];
    assertEquals(await batchCommand(args, { openEngine, execute, host }), 0);
    assertEquals(closed, 1);
    const answers = (await Deno.readTextFile(path("out.jsonl"))).trim().split("\n").map((text) =>
      JSON.parse(text)
    );
    const errors = (await Deno.readTextFile(path("out.errors.jsonl"))).trim().split("\n");
    assertEquals([answers.length, errors.length], [18, 2]);
    const { n, model, priority } = answers[0].response.body;
    assertEquals([n, model, priority], [0, "m", "batch"]);
    assertEquals(host.stdout, "");
    assertStringIncludes(host.stderr, "Line 5: not valid JSON");
    assertStringIncludes(host.stderr, 'Line 8: custom_id "id-6" is already used by line 7');
    assertStringIncludes(host.stderr, "2 of 20 lines are invalid; the others run\n");
    assertStringIncludes(
      host.stderr,
      `18 answers in ${path("out.jsonl")}, 2 errors in ${path("out.errors.jsonl")}`,
    );
    assertStringIncludes(host.stderr, "(90 prompt and 126 output tokens, ");
    assert(!host.stderr.includes("\x1b"), "no control characters but for a terminal");

    const again = fakeHost();
    const unneeded = { openEngine: () => Promise.reject(new Error("not needed")), execute, host: again };
    assertEquals(await batchCommand(args, unneeded), 0);
    assertStringIncludes(again.stderr, "This job is done already; nothing was run\n");
  });
});

Deno.test("batch run: reports that no line was answered and exits with 1 when every line is bad", async () => {
  await inFolder(async (path) => {
    await Deno.writeTextFile(path("in.jsonl"), "{\n");
    const host = fakeHost();
    const args = ["run", path("in.jsonl"), "--out", path("out.jsonl"), "--model", "m"];
    assertEquals(await batchCommand(args, { openEngine, execute, host }), 1);
    assertStringIncludes(host.stderr, "1 of 1 lines are invalid, so no line is answered\n");
    assertStringIncludes(host.stderr, "\nNo line was answered\n");
    const again = fakeHost();
    assertEquals(await batchCommand(args, { openEngine, execute, host: again }), 1);
    assertStringIncludes(again.stderr, "This job is done already");
  });
});

Deno.test("batch run --order completed: writes answers in the order of completion", async () => {
  await inFolder(async (path) => {
    const later: ExecuteOn = async (engine, request) => {
      await new Promise((resolve) => setTimeout(resolve, request.body.seed === 0 ? 50 : 0));
      return execute(engine, request);
    };
    const args = ["run", path("in.jsonl"), "--out", path("out.jsonl"), "--order", "completed"];
    assertEquals(await batchCommand(args, { openEngine, execute: later, host: fakeHost() }), 0);
    const ids = (await Deno.readTextFile(path("out.jsonl"))).trim().split("\n").map((text) =>
      JSON.parse(text).custom_id
    );
    assertEquals([ids.length, new Set(ids).size, ids.at(-1)], [18, 18, "id-0"]);
  });
});

Deno.test("batch run: draws a progress bar on a terminal", async () => {
  await inFolder(async (path) => {
    const host = fakeHost(100);
    assertEquals(
      await batchCommand(["run", path("in.jsonl"), "--out", path("o")], { openEngine, execute, host }),
      0,
    );
    assertStringIncludes(host.stderr, "\r[########################] 20/20  2 failed  ");
    assert(!host.stderr.includes("\x1b[2J"), "the input cannot steer the terminal");
    assertStringIncludes(host.stderr, `2 errors in ${path("o.errors.jsonl")}`);
  });
});

Deno.test("batch run --json: writes events to standard output", async () => {
  await inFolder(async (path) => {
    const host = fakeHost(100);
    const args = ["run", path("in.jsonl"), "--out", path("out.jsonl"), "--json"];
    assertEquals(await batchCommand(args, { openEngine, execute, host }), 0);
    assertEquals(host.stderr, "");
    const events = host.stdout.trim().split("\n").map((text) => JSON.parse(text));
    assertEquals(events.map(({ event }) => event), [
      "refused",
      "refused",
      "started",
      "progress",
      "finishing",
      "done",
    ]);
    assertEquals([events[0].line, events[0].custom_id, events[1].custom_id], [5, null, "id-6"]);
    const { total, done, failed, prompt_tokens, output_tokens, eta_seconds } = events[3];
    assertEquals([total, done, failed, prompt_tokens, output_tokens, eta_seconds], [20, 20, 2, 90, 126, 0]);
    assertEquals([events[5].completed, events[5].failed, events[5].errors], [
      18,
      2,
      path("out.errors.jsonl"),
    ]);
  });
});

Deno.test("batch run: finishes lines in flight on Ctrl-C and exits with 1; the same command resumes the job", async () => {
  await inFolder(async (path) => {
    const args = ["run", path("in.jsonl"), "--out", path("out.jsonl"), "--parallel", "2"];
    const host = fakeHost();
    let asked = 0;
    const slow: ExecuteOn = async (engine, request) => {
      if (++asked === 5) {
        host.interrupt!();
        host.interrupt!(); // the same Ctrl-C, delivered by the task runner
      }
      await new Promise((resolve) => setTimeout(resolve, 2));
      assert(!request.signal.aborted);
      return execute(engine, request);
    };
    assertEquals(await batchCommand(args, { openEngine, execute: slow, host }), 1);
    assertStringIncludes(host.stderr, "Stopping when the lines in flight are done");
    assertStringIncludes(host.stderr, "the same command resumes the job");
    assert(asked <= 6, "two that run and one that waits");
    const again = fakeHost();
    assertEquals(await batchCommand(args, { openEngine, execute, host: again }), 0);
    assertStringIncludes(again.stderr, `Resuming: ${asked + 2} of 20 lines are answered already`);
  });
});

Deno.test("batch run: stops at once on a second Ctrl-C", async () => {
  await inFolder(async (path) => {
    const host = fakeHost();
    let now = 0;
    host.now = () => now;
    const never: ExecuteOn = () => {
      setTimeout(() => {
        host.interrupt?.();
        now += 1000;
        host.interrupt?.();
      });
      return new Promise(() => {});
    };
    const args = ["run", path("in.jsonl"), "--out", path("out.jsonl"), "--parallel", "1"];
    assertEquals(await batchCommand(args, { openEngine, execute: never, host }), 1);
    assertStringIncludes(host.stderr, "Stopped.");
    assertEquals(host.interrupt, undefined);
  });
});

Deno.test("batch run: reports a failure in one sentence and exits with 1", async () => {
  await inFolder(async (path) => {
    const cases: [string[], string][] = [
      [
        [path("no.jsonl"), "--out", path("o")],
        `Error: Cannot read "${path("no.jsonl")}": there is no such file\n`,
      ],
      [
        [path("in.jsonl"), "--out", path("o"), "--model", "missing.gguf"],
        'Error: Cannot open "missing.gguf"\n',
      ],
      [[path("in.jsonl"), "--out", path("no/o")], "there is no folder"],
    ];
    for (const [args, words] of cases) {
      const host = fakeHost();
      assertEquals(await batchCommand(["run", ...args], { openEngine, execute, host }), 1);
      assertStringIncludes(host.stderr, words);
    }
  });
});

Deno.test("batch: exits with 2 and names the right usage when the usage is wrong", async () => {
  const cases: [string, string][] = [
    ["walk", 'Invalid verb "walk": must be one of run'],
    ["run", "IN is missing"],
    ["run in.jsonl", "--out is missing"],
    ["run in.jsonl --out", "--out needs a value"],
    ["run in.jsonl more.jsonl --out o", 'Found "more.jsonl"'],
    ["run in.jsonl --out o --paralel 3", "There is no option --paralel"],
    ["run in.jsonl --out o --parallel 0", "must be a whole number from 1 to 1024"],
    ["run in.jsonl --out o --parallel 2.5", "must be a whole number from 1 to 1024"],
    ["run in.jsonl --out o --parallel 1025", "must be a whole number from 1 to 1024"],
    ["run in.jsonl --out in.jsonl", "two files of this job"],
    ["run in.jsonl --out o --order size", '--order must be input or completed (got "size")'],
    [
      "run in.jsonl --out o --nats host --backend auto",
      '--backend must be cpu, wasm or webgpu with --nats (got "auto")',
    ],
  ];
  for (const [args, words] of cases) {
    const host = fakeHost();
    assertEquals(await batchCommand(args.split(" "), { openEngine, execute, host }), 2, args);
    assertStringIncludes(host.stderr, words);
    assertStringIncludes(host.stderr, "See: deno task batch ");
  }
});

Deno.test("batch --help: explains the command and exits with 0", async () => {
  for (const args of [["run", "--help"], ["run", "-h"]]) {
    const host = fakeHost();
    assertEquals(await batchCommand(args, { openEngine, execute, host }), 0);
    for (const words of ["Usage:", "--out FILE", '"custom_id"', "Exit code", "Example:"]) {
      assertStringIncludes(host.stdout, words);
    }
  }
});

Deno.test("batch run --strict: refuses the job before running or writing anything when a line is bad", async () => {
  await inFolder(async (path) => {
    const host = fakeHost();
    const args = ["run", path("in.jsonl"), "--out", path("out.jsonl"), "--strict"];
    const openEngine = () => Promise.reject(new Error("not to be opened"));
    assertEquals(await batchCommand(args, { openEngine, execute, host }), 1);
    assertStringIncludes(host.stderr, "Line 5: not valid JSON");
    assertStringIncludes(host.stderr, "must have no bad lines in a strict job (got 2 of 20)");
    assertEquals([...Deno.readDirSync(path("."))].map(({ name }) => name), ["in.jsonl"]);
  });
});

Deno.test("batch --help: names every verb and exits with 0", async () => {
  for (const args of [["--help"], ["-h"], []]) {
    const host = fakeHost();
    assertEquals(await batchCommand(args, { openEngine, execute, host }), 0);
    for (const words of ["Usage:", "run", "Exit code", "Example:"]) assertStringIncludes(host.stdout, words);
  }
});
