/// <reference lib="dom" />
import { assert, assertEquals, assertMatch } from "@std/assert";
import { Buffer } from "node:buffer";
import type { Page } from "playwright-core";
import { withServer } from "../../routes/testing_server.ts";
import { browserTest, withPage } from "./browser.ts";
import { runLiveServer, withLiveServer } from "../../testing/live_server.ts";
import { answers, ask, settled } from "./page_chat.ts";

/* The page's chat in Chromium, on the demo model or on a scripted engine. */

async function set(page: Page, values: Record<string, string>): Promise<void> {
  await page.getByRole("button", { name: "Settings of this conversation" }).click();
  const more = page.locator("details.setting");
  if (await more.getAttribute("open") === null) await more.locator("summary").click();
  for (const [label, value] of Object.entries(values)) {
    const field = page.getByLabel(label, { exact: true });
    if (await field.evaluate((element) => element.tagName) === "SELECT") await field.selectOption(value);
    else await field.fill(value);
  }
  await page.keyboard.press("Escape");
}

/** The name and text of the file that a button saves. */
async function downloaded(page: Page, button: string): Promise<[name: string, text: string]> {
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("button", { name: button, exact: true }).click(),
  ]);
  return [download.suggestedFilename(), await Deno.readTextFile(await download.path())];
}

browserTest("page: streams the demo model's answer with its figures, and can stop it", async () => {
  await withLiveServer([], async ({ url, idle, post }) => {
    await withPage(url, async ({ page }) => {
      await set(page, { Temperature: "0" });
      await ask(page, "Who are you?");
      await settled(page);
      const whole = await post("/v1/chat/completions", {
        model: "demo",
        messages: [{ role: "user", content: "Who are you?" }],
        temperature: 0,
      });
      assertEquals(await answers(page), [whole.choices[0].message.content]);
      assertMatch(
        await page.locator(".answer .figures").innerText(),
        /^14 tokens · [\d.]+ tokens\/s · first after /,
      );
      assertMatch(await page.locator(".context").innerText(), /^\s*26 of 512 tokens of context$/);

      // The answer ends by itself only at the end of the context window.
      const endless = { properties: { a: { type: "array", items: { type: "integer" }, minItems: 400 } } };
      await set(page, { "Response format": JSON.stringify({ type: "object", required: ["a"], ...endless }) });
      await ask(page, "Tell me a story");
      await page.keyboard.press("Escape");
      await settled(page);
      assertMatch(await page.locator(".answer .figures").last().innerText(), /stopped/);
      await idle(); // the engine stops for a disconnected reader
    });
  });
});

browserTest(
  "page: a stream is shown while it comes, and edited messages and second answers become versions",
  async () => {
    const reply = (prompt: string) => {
      const said = prompt.slice(prompt.lastIndexOf("user\n") + 5, -"assistant\n".length);
      return `You said: ${said}. ${"And so on. ".repeat(said === "one" ? 300 : 2)}`;
    };
    await withServer({ tokenMs: 2, reply, contextLength: 4096 }, async ({ base, engine }) => {
      await withPage(base, async ({ page, barriers }) => {
        await ask(page, "one");
        await page.locator(".answer", { hasText: "You said: one." }).waitFor();
        assert(await page.getByRole("button", { name: "Stop", exact: true }).isVisible());
        await page.locator(".answer", { hasText: "And so on. ".repeat(20) }).waitFor();
        assert(await page.getByRole("button", { name: "Stop", exact: true }).isVisible());
        await page.keyboard.press("Escape");
        await settled(page);
        await ask(page, "two");
        await settled(page);

        await page.getByRole("button", { name: "Edit and send again" }).first().click();
        await page.getByLabel("Your message").fill("three");
        await page.keyboard.press("Enter");
        await settled(page);
        assertEquals((await answers(page)).map((text) => text.slice(0, 16)), ["You said: three."]);
        assertEquals(engine.tokenizer.decode(engine.requests.at(-1)!.prompt).includes("one"), false);

        await page.getByRole("button", { name: "Answer again" }).click();
        await settled(page);
        assertEquals((await answers(page)).length, 1);
        assertEquals(engine.requests.length, 4);

        const [asked, answered] = [page.locator(".user"), page.locator(".answer")];
        const later = answered.getByRole("group", { name: "Version 2 of 2" });
        assertEquals(await later.getByRole("button", { name: "Later version" }).isDisabled(), true);
        await later.getByRole("button", { name: "Earlier version" }).focus();
        await page.keyboard.press("Enter");
        await answered.getByRole("group", { name: "Version 1 of 2" }).waitFor();
        const focused = () => page.evaluate(() => document.activeElement?.getAttribute("aria-label"));
        assertEquals(await focused(), "Later version");
        assertEquals(await barriers(), []);

        await asked.first().getByRole("button", { name: "Earlier version" }).click();
        await page.locator(".user", { hasText: "two" }).waitFor();
        assertEquals((await answers(page)).map((text) => text.slice(0, 14)), [
          "You said: one.",
          "You said: two.",
        ]);
        await page.reload();
        await page.locator(".user", { hasText: "two" }).waitFor();
        await asked.first().getByRole("button", { name: "Later version" }).click();
        await page.locator(".user", { hasText: "three" }).waitFor();
        await answered.getByRole("group", { name: "Version 1 of 2" }).waitFor();
        assertEquals(await asked.count(), 1);
      });
    });
  },
);

browserTest("page: a stopped answer continues where it stopped", async () => {
  const reply = (prompt: string) => prompt.endsWith("assistant\n") ? "a".repeat(3000) : " and the rest.";
  await withServer({ tokenMs: 3, reply, contextLength: 4096 }, async ({ base }) => {
    await withPage(base, async ({ page }) => {
      await ask(page, "Go");
      await page.locator(".answer", { hasText: "aaaa" }).waitFor();
      await page.keyboard.press("Escape");
      await settled(page);
      await page.getByRole("button", { name: "Continue the answer" }).click();
      await page.locator(".answer", { hasText: "and the rest." }).waitFor();
      await settled(page);
      assertMatch((await answers(page)).join("|"), /^a{4,} and the rest\.$/);
    });
  });
});

browserTest("page: folds thinking, and lets the user answer tool calls", async () => {
  const reply = (prompt: string) =>
    prompt.includes("sunny")
      ? "<|start|>text\nIt is sunny."
      : '<|start|>think\nI ask the tool.<|start|>call weather\n{"city":"Paris"}';
  await withServer({ reply, contextLength: 4096 }, async ({ base, engine }) => {
    await withPage(base, async ({ page, barriers }) => {
      await set(page, { Tools: '[{"name":"weather","parameters":{"type":"object"}}]', Thinking: "high" });
      await ask(page, "Weather?");
      const thinking = page.locator("summary", { hasText: /^Thought/ });
      await thinking.waitFor();
      assertEquals(await page.getByText("I ask the tool.").isVisible(), false);
      await thinking.click();
      assertEquals(await page.getByText("I ask the tool.").isVisible(), true);

      const call = page.locator(".call");
      assertMatch(await call.innerText(), /Calls\s+weather/);
      assertEquals(JSON.parse(await call.locator("pre").innerText()), { city: "Paris" });
      assert(await page.getByLabel("Message", { exact: true }).isDisabled());
      assertEquals(await barriers(), []);
      await page.getByLabel("Result of weather").fill("sunny");
      await page.getByRole("button", { name: "Give this result" }).click();
      await page.locator(".answer", { hasText: "It is sunny." }).waitFor();
      const { conversations } = engine.chatForm as unknown as { conversations: { messages: unknown[] }[] };
      const [, answer, result] = conversations.at(-1)!.messages as Record<string, unknown>[];
      assertEquals(answer.role, "assistant");
      assertEquals([result.role, result.content], ["tool", "sunny"]);
    });
  });
});

browserTest("page: sends settings with the request, and shows errors at their inputs", async () => {
  await withServer({}, async ({ base, engine }) => {
    await withPage(base, async ({ page, barriers }) => {
      await set(page, {
        "System prompt": "Be brief.",
        Temperature: "0.5",
        "Top-p": "0.9",
        "Top-k": "40",
        "Min-p": "0.05",
        "Most tokens": "5",
        Seed: "7",
        "DRY multiplier": "0.8",
        "DRY breakers": '["\\n"]',
        "Logit bias": '{"5":-1}',
        "Stop texts": "END",
        "Response format": '{"type":"object"}',
      });
      await ask(page, "Hi");
      await settled(page);
      const { sampling, maxTokens, stop, constraint, prompt } = engine.requests[0];
      assertEquals(
        [sampling?.temperature, sampling?.topP, sampling?.topK, sampling?.minP, sampling?.seed],
        [0.5, 0.9, 40, 0.05, 7],
      );
      assertEquals([sampling?.dryMultiplier, sampling?.dryBreakers, sampling?.logitBias], [
        0.8,
        ["\n"],
        new Map([[5, -1]]),
      ]);
      assertEquals([maxTokens, stop, constraint?.kind], [5, ["END"], "json_schema"]);
      assertMatch(engine.tokenizer.decode(prompt), /system\nBe brief\./);

      await page.getByRole("button", { name: "Settings of this conversation" }).click();
      await page.getByLabel("Temperature", { exact: true }).fill("9");
      await page.getByText("Temperature must be 0 to 2; it is not sent.").waitFor();
      assertEquals(await barriers(), []);
      await page.getByRole("button", { name: "Empty all" }).click();
      await page.keyboard.press("Escape");
      await ask(page, "Hi again");
      await settled(page);
      assertEquals(engine.requests[1].sampling?.temperature ?? 1, 1);
    });
  });
});

browserTest("page: shows a model's output without running or fetching anything", async () => {
  const hostile = [
    "<img src=x onerror=\"document.title='run'\"><script>document.title='run'</script>",
    "[click](javascript:document.title='run') ![p](https://evil.example/p.png)",
    "<style>body{display:none}</style><iframe src=https://evil.example></iframe>",
    "```html\n<b>bold</b>\n```",
  ].join("\n\n");
  await withServer({ reply: () => hostile, contextLength: 8192 }, async ({ base }) => {
    await withPage(base, async ({ page }) => {
      await ask(page, hostile);
      await settled(page);
      assertEquals(await page.title(), "Chat · compy");
      const made = await page.locator(".message :is(script, style, iframe, img, object, embed)").count();
      assertEquals(made, 0);
      const links = page.locator(".answer a");
      assertEquals(await links.evaluateAll((all) => all.map((link) => link.getAttribute("href"))), [
        "https://evil.example/p.png",
        "https://evil.example/",
      ]);
      assertEquals(await page.locator(".answer pre").innerText(), "<b>bold</b>");
      // The clipboard has the text whether or not the page has clipboard permission.
      await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
      await page.getByRole("button", { name: "Copy the code" }).click();
      assertEquals(await page.evaluate(() => navigator.clipboard.readText()), "<b>bold</b>");
    });
  });
});

browserTest("page: conversations stay, and can be renamed, exported, deleted and restored", async () => {
  await withServer({ reply: () => "Fine." }, async ({ base }) => {
    await withPage(base, async ({ page, another }) => {
      await ask(page, "First question");
      await settled(page);
      await page.getByRole("button", { name: "New conversation" }).first().click();
      await ask(page, "Second question");
      await settled(page);
      const list = page.getByRole("navigation", { name: "Conversations" });
      assertEquals(await list.getByRole("link").allInnerTexts(), ["Second question", "First question"]);

      await page.reload();
      await page.locator(".user", { hasText: "Second question" }).waitFor();
      await list.getByRole("link", { name: "First question" }).click();
      await page.locator(".user", { hasText: "First question" }).waitFor();
      await page.locator("#chat-title").click();
      await page.getByLabel("Name of the conversation").fill("Renamed");
      await page.keyboard.press("Enter");
      await list.getByRole("link", { name: "Renamed" }).waitFor();

      await page.getByRole("button", { name: "Export the conversation" }).click();
      const [name, text] = await downloaded(page, "Request");
      assertEquals(name, "Renamed-request.json");
      const body = JSON.parse(text);
      assertEquals(body.messages, [
        { role: "user", content: "First question" },
        { role: "assistant", content: "Fine." },
      ]);

      await page.getByRole("button", { name: "Delete the conversation" }).click();
      await list.getByRole("link", { name: "Renamed" }).waitFor({ state: "detached" });
      await page.getByRole("button", { name: "Undo" }).click();
      await list.getByRole("link", { name: "Renamed" }).waitFor();
      await page.getByRole("button", { name: "Delete the conversation" }).click();
      await page.reload();
      await list.getByRole("link", { name: "Second question" }).waitFor();
      assertEquals(await list.getByRole("link", { name: "Renamed" }).count(), 0);

      const stranger = await another();
      await stranger.locator(".welcome").waitFor();
      assertEquals(await stranger.locator(".conversations a").count(), 0);
    });
  });
});

browserTest(
  "page: finds conversations by words, and exports and imports them with their versions",
  async () => {
    await withServer(
      { reply: () => "This is the answer." },
      async ({ base }) => {
        await withPage(base, async ({ page, another, barriers }) => {
          const list = page.getByRole("navigation", { name: "Conversations" });
          for (const question of ["First question", "Second question"]) {
            await page.getByRole("button", { name: "New conversation" }).first().click();
            await ask(page, question);
            await settled(page);
          }
          await page.getByRole("button", { name: "Answer again" }).click();
          await settled(page);
          await page.getByRole("searchbox", { name: "Search conversations" }).fill("ANSWER second");
          await list.getByText("1 of 2 conversations").waitFor();
          assertEquals(await list.getByRole("link").allInnerTexts(), [
            "Second question\nThis is the answer.",
          ]);
          assertEquals(await barriers(), []);
          await page.getByRole("searchbox").fill("");
          await list.getByRole("link", { name: "First question" }).waitFor();

          await page.getByRole("button", { name: "Export the conversation" }).click();
          assertEquals(await barriers(), []);
          const [markdown, text] = await downloaded(page, "Markdown");
          assertEquals([markdown, text.slice(0, 26)], [
            "Second-question.md",
            "# Second question\n\n## You\n",
          ]);
          await page.getByRole("button", { name: "Export and import" }).click();
          const [name, file] = await downloaded(page, "Export all");
          assertEquals(name, "compy-conversations.json");

          const stranger = await another();
          const imported = async (text: string) => {
            const buffer = Buffer.from(text);
            await stranger.getByLabel("File to import").setInputFiles({
              name: "a.json",
              mimeType: "text/json",
              buffer,
            });
          };
          await stranger.getByRole("button", { name: "Export and import" }).click();
          await imported(file.replace('"user"', '"root"'));
          await stranger.getByRole("alert").getByText("role is not user, tool or assistant").waitFor();
          assertEquals(await stranger.locator(".conversations a").count(), 0);
          await imported(file);
          await stranger.getByText("2 imported.").first().waitFor();
          await stranger.getByRole("button", { name: "Export and import" }).click();
          await imported(file);
          await stranger.getByText("0 imported, 2 here already.").first().waitFor();
          await stranger.reload();
          await stranger.getByRole("link", { name: "Second question" }).click();
          await stranger.getByRole("group", { name: "Version 2 of 2" }).waitFor();
        });
      },
    );
  },
);

browserTest(
  "page: selects models, loads them with the first question, and unloads them by hand",
  async () => {
    const folder = await Deno.makeTempDir({ prefix: "models-" });
    const demo = new URL("../../models/demo.gguf", import.meta.url);
    for (const name of ["first", "second"]) await Deno.copyFile(demo, `${folder}/${name}.gguf`);
    try {
      // The server logs each loaded model, so its output is not an error.
      await runLiveServer(["main.ts", "serve"], ["--models", folder], async ({ url }) => {
        await withPage(url, async ({ page, barriers }) => {
          const models = page.getByRole("combobox", { name: "Model" });
          await models.locator("option", { hasText: "second (not loaded yet)" }).waitFor({
            state: "attached",
          });
          await models.selectOption("second");
          await ask(page, "Who are you?");
          await settled(page);
          await models.locator("option", { hasText: /^second$/ }).waitFor({ state: "attached" });
          assertEquals(await page.locator(".answer").getAttribute("aria-label"), "Answer of second");
          await page.locator(".context", { hasText: "of 512 tokens" }).waitFor();

          await page.getByRole("link", { name: "Server" }).click();
          await page.getByRole("button", { name: "Load first" }).click();
          await page.getByRole("button", { name: "Unload first" }).waitFor();
          await page.getByRole("button", { name: "Unload second" }).click();
          await page.getByRole("button", { name: "Load second" }).waitFor();
          assertEquals(await barriers(), []);
        });
      });
    } finally {
      await Deno.remove(folder, { recursive: true });
    }
  },
);

browserTest("page: works under a path prefix", async () => {
  await withServer({ pathPrefix: "/a/llm", reply: () => "Here." }, async ({ base }) => {
    await withPage(`${base}/a/llm`, async ({ page }) => {
      await ask(page, "Hi");
      await page.locator(".answer", { hasText: "Here." }).waitFor();
      await page.goto(`${base}/a/llm`); // without the trailing slash
      await page.locator(".welcome, .answer").first().waitFor();
      await page.getByRole("link", { name: "Server" }).click();
      await page.getByRole("img", { name: "Requests: 0 running, 0 waiting" }).waitFor();
    });
  });
});

browserTest(
  "page: while an answer is written, an earlier message can be edited and an earlier answer requested again",
  async () => {
    const options = {
      tokenMs: 5,
      reply: (prompt: string) => `${prompt.length} ${"word ".repeat(300)}`,
      contextLength: 4096,
    };
    await withServer(options, async ({ base, engine }) => {
      await withPage(base, async ({ page }) => {
        for (const question of ["one", "two"]) {
          await ask(page, question);
          await page.locator(".answer", { hasText: "word word" }).last().waitFor();
          if (question === "one") await page.keyboard.press("Escape");
          if (question === "one") await settled(page);
        }
        await page.getByRole("button", { name: "Answer again" }).first().click();
        await page.locator(".answer", { hasText: "word word" }).waitFor();
        assertEquals(await page.locator(".user").allInnerTexts(), ["one"]);
        await page.getByRole("button", { name: "Edit and send again" }).click();
        await page.getByLabel("Your message").fill("three");
        await page.keyboard.press("Enter");
        await page.locator(".user", { hasText: "three" }).waitFor();
        await page.locator(".answer", { hasText: "word word" }).waitFor();
        await page.keyboard.press("Escape");
        await settled(page);
        assertEquals((await answers(page)).length, 1);
        assertEquals(engine.requests.length, 4);
        assertEquals(engine.stats().running, 0);
      });
    });
  },
);
