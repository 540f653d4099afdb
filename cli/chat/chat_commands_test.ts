import { assertEquals } from "@std/assert";
import { CHAT_COMMANDS, completions, CONVERSATION_HELP } from "./chat_commands.ts";

Deno.test("chat commands: Tab completes commands and the settings behind /set", () => {
  assertEquals(completions("/sh"), [["/show "], "/sh"]);
  assertEquals(completions("/")[0].length, Object.keys(CHAT_COMMANDS).length);
  assertEquals(completions("/set min"), [["min-p "], "min"]);
  assertEquals(completions("/unset  see"), [["seed "], "see"]);
  for (const line of ["", "hen", "/show /s", "/set seed 4"]) assertEquals(completions(line)[0], []);
});

Deno.test("chat commands: Tab completes images and folders after /image", () => {
  const folder = Deno.makeTempDirSync();
  try {
    for (const name of ["a.png", "b c.JPG", "b.txt", ".d.webp", "e\x1b.png"]) {
      Deno.writeTextFileSync(`${folder}/${name}`, "");
    }
    Deno.mkdirSync(`${folder}/birds`);
    const at = (start: string) =>
      completions(`/image ${folder}/${start}`)[0].map((path) => path.replace(folder, ""));
    assertEquals(at(""), ["/a.png", "/b c.JPG", "/birds/"]);
    assertEquals(at("b"), ["/b c.JPG", "/birds/"]);
    assertEquals(at("."), ["/.d.webp"]);
    assertEquals(completions(`/image ${folder}/no/such/`)[0], []);
    assertEquals(completions("/image models/")[0].length, 0);
  } finally {
    Deno.removeSync(folder, { recursive: true });
  }
});

Deno.test("chat commands: the help has every command", () => {
  for (const name of Object.keys(CHAT_COMMANDS)) {
    assertEquals(CONVERSATION_HELP.includes(`  ${name}`), true, name);
  }
});
