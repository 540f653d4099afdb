import { assert, assertEquals, assertRejects, assertThrows } from "@std/assert";
import { fromFileUrl, join } from "@std/path";
import { UsageError } from "../../bench/shell.ts";
import { fromBench, instructionSets, parseBatched, runLlamaBench } from "./llama_bench.ts";
import { peerOf } from "./peer.ts";
import type { Work } from "./report.ts";

const WORK: Work = { model: "m.gguf", prefill: 64, decode: 4, sequences: [1, 2], threads: 2 };

/** Output of llama-batched-bench, as llama.cpp and ik_llama.cpp print it. */
const BATCHED = `
llama_batched_bench: n_kv_max = 1024, n_batch = 2048, n_ubatch = 512, flash_attn = 1, is_pp_shared = 0, n_threads = 2

|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |    S t/s |
|-------|--------|------|--------|----------|----------|----------|----------|----------|----------|
|    64 |      4 |    1 |     68 |    0.416 |   153.85 |    1.884 |     2.12 |    2.300 |    29.56 |
|    64 |      4 |    1 |     68 |    0.160 |   400.00 |    0.119 |    33.58 |    0.279 |   243.73 |
|    64 |      4 |    2 |    136 |    0.462 |   277.24 |    0.324 |    24.68 |    0.786 |   173.05 |

`;
const LOADED = "load_backend: loaded CPU backend from /opt/lib/libggml-cpu-zen4.so\n";

/** Help and JSON output of llama-bench, shortened to the parts that are parsed. */
const LLAMA_CPP = {
  help: "  -pg <pp,tg>           (default: )\n  -d, --n-depth <n>     (default: 0)\n",
  json: [
    { cpu_info: "AMD EPYC", n_prompt: 64, n_gen: 0, n_depth: 0, avg_ts: 405.07, samples_ts: [405.07] },
    { cpu_info: "AMD EPYC", n_prompt: 0, n_gen: 4, n_depth: 0, avg_ts: 15.39, samples_ts: [15.39] },
    { cpu_info: "AMD EPYC", n_prompt: 64, n_gen: 0, n_depth: 64, avg_ts: 480.53, samples_ts: [480.53] },
    { cpu_info: "AMD EPYC", n_prompt: 0, n_gen: 4, n_depth: 64, avg_ts: 33.58, samples_ts: [33.58] },
  ],
};
const FORK = {
  help: "  -pg <pp,tg>           (default: )\n  -gp <pp,tg>           (default: )\n",
  json: [
    { n_prompt: 64, n_gen: 0, avg_ts: 333.1, test: "pp64" },
    { n_prompt: 64, n_gen: 4, avg_ts: 49.2, test: "tg4@pp64" },
  ],
};

/** Writes a program that prints `help` for --help and otherwise `output`, and records its arguments. */
async function fake(folder: string, name: string, help: string, output: string): Promise<string> {
  const path = join(folder, name);
  await Deno.writeTextFile(join(folder, "output"), output);
  await Deno.writeTextFile(join(folder, "help"), help);
  const script = `#!/bin/sh
cd ${folder}
if [ "$1" = --help ]; then cat help; exit 1; fi
printf '%s' "${LOADED.trim()}" >&2
printf '%s ' "$@" > arguments
cat output
`;
  await Deno.writeTextFile(path, script, { mode: 0o755 });
  return path;
}

async function inFolder(body: (folder: string) => Promise<void>): Promise<void> {
  const folder = await Deno.makeTempDir();
  try {
    await body(folder);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

Deno.test("llama-batched-bench: reads prefill and decode of every setting, without the warm-up row", () =>
  inFolder(async (folder) => {
    const program = await fake(folder, "llama-batched-bench", "", BATCHED);
    const report = await runLlamaBench(program, ["-rtr", "-fa", "on"], WORK);
    assertEquals(report.rows, [
      { work: "prefill", sequences: 1, tokens_per_second: 400 },
      { work: "decode", sequences: 1, tokens_per_second: 33.58 },
      { work: "decode", sequences: 2, tokens_per_second: 24.68 },
    ]);
    assertEquals(report.isa, "zen4");
    const asked = await Deno.readTextFile(join(folder, "arguments"));
    assertEquals(asked.trim(), "-m m.gguf -c 136 -t 2 -npp 64 -ntg 4 -npl 1,1,2 -rtr -fa on");
  }));

Deno.test("llama-batched-bench: reads the table from standard error too", () =>
  inFolder(async (folder) => {
    const program = await fake(folder, "llama-batched-bench", "", BATCHED);
    const script = await Deno.readTextFile(program);
    await Deno.writeTextFile(program, script.replace("cat output\n", "echo >&2; cat output >&2\n"));
    const { rows } = await runLlamaBench(program, [], WORK);
    assertEquals(rows.map((row) => row.tokens_per_second), [400, 33.58, 24.68]);
  }));

Deno.test("llama-bench: decodes after the prompt, with llama.cpp's or a fork's arguments", () =>
  inFolder(async (folder) => {
    const one = { ...WORK, sequences: [1] };
    for (
      const [{ help, json }, how, rates] of [
        [LLAMA_CPP, "-p 64 -n 4 -d 0,64", [405.07, 33.58]],
        [FORK, "-p 64 -n 0 -gp 64,4", [333.1, 49.2]],
      ] as const
    ) {
      const program = await fake(folder, "llama-bench", help, JSON.stringify(json));
      const { rows } = await runLlamaBench(program, [], one);
      assertEquals(rows.map((row) => row.tokens_per_second), [...rates]);
      const asked = await Deno.readTextFile(join(folder, "arguments"));
      assertEquals(asked.trim(), `-m m.gguf -t 2 -r 2 -o json ${how}`);
    }
    const program = join(folder, "llama-bench");
    await assertRejects(() => runLlamaBench(program, [], WORK), UsageError, "decodes one sequence");
    await Deno.writeTextFile(join(folder, "help"), "-pg <pp,tg>");
    await assertRejects(() => runLlamaBench(program, [], one), Error, "neither -d nor -gp");
  }));

Deno.test("llama-bench: refuses output without the requested figures", () => {
  assertThrows(() => parseBatched("error: unable to load model"), Error, "unable to load model");
  assertThrows(() => fromBench([], { ...WORK, sequences: [1] }), Error, "no test of a prompt of 64");
});

Deno.test("peers: instruction sets are those that the peer reports", () => {
  const info = "system_info: n_threads = 2 | AVX = 1 | AVX2 = 1 | AVX512 = 0 | AVX512_VNNI = 0 | FMA = 1 |\n";
  assertEquals(instructionSets({ stdout: "", stderr: info }), "AVX AVX2 FMA");
  assertEquals(instructionSets({ stdout: "", stderr: LOADED }), "zen4");
  const memories = "load_tensors:  AMX model buffer size = 194.01 MiB\n" +
    "load_tensors:   CPU_Mapped model buffer size = 164.04 MiB\n".repeat(2);
  assertEquals(instructionSets({ stdout: "", stderr: memories }), "AMX CPU_Mapped");
  assertEquals(instructionSets({ stdout: "", stderr: info + memories }), "AVX AVX2 FMA");
  assertEquals(instructionSets({ stdout: "", stderr: "" }), undefined);
});

Deno.test("bench:peers: --peer selects a peer; unsupported options are refused, and the message states the reason", () => {
  assertEquals(peerOf("llama-bench=bin/llama-bench", "cpu", ["-rtr", "1"], "/x").name, "llama-bench -rtr 1");
  assert(peerOf("openvino", "cpu", [], "/").name.startsWith("OpenVINO GenAI"));
  assertThrows(() => peerOf("vllm", "cpu", [], "/"), UsageError, 'llama-bench=PATH (got "vllm")');
  assertThrows(() => peerOf("openvino", "webgpu", [], "/"), UsageError, "--backend webgpu");
  assertThrows(() => peerOf("openvino", "cpu", ["-fa"], "/"), UsageError, "--peer-args");
});

Deno.test("bench:peers: alternates with a user's program and reports every round", () =>
  inFolder(async (folder) => {
    const root = fromFileUrl(new URL("../..", import.meta.url));
    const program = await fake(folder, "llama-batched-bench", "", BATCHED);
    const size = ["--model", "models/demo.gguf", "--pp", "64", "--tg", "4", "--npl", "1,2", "--threads", "1"];
    const args = [
      ...size,
      "--rounds",
      "2",
      "--peer",
      `llama-bench=${program}`,
      "--peer-args=-rtr",
      "--json",
    ];
    const command = ["run", "-q", "-P=peers", "lab/peers.ts", ...args];
    const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
      args: command,
      cwd: root,
      env: { PATH: `${join(Deno.execPath(), "..")}:${Deno.env.get("PATH")}`, INIT_CWD: root },
    }).output();
    assertEquals(code, 0, new TextDecoder().decode(stderr));
    const report = JSON.parse(new TextDecoder().decode(stdout));
    assertEquals(report.peer, "llama-batched-bench -rtr");
    assertEquals(report.isa.peer, "zen4");
    assert(report.isa.compy.length > 0 && report.limits.read_gbps > 0 && report.machine.cores >= 1);
    if (Deno.build.os === "linux") assert(report.machine.cpu.length > 0);
    const whats = report.rows.map((row: { what: string }) => row.what);
    assertEquals(whats, ["prefill of 64", "decode, 1 at once", "decode, 2 at once"]);
    for (const { rounds, peer, ratio, compy } of report.rows) {
      assertEquals([rounds.compy.length, rounds.peer.length, rounds.ratio.length], [2, 2, 2]);
      assertEquals(ratio, compy / peer);
    }
  }));

Deno.test({
  name: "bench:peers: ends the peer when it is ended itself",
  ignore: Deno.build.os === "windows",
  fn: () =>
    inFolder(async (folder) => {
      const root = fromFileUrl(new URL("../..", import.meta.url));
      const started = join(folder, "started");
      const program = join(folder, "llama-batched-bench");
      await Deno.writeTextFile(
        program,
        `#!/bin/sh\necho $$ > ${started}.new\nmv ${started}.new ${started}\nexec sleep 60\n`,
        {
          mode: 0o755,
        },
      );
      const script = `import { runBoth } from "${new URL(
        "../../bench/shell.ts",
        import.meta.url,
      )}"; await runBoth("${program}", ["-m"]);`;
      await Deno.writeTextFile(join(folder, "run.ts"), script);
      const child = new Deno.Command(Deno.execPath(), {
        args: ["run", "-q", "-A", "--config", join(root, "deno.json"), join(folder, "run.ts")],
      }).spawn();
      const pid = await until(() => Deno.readTextFile(started).then(Number, () => undefined));
      child.kill("SIGTERM");
      assertEquals((await child.status).code, 143);
      // Sending a signal fails once the process is gone. The system may need a moment to end it.
      await until(() => Promise.resolve(isGone(pid) || undefined));
    }),
});

/** Repeats `look` until it returns a value, and returns that value. */
async function until<T>(look: () => Promise<T | undefined>): Promise<T> {
  for (let i = 0; i < 600; i++) {
    const found = await look();
    if (found !== undefined) return found;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error("It did not happen within 30 s");
}

function isGone(pid: number): boolean {
  try {
    Deno.kill(pid, "SIGCONT");
    return false;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return true;
    throw error;
  }
}
