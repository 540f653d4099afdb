import { assertEquals, assertStringIncludes } from "@std/assert";
import { check, importsOf } from "./layers.ts";

Deno.test("layers: imports are found in every form, and not in comments", () => {
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

const importing = (target: string) => `import { x } from ${JSON.stringify(target)};`;

const FINE: [file: string, target: string][] = [
  ["main.ts", "./cli/shared/command_line.ts"],
  ["cli/serve/serve.ts", "../lib/serving.ts"],
  ["routes/app.ts", "../engine/mod.ts"],
  ["routes/generation/messages.ts", "./fields.ts"],
  ["routes/openai/completions.ts", "../shared/fields.ts"],
  ["jobs/run/runner.ts", "./journal.ts"],
  ["engine/load/load.ts", "./backend/cpu/cpu.ts"],
  ["engine/loop/engine.ts", "./backend/backend.ts"],
  ["engine/backend/cpu/cpu.ts", "../../../ffi/library.ts"],
  ["engine/architectures/decoders/llama.ts", "../../plan/builder.ts"],
  ["engine/loop/engine_test.ts", "../ffi/library.ts"],
  ["tests/cli/cli_test.ts", "../engine/load/load.ts"],
];

const BROKEN: [file: string, target: string][] = [
  ["main.ts", "./engine/load/load.ts"],
  ["cli/serve/serve.ts", "../engine/mod.ts"],
  ["cli/serve/serve.ts", "../routes/serve.ts"],
  ["cli/batch/batch.ts", "../jobs/run/runner.ts"],
  ["routes/app.ts", "../engine/load/load.ts"],
  ["routes/app.ts", "../jobs/run/runner.ts"],
  ["routes/core/fields.ts", "../endpoints/completions.ts"],
  ["routes/llama_server/tokenize.ts", "./detokenize.ts"],
  ["jobs/run/runner.ts", "../routes/execute.ts"],
  ["jobs/run/runner.ts", "../engine/schedule/scheduler.ts"],
  ["engine/loop/engine.ts", "./load.ts"],
  ["engine/loop/engine.ts", "./backend/cpu/cpu.ts"],
  ["engine/schedule/scheduler.ts", "./gguf/reader.ts"],
  ["engine/gguf/reader.ts", "../plan/plan.ts"],
  ["engine/tokenizer/bpe.ts", "../types.ts"],
  ["engine/architectures/decoders/llama.ts", "../../backend/backend.ts"],
  ["engine/plan/encode.ts", "../backend/cpu/cpu.ts"],
  ["engine/backend/backend.ts", "./cpu/cpu.ts"],
  ["engine/backend/choose.ts", "../../ffi/library.ts"],
  ["engine/backend/cpu/cpu.ts", "../webgpu/limits.ts"],
  ["engine/backend/webgpu/webgpu.ts", "../cpu/cpu.ts"],
  ["engine/backend/webgpu/webgpu.ts", "../../../ffi/library.ts"],
  ["ffi/library.ts", "../engine/mod.ts"],
  ["cli/serve/serve.ts", "./testing.ts"],
];

Deno.test("layers: imports with the flow pass", () => {
  for (const [file, target] of FINE) assertEquals(check(file, importing(target)), []);
});

Deno.test("layers: imports against the flow are named, with the rule", () => {
  for (const [file, target] of BROKEN) {
    const [problem, ...others] = check(file, importing(target));
    assertStringIncludes(problem ?? `nothing for ${file} -> ${target}`, `${file} imports `);
    assertEquals(others, []);
  }
});

Deno.test("layers: a packed file does not ask where it stands", () => {
  const source = 'const FILE = new URL("x", import.meta.url); if (import.meta.main) run();';
  assertStringIncludes(check("engine/load/load.ts", source)[0], "engine/load/load.ts asks where it stands");
  for (const file of ["package.ts", "tools/build.ts", "engine/load_test.ts"]) {
    assertEquals(check(file, source), []);
  }
  assertEquals(check("engine/load/load.ts", "if (import.meta.main) run(); // import.meta.url"), []);
});

Deno.test("layers: a file outside all folders is a problem of its own", () => {
  assertEquals(check("extra/x.ts", ""), [
    "extra/x.ts belongs to no layer; add its folder to tools/layers.ts",
  ]);
});
