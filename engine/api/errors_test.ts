import { assertEquals } from "@std/assert";
import { EngineError, worded, WordedError, wordingOf } from "./errors.ts";

const NO_GPU = new EngineError("not_supported", ["The GPU cannot do it: use ", { backend: "cpu" }]);

Deno.test("errors: the message words settings as options of the library", () => {
  const message = (error: WordedError) => error.message;
  assertEquals(message(NO_GPU), 'The GPU cannot do it: use backend: "cpu"');
  assertEquals(message(new WordedError(["use ", { parallel: 1, ctx: 64 }])), "use parallel: 1, ctx: 64");
  assertEquals(message(new WordedError(["leave out ", { draft: undefined }])), "leave out draft");
  assertEquals(
    message(new WordedError(["serve without files: ", { data: null }])),
    "serve without files: leave out data",
  );
  assertEquals(message(new WordedError("plain words")), "plain words");
});

Deno.test("errors: settings in an error's message are named for the caller, also when other errors repeat the message", () => {
  const words = () => "[setting]";
  const expected = "The GPU cannot do it: use [setting]";
  assertEquals(worded(NO_GPU, words), expected);
  const wrapped = new Error(`Model "a": ${NO_GPU.message}`, { cause: NO_GPU });
  assertEquals(worded(wrapped, words), `Model "a": ${expected}`);
  const twice = new EngineError("engine_failed", wordingOf(wrapped));
  assertEquals(worded(twice, words), `Model "a": ${expected}`);
  const prefixed = new WordedError(NO_GPU.wording);
  prefixed.message = `In part 2: ${prefixed.message}`;
  assertEquals(worded(prefixed, words), `In part 2: ${expected}`);
});

Deno.test("errors: an error that does not repeat its cause's message keeps its own message", () => {
  assertEquals(worded(new Error("It failed", { cause: NO_GPU })), "It failed");
  assertEquals(worded("no error"), "no error");
});
