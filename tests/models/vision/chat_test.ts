/** Images in the terminal chat's conversation, by a seeded model. */
import { assertEquals, assertStringIncludes } from "@std/assert";
import type { Input } from "../../../cli/chat/chat_input.ts";
import { ChatSession } from "../../../cli/chat/chat_session.ts";
import { loadModel, type Model } from "../../../lib/model.ts";
import { withFiles } from "./files.ts";
import { png } from "./pictures.ts";

/** Runs a conversation. Returns the answers, remarks and problems. */
async function talk(model: Model, lines: readonly string[]) {
  const [texts, asides, problems]: string[][] = [[], [], []];
  const screen = {
    text: (text: string) => void texts.push(text),
    aside: (text: string) => void asides.push(text.replace(/, [\d.]+ a second/, "")),
    problem: (text: string) => void problems.push(text),
    reading: () => {},
  };
  const session = new ChatSession(model, { temperature: 0, maxTokens: 4, asides: true }, screen);
  const given = lines.map((text): Input => ({ type: "text", text }));
  await session.run({ read: () => Promise.resolve(given.shift() ?? { type: "end" }) });
  return { shown: texts.join(""), asides: asides.join(""), problems: problems.join("") };
}

Deno.test("chat session: /image attaches images to the next message, which /retry and /save keep", async () => {
  await withFiles({ tower: "qwen3vl", type: "Q8_0", seed: 6 }, async ({ model: file }) => {
    const folder = file.slice(0, file.lastIndexOf("/"));
    const [hen, text, saved] = [`${folder}/a hen.png`, `${folder}/text.png`, `${folder}/talk.json`];
    await Deno.writeFile(hen, await png(96, 64, 1));
    await Deno.writeTextFile(text, "<svg/>");
    const options = { backend: "cpu", threads: 2, ctx: 256, parallel: 1 } as const;
    await using model = await loadModel(file, options);
    const content = "What is this?";
    const { text: expected } = await model.chat(
      [{ role: "user", content, images: [await Deno.readFile(hen)] }],
      { temperature: 0, maxTokens: 4 },
    ).answer();
    const lines = [
      `/image ${text}`,
      "/image /no/such.png",
      `/image ${hen}`,
      content,
      "/retry",
      `/save ${saved}`,
    ];
    const { shown, asides, problems } = await talk(model, lines);
    assertEquals(shown, `${expected}\n${expected}\n`);
    assertStringIncludes(asides, "The next message has 1 image\n");
    assertEquals(
      problems,
      "Error: Cannot read the image: it must be a PNG, JPEG, WebP or GIF image\n" +
        'Error: Cannot read the image "/no/such.png": there is no such file or folder\n',
    );
    const loaded = await talk(model, [`/load ${saved}`, "/retry", `/image ${hen}`, "/image", "/clear"]);
    assertEquals([loaded.shown, loaded.problems], [`${expected}\n`, ""]);
    assertStringIncludes(loaded.asides, "The next message has no images\n");
  });
});
