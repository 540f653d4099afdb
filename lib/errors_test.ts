import { assertEquals, assertInstanceOf, assertStrictEquals, assertThrows } from "@std/assert";
import { GpuError } from "../engine/backend/webgpu/errors.ts";
import { GgufError } from "../engine/gguf/errors.ts";
import { MemoryError } from "../engine/load/memory_error.ts";
import { ChatTemplateError } from "../engine/tokenizer/types.ts";
import { ConstraintError, EngineError } from "../engine/mod.ts";
import { GrammarLibraryError } from "../ffi/grammar.ts";
import { KernelError } from "../ffi/library.ts";
import { BatchError } from "../jobs/errors.ts";
import { CompyError, loadError, needDeno, toCompyError } from "./errors.ts";

Deno.test("CompyError: errors of all modules become one with the same code, message and figures", () => {
  const cases: [error: Error, code: string][] = [
    [new EngineError("context_length_exceeded", "words", { n_ctx: 4 }), "context_length_exceeded"],
    [new ChatTemplateError("words"), "chat_template_error"],
    [new ConstraintError("words"), "invalid_constraint"],
    [new GgufError("GGUF_MAGIC", "words"), "invalid_model"],
    [new MemoryError("words"), "not_enough_memory"],
    [new KernelError("words"), "backend_failed"],
    [new GpuError("words"), "backend_failed"],
    [new GrammarLibraryError("words"), "backend_failed"],
    [new BatchError("output_exists", "words", false), "output_exists"],
    [new Deno.errors.NotCapable("words"), "not_permitted"],
  ];
  for (const [error, code] of cases) {
    const own = toCompyError(error) as CompyError;
    assertInstanceOf(own, CompyError, error.name);
    assertEquals([own.code as string, own.message], [code, error.message]);
    assertStrictEquals(toCompyError(own), own);
  }
  assertEquals((toCompyError(cases[0][0]) as CompyError).details, { n_ctx: 4 });
  const bug = new TypeError("x is not a function");
  assertStrictEquals(toCompyError(bug), bug);
  const resumable = toCompyError(new BatchError("disk_full", "words", true)) as CompyError;
  assertEquals((resumable.cause as BatchError).resumable, true);
});

Deno.test("CompyError: reports a model file that Node or Deno cannot open as not found", () => {
  const ofNode = Object.assign(new Error("ENOENT: no such file or directory, open '/m.gguf'"), {
    code: "ENOENT",
  });
  const ofDeno = new Deno.errors.NotFound("No such file or directory (os error 2): open '/m.gguf'");
  for (const error of [ofNode, ofDeno]) {
    const { code, message } = loadError(error) as CompyError;
    assertEquals([code, message], [
      "model_not_found",
      'Cannot use "/m.gguf": there is no such file or folder',
    ]);
  }
});

Deno.test("needDeno: outside Deno throws not_supported, and the message says what to do", () => {
  needDeno("listen()", "give fetch to a server");
  const real = Object.getOwnPropertyDescriptor(globalThis, "Deno")!;
  Object.defineProperty(globalThis, "Deno", { value: undefined, configurable: true });
  try {
    const error = assertThrows(() => needDeno("listen()", "give fetch to a server"), CompyError);
    assertEquals([error.code, error.message], [
      "not_supported",
      "listen() needs Deno; give fetch to a server",
    ]);
  } finally {
    Object.defineProperty(globalThis, "Deno", real);
  }
});
