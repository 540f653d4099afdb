import { assert, assertEquals } from "@std/assert";
import { COMMANDS } from "./commands.ts";
import { completionsCommand, optionsOf, verbsOf } from "./completions.ts";
import { captured } from "./shared/terminal.ts";

const HELP = `Do something.

Usage: deno task thing VERB DIR [options]

  list   say what is there, --quietly
  re-do  do it again

  --out FILE       where it goes, such as
                   --elsewhere
  -n N             how many
  --think-tokens N most of them
  --a-very-long-option-with FILE
                   so long that its text has a line of its own
  --json  {"a"}
`;

Deno.test("completions: read options and verbs from the starts of the help's lines", () => {
  const words = optionsOf(HELP).map(({ word }) => word);
  assertEquals(words.slice(0, -2), ["--out", "-n", "--think-tokens", "--a-very-long-option-with", "--json"]);
  assertEquals(optionsOf(HELP)[1].summary, "how many");
  assertEquals(verbsOf(HELP).map(({ word }) => word), ["list", "re-do"]);
  assertEquals(verbsOf(HELP.replace("VERB ", "")), []);
});

/** Returns the words that bash offers after the given words. */
async function offered(...words: string[]): Promise<string[]> {
  const script = await captured(() => completionsCommand(["bash"], COMMANDS));
  const line = `COMP_WORDS=(${words.map((word) => `'${word}'`).join(" ")}); COMP_CWORD=${words.length - 1}`;
  const { stdout, stderr, success } = await new Deno.Command("bash", {
    args: ["-c", `${script}\n${line}; _compy; echo "\${COMPREPLY[@]}"`],
  }).output();
  assert(success, new TextDecoder().decode(stderr));
  return new TextDecoder().decode(stdout).trim().split(" ");
}

Deno.test("completions: bash completes commands, verbs and the options of each", async () => {
  assertEquals(await offered("compy", "comp"), ["completions"]);
  assertEquals(await offered("compy", "batch", "re"), ["retry-errors"]);
  assertEquals(await offered("compy", "batch", "run", "--ord"), ["--order"]);
  assertEquals(await offered("compy", "chat", "--sys"), ["--system"]);
  assertEquals(await offered("compy", "chat", "--lin"), ["--lines"]);
  assertEquals(await offered("compy", "generate", "--fil"), ["--file"]);
  assertEquals(await offered("compy", "--ver"), ["--version"]);
  assertEquals(await offered("compy", "chat", "model.g"), [""]);
});

Deno.test("completions: zsh and fish offer the same words", async () => {
  for (const shell of ["zsh", "fish"]) {
    const script = await captured(() => completionsCommand([shell], COMMANDS));
    for (const word of ["retry-errors", "completions", "cache-disk"]) assert(script.includes(word), word);
  }
});
