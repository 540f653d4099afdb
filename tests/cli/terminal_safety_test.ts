import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { join } from "@std/path";
import { quoted } from "../../cli/shared/start.ts";
import { smallModel } from "../../engine/gguf/testing.ts";
import { hasScript, root, run, withFolder } from "../../testing/commands.ts";
import { synthesize } from "../../testing/synth/synth.ts";
import { fullTier } from "../../testing/tier.ts";

/** A name that sets a window's title, forges a message and reverses text, if a terminal obeys it. */
const HOSTILE = "x\x1b]0;owned\x07\nError: forged\r\x9b2J\u202e\u2028y";
const SHOWN = "x\\u001b]0;owned\\u0007\\nError: forged\\r\\u009b2J\\u202e\\u2028y";

/** Runs a task on a pseudoterminal and returns what the terminal receives. */
async function onTerminal(args: readonly string[], cwd: string): Promise<string> {
  const command = [Deno.execPath(), "task", "-q", ...args].map(quoted).join(" ") + " </dev/null";
  const { stdout } = await new Deno.Command("script", {
    args: ["-qefc", command, "/dev/null"],
    cwd: root,
    env: { INIT_CWD: cwd, NO_COLOR: "1", TERM: "xterm" },
    stdin: "null",
  }).output();
  return new TextDecoder().decode(stdout).replaceAll("\r\n", "\n");
}

/** Fails if the terminal received more control characters than those that replace a progress line. */
function assertHarmless(received: string): void {
  const text = received.replaceAll("\r\x1b[K", "\n");
  assertEquals(
    /[^\P{Cc}\n\t]|[\u2028\u2029\u202a-\u202e\u2066-\u2069]/u.exec(text),
    null,
    JSON.stringify(text),
  );
  assert(!/^Error: forged/m.test(text), text);
}

const ASKED = ["--prompt", "{answer}", "--max-tokens", "2"];

/** Commands that name a hostile file or print hostile content. */
const COMMANDS: Readonly<Record<string, readonly string[]>> = {
  "generate, no model": ["generate", "Hi", "--model", `${HOSTILE}.missing`],
  "generate, its answer": ["generate", "Hi", "--grammar", "hostile.gbnf"],
  "generate, its template's error": ["generate", "Hi", "--model", "template.gguf"],
  "generate --json": ["generate", "Hi", "--grammar", "hostile.gbnf", "--json"],
  "generate --logprobs": ["generate", "Hi", "--grammar", "hostile.gbnf", "--logprobs", "1"],
  "chat, its model's name": ["chat", "Hi", "-n", "2", "--model", `${HOSTILE}.gguf`],
  "tokenize": ["tokenize", "--text", HOSTILE],
  "tokenize, no model": ["tokenize", "--text", "a", "--model", `${HOSTILE}.missing`],
  "inspect": ["inspect", "small.gguf"],
  "inspect --json": ["inspect", "small.gguf", "--json"],
  "batch check, lines": ["batch", "check", "lines.jsonl"],
  "batch check, columns": ["batch", "check", "table.csv", "--prompt", "{none}"],
  "batch run, columns": ["batch", "run", "table.csv", "--out", `${HOSTILE}.csv`, ...ASKED],
  "batch run --out -": ["batch", "run", "cells.csv", "--out", "-", "--job", "j", ...ASKED],
  "batch status": ["batch", "status", `${HOSTILE}.jsonl`],
  "embed": ["embed", "texts.jsonl", "--out", "o.jsonl", "--model", `${HOSTILE}.gguf`],
  "convert": ["convert", HOSTILE, "--out", `${HOSTILE}.out`],
  "bench": ["bench", "--model", `${HOSTILE}.missing`],
  "doctor": ["doctor", "--model", `${HOSTILE}.gguf`],
  "serve, no model": ["serve", "--model", `${HOSTILE}.missing`, "--port", "0", "--data", "none"],
  "pull list": ["pull", "list", "--models", "."],
  "pull": ["pull", HOSTILE],
  "cache": ["cache", "list", HOSTILE],
  "no such verb": ["batch", HOSTILE],
};

/** Answer of the grammar. It has no line ends, because those of answers are not escaped. */
const ANSWER = HOSTILE.replaceAll("\n", " ");

/** Writes the files of the commands. */
async function prepare(folder: string): Promise<void> {
  const write = (name: string, text: string) => Deno.writeTextFile(join(folder, name), text);
  await Deno.copyFile(join(root, "models/demo.gguf"), join(folder, `${HOSTILE}.gguf`));
  const model = smallModel().set("general.name", "STRING", HOSTILE).set(HOSTILE, "STRING", HOSTILE);
  await Deno.writeFile(join(folder, "small.gguf"), model.build().bytes);
  const chat = { template: `{{ raise_exception("${HOSTILE}") }}`, marks: [] };
  const raising = synthesize({ architecture: "qwen3", types: ["Q8_0"], layers: 1, seed: 1, chat });
  await Deno.writeFile(join(folder, "template.gguf"), raising);
  const literal = [...ANSWER].map((c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`).join("");
  await write("hostile.gbnf", `root ::= "${literal}"`);
  const body = { model: HOSTILE, messages: [{ role: HOSTILE, content: "a" }] };
  const line = { custom_id: HOSTILE, method: "POST", url: "/v1/chat/completions", body };
  await write(
    "lines.jsonl",
    `${JSON.stringify(line)}\n${JSON.stringify({ ...line, url: HOSTILE })}\n{${HOSTILE}\n`,
  );
  await write("table.csv", `answer,"${HOSTILE}"\nWho are you?,"${HOSTILE}"\n`);
  await write("cells.csv", `answer,"${ANSWER}"\nWho are you?,"${ANSWER}"\n`);
  await write("texts.jsonl", `{"text": 3, "id": "${HOSTILE}"}\n`);
}

fullTier.test({
  name: "terminal: no command lets names, errors, columns or answers of strangers steer it",
  ignore: !hasScript,
  fn: async (t) => {
    await withFolder(async (folder) => {
      await prepare(folder);
      for (const [name, args] of Object.entries(COMMANDS)) {
        await t.step(name, async () => {
          const received = await onTerminal(args, folder);
          assert(received.trim() !== "", "the command printed nothing");
          assertHarmless(received);
        });
      }
    });
  },
});

fullTier.test({
  name: "terminal: shows an answer's control characters escaped, and obeys them with --raw only",
  ignore: !hasScript,
  fn: async () => {
    await withFolder(async (folder) => {
      await prepare(folder);
      const args = ["generate", "Hi", "--grammar", "hostile.gbnf"];
      assertStringIncludes(await onTerminal(args, folder), SHOWN.replaceAll("\\n", " "));
      assertStringIncludes(await onTerminal([...args, "--raw"], folder), ANSWER);
    });
  },
});

Deno.test("generate: a pipe receives the exact characters of an answer, and messages are escaped", async () => {
  await withFolder(async (folder) => {
    await prepare(folder);
    const answered = await run(["generate", "Hi", "--grammar", join(folder, "hostile.gbnf")]);
    assertEquals([answered.code, answered.stdout], [0, `${ANSWER}\n`], answered.stderr);
    const failed = await run(["generate", "Hi", "--model", `${HOSTILE}.gguf`]);
    assertEquals([failed.code, failed.stdout], [1, ""]);
    assertStringIncludes(failed.stderr, SHOWN);
    assertHarmless(failed.stderr);
  });
});
