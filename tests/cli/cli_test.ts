import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { join } from "@std/path";
import { libraryFile } from "../../ffi/find.ts";
import { GgufBuilder } from "../../engine/gguf/testing.ts";
import { root, run, runJson, runWith, task, withFolder } from "../../testing/commands.ts";
import { fullTier } from "../../testing/tier.ts";
const COMMANDS = [
  "serve",
  "chat",
  "generate",
  "tokenize",
  "batch",
  "inspect",
  "convert",
  "bench",
  "perplexity",
  "imatrix",
  "embed",
  "doctor",
  "pull",
];

for (const command of COMMANDS) {
  fullTier.test(`cli: ${command} --help explains with exit code 0; an unknown option is exit code 2`, async () => {
    const help = await run([command, "--help"]);
    assertEquals([help.code, help.stderr], [0, ""]);
    assertStringIncludes(help.stdout, `Usage: deno task ${command}`);
    const wrong = await run([command, "--nonsense"]);
    assertEquals([wrong.code, wrong.stdout], [2, ""]);
    assertEquals(wrong.stderr, `Error: There is no option --nonsense\nSee: deno task ${command} --help\n`);
  });
}

Deno.test("cli: compy without arguments names the next steps; --help lists the commands", async () => {
  const start = (...words: string[]) => {
    const args = ["run", "-q", "-P=compute", "main.ts", ...words];
    return new Deno.Command(Deno.execPath(), { args, cwd: root, env: { NO_COLOR: "1" } }).output();
  };
  const [welcome, help] = await Promise.all([start(), start("--help")]);
  const [first, all] = [welcome, help].map(({ stdout }) => new TextDecoder().decode(stdout));
  assertEquals([welcome.code, help.code], [0, 0]);
  for (const command of ["chat", "serve", "batch run", "pull", "doctor"]) {
    assertStringIncludes(first, `deno task ${command}`);
  }
  for (const command of COMMANDS) assertStringIncludes(all, `\n  ${command} `);
});

fullTier.test("cli: --log-level selects the messages on standard error", async () => {
  const keys = await Deno.makeTempFile({ suffix: ".json" });
  await Deno.writeTextFile(keys, '{"keys":[{"name":"one","key":"a-key-that-others-may-read"}]}');
  await Deno.chmod(keys, 0o644);
  const told = async (level: string, ...options: string[]) => {
    const child = task(["serve", "--port", "0", "--data", "none", "--log-level", level, ...options]);
    const errors = new Response(child.stderr).text();
    for await (const text of child.stdout.pipeThrough(new TextDecoderStream())) {
      const url = /^listening on (\S+)$/m.exec(text)?.[1];
      if (url === undefined) continue;
      await (await fetch(`${url}/health`)).body?.cancel();
      child.kill("SIGTERM");
    }
    return await errors;
  };
  const [error, warning, info, debug] = await Promise.all([
    told("error", "--api-keys", keys),
    told("warning", "--api-keys", keys),
    told("info"),
    told("debug"),
  ]);
  await Deno.remove(keys);
  assertEquals(error, "");
  assertMatch(warning, /^Other users may read the key file .*\n$/);
  assertMatch(info, /^demo: llama, .*\n$/);
  assertMatch(debug, /\n\{.*"\/health".*\}\n$/);
  const wrong = await run(["generate", "--prompt", "a", "--log-level=loud"]);
  assertEquals(wrong.code, 2);
  assertStringIncludes(wrong.stderr, '--log-level must be one of error, warning, info, debug (got "loud")');
});

fullTier.test("cli: --library is the only folder that is searched for libraries, and the command needs FFI permission for that folder", async () => {
  await withFolder(async (folder) => {
    const missing = await run(["generate", "--prompt", "a", "--library", folder]);
    assertEquals([missing.code, missing.stdout], [1, ""]);
    assertMatch(missing.stderr, /^Error: Cannot load the kernels\. Looked at:\n {2}\S+: not there\n {2}Run /);
    await Deno.writeTextFile(join(folder, libraryFile("compy")), "");
    const refused = await run(["generate", "--prompt", "a", `--library=${folder}`]);
    assertEquals(refused.code, 1);
    assertStringIncludes(refused.stderr, `FFI is not permitted there\n  Allow it: --allow-ffi=${folder}\n`);
  });
  const nothing = await run(["generate", "--library"]);
  assertEquals([nothing.code, nothing.stdout], [2, ""]);
  assertMatch(nothing.stderr, /^Error: --library needs a folder: --library DIR\n/);
});

const WRONG_USAGE: [args: string, message: string][] = [
  ["generate", "There is no text: give TEXT, --prompt, --file or --tokens, or send one to standard input"],
  ["chat --lines hello", "--lines reads its messages from standard input: leave out TEXT and --file"],
  [
    "generate --prompt a --chat b",
    "Give one of TEXT, --prompt, --chat and --tokens (got --prompt and --chat)",
  ],
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
  ["generate --tokens 1 --schema b", "--schema and --grammar need a text"],
  [
    "generate --prompt a --thinking",
    "--thinking is for messages; give TEXT in place of --prompt or --tokens",
  ],
  ["generate --prompt a --effort none", "--effort is for messages; give TEXT"],
  ["generate --chat a --effort much", "--effort must be one of none, minimal, low,"],
  ["serve --port -1", `--port must be a whole number from 0 to 65535 (got "-1")`],
  ["serve --port 65536", "--port must be a whole number from 0 to 65535"],
  ["serve --parallel 0", "--parallel must be a whole number from 1"],
  ["serve --kv-type q5_0", `--kv-type must be one of f16, q8_0, q4_0 (got "q5_0")`],
  [
    "generate --prompt a --speculate much",
    `--speculate must be one of auto, off, lookup, mtp, draft (got "much")`,
  ],
  ["serve --speculate on", `--speculate must be one of auto, off, lookup, mtp, draft (got "on")`],
  ["serve here", `Found "here", which belongs to no option`],
  ["tokenize", "Give one of --text and --file (got neither)"],
  ["bench --npl 1,0", "--npl must be whole numbers from 1 to 1024, with commas between them"],
  ["perplexity", "Give the text: --file FILE"],
  ["imatrix --out a.gguf", "Give the text: --file TEXT"],
  ["imatrix --file a.txt", "Give the file to write: --out FILE.gguf"],
  ["convert here --out a.gguf --imatrix b.gguf", "--imatrix needs --quantize TYPE"],
  ["inspect --model=", "--model needs a value"],
  ["embed", "TEXTS.jsonl is missing"],
  ["embed a.jsonl", "Give the file to write: --out FILE.npy or FILE.jsonl"],
  ["embed a.jsonl --out b.csv", '--out must end in .npy or .jsonl (got "b.csv")'],
  ["embed a.jsonl --out b.npy --pooling rank", '--pooling must be one of mean, cls, last (got "rank")'],
  ["convert --out a.gguf", "Give the checkpoint's folder first (got none)"],
  ["convert here", "Give the file to write: --out FILE.gguf"],
  [
    "convert here --out a.gguf --quantize q9",
    `--quantize must be one of q8_0, q6_k, q5_k, q4_k, q3_k, q2_k, iq4_xs, iq4_nl, iq3_s, iq3_xxs, iq2_s, iq2_xs, iq2_xxs, iq1_m, iq1_s, q4_0, mxfp4, tq2_0, tq1_0, q2_0, q1_0 (got "q9")`,
  ],
];
Deno.test("cli: chat --lines prints only answers to the lines of a pipe, and exits with 1 if it cannot answer", async () => {
  const good = await runWith("/set seed 1\nWho are you?\n/bye\n", ["chat", "--lines", "--temperature", "0"]);
  const answer = "My name is compy. I am a very small language model.\n";
  assertEquals([good.code, good.stdout, good.stderr], [0, answer, ""]);
  const bad = await runWith(`${"word ".repeat(80)}\nWho are you?`, [
    "chat",
    "--lines",
    "--temperature",
    "0",
    "--ctx",
    "64",
  ]);
  assertEquals([bad.code, bad.stdout], [1, answer]);
  assertMatch(bad.stderr, /^Error: .*\/clear starts a new conversation/);
});

fullTier.test("cli: chat and generate answer a pipe as one message, only on standard output", async () => {
  const answers = await Promise.all(["chat", "generate"].map(async (command) => {
    const { code, stdout, stderr } = await runWith("Who are\r\nyou?\r\n", [command, "--temperature", "0"]);
    assertEquals([code, stderr], [0, ""]);
    assertMatch(stdout, /^[^\n]+\n$/);
    return stdout;
  }));
  assertEquals(answers[0], answers[1]);
});

fullTier.test("cli: wrong usage exits with 2 and names the right usage", async () => {
  for (const [args, message] of WRONG_USAGE) {
    const { code, stdout, stderr } = await run(args.split(" "));
    assertEquals([code, stdout], [2, ""], `${args}: ${stderr}`);
    assertStringIncludes(stderr, message);
  }
});

fullTier.test("cli: main.ts lists the commands for --help and for an unknown command", async () => {
  const main = async (...args: string[]) => {
    const command = ["run", "-q", "-P=compute", "main.ts", ...args];
    const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), { args: command, cwd: root })
      .output();
    return [code, new TextDecoder().decode(stdout) + new TextDecoder().decode(stderr)] as const;
  };
  const [code, help] = await main("--help");
  assertEquals(code, 0);
  for (const command of COMMANDS) assertStringIncludes(help, `  ${command} `);
  const [wrong, message] = await main("sevre");
  assertEquals(wrong, 2);
  assertStringIncludes(message, `There is no command "sevre"; the commands are serve, chat, generate`);
});

fullTier.test("cli: unusable files are reported in one line with exit code 1", async () => {
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

fullTier.test("cli: generate --chat answers to the end or to the context limit", async () => {
  const chat = ["generate", "--chat", "Tell me a story about a small dinosaur.", "--temperature", "0"];
  const whole = await runJson(...chat);
  assert(whole.steps.length > 32, `${whole.steps.length}`);
  assertMatch(whole.text, /[.!]$/);
  const cut = await runJson(...chat, "--ctx", "48");
  assertEquals(cut.tokens.length + cut.steps.length, 48);
  assert(whole.text.startsWith(cut.text));
});

fullTier.test("cli: insufficient memory is refused with the figures before loading", async () => {
  const start = performance.now();
  const { code, stdout, stderr } = await run(["serve", "--kv-mb", "10000000", "--data", "none"]);
  const seconds = (performance.now() - start) / 1000;
  assertEquals([code, stdout], [1, ""]);
  assertMatch(
    stderr,
    new RegExp(
      "^Error: The model needs 10,000,00\\d\\.\\d MB of memory with these settings, and [\\d,]+\\.\\d MB are free for it:\n" +
        " {2}weights +1\\.\\d MB\n {2}activations +\\d\\.\\d MB\n {2}KV cache +10,000,000\\.0 MB {2}\\(--kv-mb, in 16 bits\\)\n" +
        "  What fits: --kv-mb \\d+\n$",
    ),
  );
  assert(seconds < 10, `it took ${seconds} s`);
  const batch = ["batch", "run", "in.jsonl", "--out", "out.jsonl"];
  const workers = await run([...batch, "--kv-mb", "5", "--nats", "nats://127.0.0.1"]);
  assertEquals(workers.code, 2);
  assertStringIncludes(workers.stderr, "--kv-mb is an option of the workers; leave it out with --nats");
});

fullTier.test("cli: inspect reports free memory, and says when it limits the context to the model's own", async () => {
  const { memory_free } = await runJson("inspect");
  assert(memory_free > 10 * 2 ** 20, `${memory_free}`);
  const { code, stderr } = await run(["generate", "--prompt", "Once", "-n", "1", "--ctx", "8192"]);
  assertEquals([code, stderr], [0, "A context of 8192 tokens is cut to 512, the model's own\n"]);
});

fullTier.test("cli: generate --tokens --json prints greedy tokens with the most probable alternatives", async () => {
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

fullTier.test("cli: an 8-bit KV cache takes half of the memory, answers, and makes auto select the CPU", async () => {
  const memory = async (type: string) => (await runJson("inspect", "--kv-type", type)).memory.kv;
  // Mean bytes of keys and values in a head of 32 dimensions, with its scales. In q4_0, keys take 26 and values 18.
  assertEquals(await memory("q8_0") / await memory("f16"), 34 / 66);
  assertEquals(await memory("q4_0") / await memory("f16"), 22 / 66);
  const args = ["generate", "--prompt", "Once upon a time", "-n", "12", "--temperature", "0"];
  const [halves, codes] = [
    await runJson(...args),
    await runJson(...args, "--kv-type", "q8_0", "--backend", "auto"),
  ];
  assertEquals(codes.steps.length, 12);
  // The first token is skipped: its probability is too near to 1 to show a difference.
  const best = ({ steps: [, { top }] }: { steps: { top: [number, number][] }[] }) => top[0];
  assertEquals(best(codes)[0], best(halves)[0]);
  const apart = Math.abs(best(codes)[1] - best(halves)[1]);
  assert(apart > 0 && apart < 0.05, `the second token's log-probability is ${apart} from that with halves`);
});

fullTier.test("cli: generate continues after end tokens with --tokens, and stops at end tokens with --chat", async () => {
  const { metadata } = await runJson("inspect");
  const end = metadata["tokenizer.ggml.eot_token_id"];
  const biased = await runJson("generate", "--tokens", String(end), "-n", "60");
  assertEquals(biased.steps.length, 60);
  const chat = await runJson("generate", "--chat", "Hello", "-n", "400", "--temperature", "0");
  assert(chat.steps.length < 400, chat.text);
});

Deno.test("cli: generate streams text, and a seed repeats it", async () => {
  const args = ["generate", "--prompt", "Once upon a time", "-n", "12", "--seed", "7"];
  const first = await run(args);
  assertEquals([first.code, first.stderr], [0, ""]);
  assert(first.stdout.trim().length > 0);
  assertEquals((await run(args)).stdout, first.stdout);
  const lines = await run([...args.slice(0, 4), "3", "--logprobs", "2"]);
  assertMatch(lines.stdout, /^(-\d+\.\d{4} "[^\t]*"\t-\d+\.\d{4} "[^\t]*"\t-\d+\.\d{4} "[^\t]*"\n){3}$/);
});

fullTier.test("cli: generate stops on Ctrl-C with a message and exit code 1", async () => {
  const child = task(["generate", "--tokens", "65", "-n", "500"]);
  const reader = child.stdout.getReader();
  await reader.read();
  child.kill("SIGINT");
  while (!(await reader.read()).done);
  const stderr = await new Response(child.stderr).text();
  const { code } = await child.status;
  if (code === 0) assertEquals(stderr, ""); // it had already finished
  else assertEquals([code, stderr.replace(/\d+/, "N")], [1, "Interrupted after N tokens\n"]);
});

Deno.test("cli: tokenize accepts text or a file without weights", async () => {
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
    // Paths are relative to the caller's folder, not the task's.
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

fullTier.test("cli: perplexity scores a text, also against another model", async () => {
  await withFolder(async (folder) => {
    const file = join(folder, "text.txt");
    await Deno.writeTextFile(file, "Kate the fairy heard him. ".repeat(20));
    const args = [
      "perplexity",
      "--file",
      file,
      "--ctx",
      "32",
      "--chunks",
      "2",
      "--against",
      "models/demo.gguf",
    ];
    const report = await runJson(...args);
    assertEquals([report.model, report.kv_type, report.ctx, report.tokens], ["demo", "f16", 32, 30]);
    assert(Math.abs(report.against.divergence.value) < 1e-12);
    assertEquals(report.perplexity.value, Math.exp(report.nll.value));
    const { code, stdout, stderr } = await run(args);
    assertEquals([code, stderr], [0, ""]);
    assertMatch(
      stdout,
      /\nchunks of 32 tokens: 2, with 30 scored tokens\n\nperplexity \d+\.\d{4} ± \d+\.\d{4}\n/,
    );
    assertMatch(stdout, /\nagainst demo\n(.*\n)*same top token +100\.000 % ± 0\.000 %\n/);
  });
});

fullTier.test("cli: imatrix writes the inputs of every matrix in the layers, and never replaces a file", async () => {
  await withFolder(async (folder) => {
    const [file, out] = [join(folder, "text.txt"), join(folder, "a.gguf")];
    await Deno.writeTextFile(file, "Kate the fairy heard him. ".repeat(20));
    const args = ["imatrix", "--file", file, "--ctx", "32", "--chunks", "2", "--out", out];
    const { code, stdout, stderr } = await run(args);
    assertEquals([code, stderr], [0, ""]);
    assertEquals(stdout, `${out}: inputs of 28 matrices of demo, 2 chunks of 32 tokens\n`);
    const again = await run(args);
    assertEquals(again.code, 1);
    assertStringIncludes(again.stderr, "already exists");
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
  const layers = report.metadata["llama.block_count"];
  assertEquals(report.layers, [{ kind: "attention", count: layers }]);
  assertMatch(report.plan, /^plan llama: \d+ ops/);
  const text = await run(["inspect"]);
  assertEquals(text.code, 0);
  assertStringIncludes(text.stdout, 'general.architecture = "llama"\n');
  assertStringIncludes(text.stdout, `layers: ${layers} of attention\n`);
});

fullTier.test("cli: bench prints rates and shares of the machine's limits", async () => {
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
