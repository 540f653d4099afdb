import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { fromFileUrl, join } from "@std/path";
import { GgufBuilder } from "../engine/gguf/testing.ts";
import { tinyCheckpoint, withHeader, writeCheckpoint } from "./checkpoints.ts";

/*
 * The commands as users run them: as tasks of deno.json, with the permissions that those grant, on the demo model.
 */
const root = fromFileUrl(new URL("..", import.meta.url));

interface Result {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

function task(args: readonly string[], cwd = root): Deno.ChildProcess {
  // Of several tasks within each other the first sets INIT_CWD.
  const options = { args: ["task", "-q", ...args], cwd, env: { INIT_CWD: cwd, NO_COLOR: "1" } };
  return new Deno.Command(Deno.execPath(), { ...options, stdin: "null", stdout: "piped", stderr: "piped" })
    .spawn();
}

async function run(args: readonly string[], cwd?: string): Promise<Result> {
  const { code, stdout, stderr } = await task(args, cwd).output();
  const decoder = new TextDecoder();
  return { code, stdout: decoder.decode(stdout), stderr: decoder.decode(stderr) };
}

// So that no command has to, and says so.
assertEquals((await run(["build"])).code, 0);

/** Runs a command that must succeed and print one JSON object. */
async function runJson(...args: string[]) {
  const { code, stdout, stderr } = await run([...args, "--json"]);
  assertEquals(code, 0, stderr);
  return JSON.parse(stdout);
}

async function withFolder(test: (folder: string) => Promise<void>): Promise<void> {
  const folder = await Deno.makeTempDir();
  try {
    await test(folder);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

const COMMANDS = ["serve", "generate", "tokenize", "batch", "inspect", "convert", "bench"];

for (const command of COMMANDS) {
  Deno.test(`cli: ${command} --help teaches, exit code 0; an unknown option is exit code 2`, async () => {
    const help = await run([command, "--help"]);
    assertEquals([help.code, help.stderr], [0, ""]);
    assertStringIncludes(help.stdout, `Usage: deno task ${command}`);
    const wrong = await run([command, "--nonsense"]);
    assertEquals([wrong.code, wrong.stdout], [2, ""]);
    assertEquals(wrong.stderr, `Error: There is no option --nonsense\nSee: deno task ${command} --help\n`);
  });
}

const WRONG_USAGE: [args: string, message: string][] = [
  ["generate", "Give one of --prompt, --chat and --tokens (got none)"],
  ["generate --prompt a --chat b", "Give one of --prompt, --chat and --tokens (got --prompt and --chat)"],
  ["generate --prompt a -n -1", `-n must be a whole number from 0 to 1000000 (got "-1")`],
  ["generate --prompt a -n 1e3", `-n must be a whole number from 0 to 1000000 (got "1e3")`],
  ["generate --prompt a -n 1 -n 2", "-n may be given once (got 2 times)"],
  ["generate --prompt a --temperature=-1", "--temperature must be a number from 0 to 10"],
  [
    "generate --tokens 1,x",
    `--tokens must be whole numbers from 0 to 2147483647, with commas between them (got "1,x")`,
  ],
  ["generate --tokens ,", `(got ",")`],
  ["generate --temperature -0.5 --prompt a", `--temperature must be a number from 0 to 10 (got "-0.5")`],
  [
    "generate --prompt --chat",
    `--prompt needs a value; write one that begins with "-" as --prompt=VALUE (got --chat)`,
  ],
  [
    "generate --prompt -x",
    `--prompt needs a value; write one that begins with "-" as --prompt=VALUE (got -x)`,
  ],
  ["generate --prompt a --schema b --grammar c", "Give one of --schema and --grammar"],
  ["generate --tokens 1 --schema b", "--schema and --grammar need --prompt or --chat"],
  ["generate --prompt a --thinking", "--thinking needs --chat"],
  ["generate --prompt a --effort none", "--effort needs --chat"],
  ["generate --chat a --effort much", "--effort must be one of none, minimal, low,"],
  ["serve --port -1", `--port must be a whole number from 0 to 65535 (got "-1")`],
  ["serve --port 65536", "--port must be a whole number from 0 to 65535"],
  ["serve --parallel 0", "--parallel must be a whole number from 1"],
  ["serve --kv-type q4_0", `--kv-type must be one of f16, q8_0 (got "q4_0")`],
  ["serve here", `Found "here", which belongs to no option`],
  ["tokenize", "Give one of --text and --file (got neither)"],
  ["bench --npl 1,0", "--npl must be whole numbers from 1 to 1024, with commas between them"],
  ["inspect --model=", "--model needs a value"],
  ["convert --out a.gguf", "Give the checkpoint's folder first (got none)"],
  ["convert here", "Give the file to write: --out FILE.gguf"],
  ["convert here --out a.gguf --quantize q9", `--quantize must be one of q8_0, q4_0, mxfp4 (got "q9")`],
];
Deno.test("cli: wrong usage is exit code 2 and says what is right", async () => {
  for (const [args, message] of WRONG_USAGE) {
    const { code, stdout, stderr } = await run(args.split(" "));
    assertEquals([code, stdout], [2, ""], `${args}: ${stderr}`);
    assertStringIncludes(stderr, message);
  }
});

Deno.test("cli: without a command, or with another, main.ts lists the commands", async () => {
  const main = async (...args: string[]) => {
    const command = ["run", "-q", "-P=compute", "main.ts", ...args];
    const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), { args: command, cwd: root })
      .output();
    return [code, new TextDecoder().decode(stdout) + new TextDecoder().decode(stderr)] as const;
  };
  const [code, help] = await main();
  assertEquals(code, 0);
  for (const command of COMMANDS) assertStringIncludes(help, `  ${command} `);
  const [wrong, message] = await main("sevre");
  assertEquals(wrong, 2);
  assertStringIncludes(message, `There is no command "sevre"; the commands are serve, generate`);
});

Deno.test("cli: files that cannot be used are told in a line, exit code 1", async () => {
  await withFolder(async (folder) => {
    const broken = join(folder, "broken.gguf");
    await Deno.writeTextFile(broken, "GGUF and then nothing of use");
    const loop = join(folder, "loop.gguf");
    await Deno.symlink(loop, loop);
    const cases = [
      [
        ["generate", "--prompt", "a", "--model", join(folder, "none.gguf")],
        "there is no such file or folder\n",
      ],
      [
        ["generate", "--prompt", "a", "--model", "/dev/stdin"],
        `Cannot load a model from "/dev/stdin": tasks may not open devices, pipes and files of the system; copy it to an ` +
        "ordinary file first\n",
      ],
      [
        ["inspect", "--model", loop],
        `Cannot load a model from "${loop}": its symbolic links lead in a circle\n`,
      ],
      [
        ["tokenize", "--text", "a", "--model", join(broken, "x")],
        "a part of its path is a file and not a folder\n",
      ],
      [["tokenize", "--file", loop], `Cannot tokenize "${loop}": its symbolic links lead in a circle\n`],
      [["convert", loop, "--out", join(folder, "o.gguf")], "its symbolic links lead in a circle\n"],
      [
        ["serve", "--port", "0", "--data", join(folder, "d")],
        "this task may write to .compy only. Allow it with",
      ],
      [["serve", "--port", "0", "--model", folder], "it must be a GGUF file (got a folder)\n"],
      [["inspect", "--model", broken], "GGUF_VERSION at byte 4"],
      [
        ["generate", "--prompt", "a", "--backend", "webgpu", "--kv-type", "q8_0"],
        "on the GPU: it must be f16; use --kv-type f16 or --backend cpu",
      ],
      [["tokenize", "--text", "a", "--model", broken], "GGUF_VERSION at byte 4"],
    ] as const;
    for (const [args, message] of cases) {
      const { code, stdout, stderr } = await run(args);
      assertEquals([code, stdout], [1, ""]);
      assertMatch(stderr, /^Error: [^\n]+\n$/);
      assertStringIncludes(stderr, message);
    }
  });
});

Deno.test("cli: a data folder that cannot be used is told before the model is loaded", async () => {
  await withFolder(async (folder) => {
    const file = join(folder, "file");
    await Deno.writeTextFile(file, "");
    for (
      const [data, reason] of [
        [file, "something else of that name is there"],
        [join(file, "data"), "a part of its path is a file and not a folder"],
      ]
    ) {
      const args = [
        "run",
        "-q",
        "-P=serve",
        `--allow-write=${folder}`,
        "main.ts",
        "serve",
        "--port",
        "0",
        "--data",
        data,
      ];
      const { code, stderr } = await new Deno.Command(Deno.execPath(), { args, cwd: root }).output();
      assertEquals(
        [code, new TextDecoder().decode(stderr)],
        [
          1,
          `Error: Cannot keep files and batches in "${data}": ${reason}; choose another folder with --data, or serve ` +
          "without them: --data none\n",
        ],
      );
    }
  });
});

Deno.test("cli: generate --chat answers to the end, and no further than the context", async () => {
  const chat = ["generate", "--chat", "Tell me a story about a small dinosaur.", "--temperature", "0"];
  const whole = await runJson(...chat);
  assert(whole.steps.length > 32, `${whole.steps.length}`);
  assertMatch(whole.text, /[.!]$/);
  const cut = await runJson(...chat, "--ctx", "48");
  assertEquals(cut.tokens.length + cut.steps.length, 48);
  assert(whole.text.startsWith(cut.text));
});

Deno.test("cli: memory that is not there is refused with the sums, before anything is loaded", async () => {
  const start = performance.now();
  const { code, stdout, stderr } = await run(["serve", "--kv-mb", "10000000", "--data", "none"]);
  const seconds = (performance.now() - start) / 1000;
  assertEquals([code, stdout], [1, ""]);
  assertMatch(
    stderr,
    new RegExp(
      "^Error: The model needs 10,000,00\\d\\.\\d MB of memory with these settings, and [\\d,]+\\.\\d MB are free for it:\n" +
        " {2}weights +1\\.\\d MB\n {2}activations +\\d\\.\\d MB\n {2}KV cache +10,000,000\\.0 MB {2}\\(--kv-mb, in f16\\)\n" +
        "What fits: --kv-mb \\d+\n$",
    ),
  );
  assert(seconds < 10, `it took ${seconds} s`);
  const batch = ["batch", "run", "in.jsonl", "--out", "out.jsonl"];
  const workers = await run([...batch, "--kv-mb", "5", "--nats", "nats://127.0.0.1"]);
  assertEquals(workers.code, 2);
  assertStringIncludes(workers.stderr, "--kv-mb is the workers' own; leave it out with --nats");
});

Deno.test("cli: inspect says what is free; a context beyond the model's own is cut and says so", async () => {
  const { memory_free } = await runJson("inspect");
  assert(memory_free > 10 * 2 ** 20, `${memory_free}`);
  const { code, stderr } = await run(["generate", "--prompt", "Once", "-n", "1", "--ctx", "8192"]);
  assertEquals([code, stderr], [0, "A context of 8192 tokens is cut to 512, the model's own\n"]);
});

Deno.test("cli: generate --tokens --json gives greedy tokens with their likeliest rivals", async () => {
  const args = ["generate", "--tokens", "65,66,67", "-n", "5"];
  const result = await runJson(...args);
  assertEquals(Object.keys(result), ["tokens", "text", "steps", "timings"]);
  assertEquals(result.tokens, [65, 66, 67]);
  assertEquals(result.steps.length, 5);
  for (const { token, top } of result.steps) {
    assertEquals(top.length, 20);
    assertEquals(token, top[0][0]);
    const logprobs = top.map(([, logprob]: [number, number]) => logprob);
    assertEquals(logprobs, logprobs.toSorted((a: number, b: number) => b - a));
    assert(logprobs[0] <= 0 && logprobs.reduce((sum: number, l: number) => sum + Math.exp(l), 0) <= 1 + 1e-5);
  }
  assertEquals(Object.keys(result.timings), ["load_ms", "prefill_tps", "decode_tps"]);
  const again = await runJson(...args, "--logprobs", "3");
  assertEquals(again.text, result.text);
  assertEquals(
    again.steps,
    result.steps.map(({ token, top }: { token: number; top: unknown[] }) => (
      { token, top: top.slice(0, 3) }
    )),
  );
});

Deno.test("cli: a KV cache in 8 bits takes 53 % of the memory; generate answers with it, auto then takes the CPU", async () => {
  const memory = async (type: string) => (await runJson("inspect", "--kv-type", type)).memory.kv;
  assertEquals(await memory("q8_0") / await memory("f16"), 34 / 64);
  const args = ["generate", "--prompt", "Once upon a time", "-n", "12", "--temperature", "0"];
  const [halves, codes] = [
    await runJson(...args),
    await runJson(...args, "--kv-type", "q8_0", "--backend", "auto"),
  ];
  assertEquals(codes.steps.length, 12);
  // Not the first token: it is so sure that a float may not show the difference.
  const best = ({ steps: [, { top }] }: { steps: { top: [number, number][] }[] }) => top[0];
  assertEquals(best(codes)[0], best(halves)[0]);
  const apart = Math.abs(best(codes)[1] - best(halves)[1]);
  assert(apart > 0 && apart < 0.05, `the second token's log-probability is ${apart} from that with halves`);
});

Deno.test("cli: generate goes on past end tokens with --tokens, and stops there with --chat", async () => {
  const { metadata } = await runJson("inspect");
  const end = metadata["tokenizer.ggml.eot_token_id"];
  const biased = await runJson("generate", "--tokens", String(end), "-n", "60");
  assertEquals(biased.steps.length, 60);
  const chat = await runJson("generate", "--chat", "Hello", "-n", "400", "--temperature", "0");
  assert(chat.steps.length < 400, chat.text);
});

Deno.test("cli: generate streams text; a seed gives the same again", async () => {
  const args = ["generate", "--prompt", "Once upon a time", "-n", "12", "--seed", "7"];
  const first = await run(args);
  assertEquals([first.code, first.stderr], [0, ""]);
  assert(first.stdout.trim().length > 0);
  assertEquals((await run(args)).stdout, first.stdout);
  const lines = await run([...args.slice(0, 4), "3", "--logprobs", "2"]);
  assertMatch(lines.stdout, /^(-\d+\.\d{4} "[^\t]*"\t-\d+\.\d{4} "[^\t]*"\t-\d+\.\d{4} "[^\t]*"\n){3}$/);
});

Deno.test("cli: Ctrl-C stops generate, which says so: exit code 1", async () => {
  const child = task(["generate", "--tokens", "65", "-n", "500"]);
  const reader = child.stdout.getReader();
  await reader.read();
  child.kill("SIGINT");
  while (!(await reader.read()).done);
  const stderr = await new Response(child.stderr).text();
  const { code } = await child.status;
  if (code === 0) assertEquals(stderr, ""); // it was done already
  else assertEquals([code, stderr.replace(/\d+/, "N")], [1, "Interrupted after N tokens\n"]);
});

Deno.test("cli: tokenize reads text or a file, and needs no weights", async () => {
  const { tokens } = await runJson("tokenize", "--text", "Once upon a time");
  assert(tokens.length > 1);
  await withFolder(async (folder) => {
    await Deno.writeTextFile(join(folder, "text.txt"), "Once upon a time");
    assertEquals((await runJson("tokenize", "--file", join(folder, "text.txt"))).tokens, tokens);
    const vocabulary = new GgufBuilder()
      .set("general.architecture", "STRING", "llama")
      .set("tokenizer.ggml.model", "STRING", "gpt2")
      .set("tokenizer.ggml.pre", "STRING", "gpt-2")
      .array("tokenizer.ggml.tokens", "STRING", ["t", "h", "e", "th", "the", "<s>"])
      .array("tokenizer.ggml.token_type", "INT32", [1, 1, 1, 1, 1, 3])
      .array("tokenizer.ggml.merges", "STRING", ["t h", "th e"])
      .set("tokenizer.ggml.bos_token_id", "UINT32", 5)
      .set("tokenizer.ggml.add_bos_token", "BOOL", true);
    await Deno.writeFile(join(folder, "vocabulary.gguf"), vocabulary.build().bytes);
    // Paths are the caller's, wherever the task runs.
    const { code, stdout } = await run([
      "--config",
      join(root, "deno.json"),
      "tokenize",
      "--text",
      "theth",
      "--model",
      "vocabulary.gguf",
      "--json",
    ], folder);
    assertEquals([code, stdout], [0, '{"tokens":[4,3]}\n']);
  });
});

Deno.test("cli: inspect describes the file, the memory and the plan", async () => {
  const report = await runJson("inspect", "--ctx", "64", "--parallel", "2");
  assertEquals(report.metadata["general.architecture"], "llama");
  assert(report.metadata["tokenizer.ggml.tokens"].elements > 256);
  const bytes = report.formats.reduce((sum: number, f: { bytes: number }) => sum + f.bytes, 0);
  assert(bytes > 0 && bytes < report.file_bytes);
  assertEquals([report.context, report.parallel], [64, 2]);
  assertEquals(Object.keys(report.memory), ["weights", "kv", "states", "scratch"]);
  assertMatch(report.plan, /^plan llama: \d+ ops/);
  const text = await run(["inspect"]);
  assertEquals(text.code, 0);
  assertStringIncludes(text.stdout, 'general.architecture = "llama"\n');
});

Deno.test("cli: bench gives rates and shares of the limits", async () => {
  const report = await runJson("bench", "--pp", "16", "--tg", "4", "--npl", "1,3");
  assertEquals(Object.keys(report.limits), ["read_gbps", "int8_gops", "f32_gflops"]);
  const rows = report.rows.map((row: Record<string, unknown>) => [row.work, row.sequences, row.context]);
  assertEquals(rows, [["prefill", 1, 16], ["decode", 1, 19], ["decode", 3, 19]]);
  for (const { tokens_per_second, share_of_limit } of report.rows) {
    assert(tokens_per_second > 0 && share_of_limit > 0 && share_of_limit < 1.5);
  }
  assert(report.rss_mb > 1 && report.load_ms > 0 && report.isa.length > 0);
});

Deno.test("cli: batch answers a file", async () => {
  await withFolder(async (folder) => {
    const lines = ["Hello", "Who are you?"].map((content, n) =>
      JSON.stringify({
        custom_id: `q${n}`,
        method: "POST",
        url: "/v1/chat/completions",
        body: { model: "demo", messages: [{ role: "user", content }], max_tokens: 5, temperature: 0 },
      })
    );
    await Deno.writeTextFile(join(folder, "in.jsonl"), lines.join("\n"));
    const { code, stderr } = await run([
      "batch",
      "run",
      join(folder, "in.jsonl"),
      "--out",
      join(folder, "out.jsonl"),
    ]);
    assertEquals(code, 0, stderr);
    const answers = (await Deno.readTextFile(join(folder, "out.jsonl"))).trim().split("\n").map((l) =>
      JSON.parse(l)
    );
    assertEquals(answers.map((a) => [a.custom_id, a.response.status_code]), [["q0", 200], ["q1", 200]]);
  });
});

interface Served {
  readonly url: string;
  readonly child: Deno.ChildProcess;
  /** Ends the process with a signal; what it left. */
  stop(signal: Deno.Signal): Promise<{ code: number; stderr: string }>;
}

async function serve(...args: string[]): Promise<Served> {
  const child = task(["serve", "--port", "0", "--data", "none", ...args]);
  const stderr = new Response(child.stderr).text();
  const reader = child.stdout.pipeThrough(new TextDecoderStream()).getReader();
  let printed = "";
  while (!printed.includes("\n")) {
    const { value, done } = await reader.read();
    if (done) throw new Error(`serve ended: ${await stderr}`);
    printed += value;
  }
  const url = /^listening on (http:\/\/127\.0\.0\.1:\d+)\n$/.exec(printed)?.[1];
  if (!url) throw new Error(`serve printed ${printed}`);
  return {
    url,
    child,
    async stop(signal) {
      child.kill(signal);
      child.kill(signal); // as from a terminal, where a Ctrl-C comes twice
      while (!(await reader.read()).done);
      return { code: (await child.status).code, stderr: await stderr };
    },
  };
}

function chat(url: string, body: Record<string, unknown>): Promise<Response> {
  const messages = [{ role: "user", content: "Tell me a story" }];
  const headers = { "content-type": "application/json" };
  const whole = JSON.stringify({ model: "demo", messages, ...body });
  return fetch(`${url}/v1/chat/completions`, { method: "POST", headers, body: whole });
}

Deno.test("cli: serve answers on the port that it prints, until SIGTERM", async () => {
  const { url, stop } = await serve("--parallel", "2", "--ctx", "256");
  assertEquals(await (await fetch(`${url}/health`)).json(), { status: "ok" });
  const models = await (await fetch(`${url}/v1/models`)).json();
  assertEquals(models.data.map((m: { id: string }) => m.id), ["demo"]);
  const answer = await (await chat(url, { max_tokens: 8 })).json();
  assertEquals(answer.object, "chat.completion");
  assert(answer.usage.completion_tokens > 0);
  const taken = await run(["serve", "--port", new URL(url).port]);
  assertEquals(taken.code, 1);
  assertStringIncludes(taken.stderr, "the port is in use; choose another with --port");
  const { code, stderr } = await stop("SIGTERM");
  assertEquals(code, 0);
  assertMatch(stderr, /^demo: llama, 256 tokens of context, loaded in [^\n]*\n$/);
});

Deno.test("cli: on Ctrl-C serve ends the streams that run, then stops", async () => {
  const { url, stop } = await serve();
  const response = await chat(url, { max_tokens: 64, stream: true, ignore_eos: true });
  const [stopped, text] = await Promise.all([stop("SIGINT"), response.text()]);
  assertEquals(stopped.code, 0, stopped.stderr);
  assert(text.trimEnd().endsWith("data: [DONE]"), text);
  assertEquals(text.split(`"finish_reason":"length"`).length, 2, text);
});

Deno.test("cli: serve refuses an address that others reach without a key", async () => {
  const { code, stderr } = await run(["serve", "--host", "0.0.0.0", "--port", "0", "--data", "none"]);
  assertEquals(code, 1);
  assertStringIncludes(stderr, "needs an API key");
});

Deno.test("cli: convert makes a file that generate runs; what cannot be kept is exit code 1", async () => {
  await withFolder(async (folder) => {
    const checkpoint = tinyCheckpoint({ model: "qwen3", weights: "MXFP4", layout: "mlx", seed: 1 });
    await Deno.mkdir(join(folder, "tiny"));
    await writeCheckpoint(join(folder, "tiny"), checkpoint);
    const [tiny, a, b, c] = ["tiny", "a.gguf", "b.gguf", "c.gguf"].map((name) => join(folder, name));
    const report = await runJson("convert", tiny, "--out", a);
    assertEquals([report.path, report.architecture, report.left_out], [a, "qwen3", {}]);
    const [embedding] = report.tensors;
    assertEquals(embedding, { name: "token_embd.weight", type: "MXFP4", shape: [128, 320], source: "MXFP4" });
    const answer = await runJson("generate", "--model", a, "--prompt", "the", "-n", "3");
    assertEquals(answer.steps.length, 3);
    const again = await run(["convert", tiny, "--out", a]);
    assertEquals([again.code, again.stdout], [1, ""]);
    assertStringIncludes(again.stderr, `Error: Cannot write ${a}: it is there already`);
    const quantised = await run(["convert", tiny, "--out", b, "--quantize", "q8_0"]);
    assertMatch(
      quantised.stdout,
      /b\.gguf: qwen3, 0\.\d MB, read back and compared\n +29 tensors MXFP4 to Q8_0\n/,
    );
    assertMatch(quantised.stdout, /\n +0\.00\d{3} +\d\.\d\de-\d +blk\.3\.ffn_down\.weight\n/);
    await Deno.truncate(join(folder, "tiny", "model.safetensors"), 1000);
    const cut = await run(["convert", tiny, "--out", c]);
    assertEquals([cut.code, cut.stdout], [1, ""]);
    assertMatch(
      cut.stderr,
      /^Error: Cannot convert .*tiny\/model\.safetensors, .*: the file is cut short\n$/,
    );
    assertEquals([...Deno.readDirSync(folder)].map(({ name }) => name).sort(), ["a.gguf", "b.gguf", "tiny"]);
  });
});

Deno.test("cli: convert that is stopped with Ctrl-C leaves nothing behind", async () => {
  await withFolder(async (folder) => {
    await writeHollow(join(folder, "hollow"));
    const [hollow, out] = [join(folder, "hollow"), join(folder, "out.gguf")];
    const child = task(["convert", hollow, "--out", out, "--quantize", "mxfp4"]);
    const names = () => [...Deno.readDirSync(folder)].map(({ name }) => name).sort();
    for (let i = 0; names().length === 1 && i < 3000; i++) {
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    assertEquals(names(), ["hollow", "out.gguf.partial"]);
    child.kill("SIGINT");
    const { code, stderr } = await child.output();
    assertEquals([code, new TextDecoder().decode(stderr)], [1, "Error: Stopped; nothing is left behind\n"]);
    assertEquals(names(), ["hollow"]);
  });
});

const HOLLOW_ROWS = 200_000;

/** A checkpoint of zeros that takes seconds to convert and no room on the disk. */
async function writeHollow(folder: string): Promise<void> {
  const checkpoint = tinyCheckpoint({ model: "qwen3", weights: "BF16", layout: "hf", seed: 1 });
  checkpoint.config.vocab_size = HOLLOW_ROWS;
  await Deno.mkdir(folder);
  await writeCheckpoint(folder, checkpoint);
  const hidden = checkpoint.config.hidden_size as number;
  const bytes = HOLLOW_ROWS * hidden * 2;
  let at = bytes;
  const header: Record<string, unknown> = {
    "model.embed_tokens.weight": { dtype: "BF16", shape: [HOLLOW_ROWS, hidden], data_offsets: [0, bytes] },
  };
  for (const [name, tensor] of checkpoint.tensors) {
    if (name in header) continue;
    header[name] = {
      dtype: tensor.dtype,
      shape: tensor.shape,
      data_offsets: [at, at += tensor.bytes.length],
    };
  }
  const start = withHeader(JSON.stringify(header), []);
  await Deno.writeFile(join(folder, "model.safetensors"), start);
  await Deno.truncate(join(folder, "model.safetensors"), start.length + at);
}
