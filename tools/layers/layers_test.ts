import { assertEquals, assertStringIncludes } from "@std/assert";
import { cyclesOf, importsOf } from "./imports.ts";
import functionLength from "./function_length.ts";
import { check, checkAll } from "./layers.ts";

Deno.test("layers: finds imports in every form and ignores comments", () => {
  const source = `
    import { a } from "./a.ts";
    import type {
      B,
    } from "../b.ts";
    export * from "../engine/mod.ts";
    import "./effect.ts";
    const late = await import("../late.ts");
    import { join } from "@std/path";
    // import { no } from "./no.ts";
    /* from "./never.ts" */
    const url = "https://example.org"; import { c } from "./c.ts";
  `;
  const found = ["cli/a.ts", "b.ts", "engine/mod.ts", "cli/effect.ts", "late.ts", "cli/c.ts"];
  assertEquals(importsOf("cli/x.ts", source), found);
});

/** Returns a source at `file` that imports `target`; both are paths from the root. */
function importing(file: string, target: string): string {
  return `import type { X } from "${"../".repeat(file.split("/").length - 1) || "./"}${target}";`;
}

const ALLOWED: [file: string, target: string][] = [
  ["main.ts", "cli/command_line.ts"],
  ["cli/serve/serve.ts", "lib/serving.ts"],
  ["routes/app.ts", "engine/mod.ts"],
  ["routes/generation/messages.ts", "routes/core/fields.ts"],
  ["routes/openai/completions.ts", "routes/core/fields.ts"],
  ["jobs/run/runner.ts", "jobs/journal/journal.ts"],
  ["engine/load/load.ts", "engine/backend/cpu/cpu.ts"],
  ["engine/loop/engine.ts", "engine/backend/backend.ts"],
  ["engine/backend/cpu/cpu.ts", "ffi/library.ts"],
  ["engine/architectures/decoders/llama.ts", "engine/plan/builder.ts"],
  ["engine/loop/engine_test.ts", "ffi/library.ts"],
  ["tests/cli/cli_test.ts", "engine/load/load.ts"],
  ["engine/gguf/errors.ts", "engine/api/errors.ts"],
];

const FORBIDDEN: [file: string, target: string][] = [
  ["main.ts", "engine/load/load.ts"],
  ["cli/serve/serve.ts", "engine/mod.ts"],
  ["cli/serve/serve.ts", "routes/serve.ts"],
  ["cli/shared/model.ts", "cli/serve/serve.ts"],
  ["cli/batch/batch.ts", "jobs/run/runner.ts"],
  ["routes/app.ts", "engine/load/load.ts"],
  ["routes/app.ts", "jobs/run/runner.ts"],
  ["routes/core/fields.ts", "routes/openai/completions.ts"],
  ["routes/llama_server/tokenize.ts", "routes/openai/models.ts"],
  ["jobs/run/runner.ts", "routes/execute.ts"],
  ["jobs/run/runner.ts", "engine/schedule/scheduler.ts"],
  ["engine/api/request.ts", "engine/schedule/sequence.ts"],
  ["engine/loop/engine.ts", "engine/load/load.ts"],
  ["engine/loop/engine.ts", "engine/backend/cpu/cpu.ts"],
  ["engine/loop/engine.ts", "engine/mod.ts"],
  ["engine/schedule/scheduler.ts", "engine/gguf/reader.ts"],
  ["engine/gguf/reader.ts", "engine/plan/plan.ts"],
  ["engine/tokenizer/bpe.ts", "engine/api/events.ts"],
  ["engine/architectures/decoders/llama.ts", "engine/backend/backend.ts"],
  ["engine/plan/encode.ts", "engine/backend/cpu/cpu.ts"],
  ["engine/backend/backend.ts", "engine/backend/cpu/cpu.ts"],
  ["engine/backend/choose.ts", "ffi/library.ts"],
  ["engine/backend/cpu/cpu.ts", "engine/backend/webgpu/device/limits.ts"],
  ["engine/backend/webgpu/webgpu.ts", "engine/backend/cpu/cpu.ts"],
  ["engine/backend/webgpu/webgpu.ts", "ffi/library.ts"],
  ["ffi/library.ts", "engine/mod.ts"],
  ["cli/serve/serve.ts", "testing/engine.ts"],
  ["engine/load/load.ts", "convert/convert.ts"],
  ["tests/cli/cli_test.ts", "tests/campaigns/storms_campaign.ts"],
  ["tests/cli/cli_test.ts", "lab/peers.ts"],
];

Deno.test("layers: accepts imports that the table allows", () => {
  for (const [file, target] of ALLOWED) assertEquals(check(file, importing(file, target)), []);
});

Deno.test("layers: names a forbidden import with its rule", () => {
  for (const [file, target] of FORBIDDEN) {
    const [problem, ...others] = check(file, importing(file, target));
    assertStringIncludes(problem ?? `nothing for ${file} -> ${target}`, `${file} imports ${target}`);
    assertEquals(others, []);
  }
});

Deno.test("layers: refuses imports of Node's modules in the engine, which browsers load, except types", () => {
  const values = 'import {\n  AsyncLocalStorage,\n} from "node:async_hooks";\n';
  assertStringIncludes(check("engine/pacing/pauses.ts", values)[0] ?? "", "process.getBuiltinModule()");
  assertEquals(check("engine/load/load.ts", 'import type { Hash } from "node:crypto";\n'), []);
  assertEquals(check("routes/app.ts", values), []);
});

Deno.test("layers: refuses a file of the npm bundle that uses its own path", () => {
  const source = 'const FILE = new URL("x", import.meta.url); if (import.meta.main) run();';
  assertStringIncludes(check("engine/load/load.ts", source)[0], "engine/load/load.ts uses its own path");
  for (const file of ["package.ts", "tools/build.ts", "engine/load_test.ts"]) {
    assertEquals(check(file, source), []);
  }
  assertEquals(check("engine/load/load.ts", "if (import.meta.main) run(); // import.meta.url"), []);
});

Deno.test("layers: names a file outside all folders", () => {
  assertEquals(check("extra/x.ts", ""), [
    "extra/x.ts belongs to no layer; add its folder to tools/layers/rules.ts",
  ]);
});

Deno.test("layers: refuses command-line options and HTTP paths in the engine", () => {
  const sources = [
    "throw new Error(`too large: use --ctx ${most}`);",
    'const path = "/v1/rerank";',
    "const text = `one${more ? `, or another that GET /v1/models lists` : ``}`;",
  ];
  for (const source of sources) {
    assertStringIncludes(check("engine/load/load.ts", source)[0] ?? "", "cli/ and routes/ word advice");
    assertEquals(check("cli/serve/serve.ts", source), []);
  }
  assertEquals(check("engine/load/load.ts", "while (--users > 0); // see --ctx"), []);
});

Deno.test("layers: refuses imports of values in the engine's interface", () => {
  const source = 'import { X } from "./errors.ts";';
  assertStringIncludes(check("engine/api/request.ts", source)[0] ?? "", "imports values");
});

Deno.test("layers: refuses files of more than 400 lines and folders of more than 20 files", () => {
  assertEquals(check("jobs/run/runner.ts", "x\n".repeat(400)), []);
  assertStringIncludes(check("jobs/run/runner.ts", "x\n".repeat(401))[0] ?? "", "has 401 lines");
  const files = (count: number) => Array.from({ length: count }, (_, i) => `jobs/${i}.ts`);
  const all = (names: string[]) => checkAll(new Map(names.map((name) => [name, ""])), names);
  assertEquals(all([...files(20), "jobs/a_test.ts"]), []);
  assertStringIncludes(all(files(21))[0] ?? "", "jobs/ has 21 source files");
});

Deno.test("layers: finds cycles of any length", () => {
  const graph = new Map([["a", ["b"]], ["b", ["c"]], ["c", ["a", "d"]], ["d", []], ["e", ["e", "a"]]]);
  assertEquals(cyclesOf(graph), [["a", "b", "c"]]);
  const sources = new Map([["jobs/a.ts", 'import "../hub/b.ts";'], ["hub/b.ts", 'import "../jobs/a.ts";']]);
  assertEquals(checkAll(sources, ["jobs/a.ts"]), ["2 files import each other: hub/b.ts, jobs/a.ts"]);
});

Deno.test("layers: names files that nothing uses", () => {
  const sources = new Map([["main.ts", 'new Worker("./cli/w.ts");'], ["cli/w.ts", ""], ["cli/x.ts", ""]]);
  assertEquals(checkAll(sources, ["main.ts"]), [
    "cli/x.ts is not reachable from main.ts, mod.ts, a task or a test",
  ]);
});

Deno.test("lint: refuses functions of more than 70 lines outside tests", () => {
  const source = (lines: number) => `export function f() {\n${"  f();\n".repeat(lines - 2)}}\n`;
  const problems = (file: string, lines: number) =>
    Deno.lint.runPlugin(functionLength, file, source(lines)).map(({ message }) => message);
  assertEquals(problems("jobs/a.ts", 70), []);
  assertEquals(problems("jobs/a.ts", 71), ["This function has 71 lines: at most 70 are allowed"]);
  assertEquals(problems("jobs/a_test.ts", 71), []);
});
