import { assertEquals } from "@std/assert";
import { CHAT_COMMANDS, completions, CONVERSATION_HELP } from "./chat_commands.ts";

Deno.test("chat commands: Tab completes commands and the settings behind /set", () => {
  assertEquals(completions("/sh"), [["/show "], "/sh"]);
  assertEquals(completions("/")[0].length, Object.keys(CHAT_COMMANDS).length);
  assertEquals(completions("/set min"), [["min-p "], "min"]);
  assertEquals(completions("/unset  see"), [["seed "], "see"]);
  for (const line of ["", "hen", "/show /s", "/set seed 4"]) assertEquals(completions(line)[0], []);
});

Deno.test("chat commands: the help has every command", () => {
  for (const name of Object.keys(CHAT_COMMANDS)) {
    assertEquals(CONVERSATION_HELP.includes(`  ${name}`), true, name);
  }
});
