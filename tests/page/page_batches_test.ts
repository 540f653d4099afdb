/// <reference lib="dom" />
import { assert, assertEquals, assertMatch } from "@std/assert";
import type { Page } from "playwright-core";
import { chatLine, inDataFolder, withBatches } from "../../routes/testing_batches.ts";
import { withServer } from "../../routes/testing_server.ts";
import { browserTest, withPage } from "./browser.ts";
import { lossyProxy } from "./lossy_proxy.ts";

/* The page's batches, in Chromium. */

/** Drops a file onto the page. */
async function drop(page: Page, name: string, lines: readonly string[], onto = ".drop"): Promise<void> {
  const text = lines.join("\n");
  const transfer = await page.evaluateHandle(([name, text]) => {
    const transfer = new DataTransfer();
    transfer.items.add(new File([text], name));
    return transfer;
  }, [name, text]);
  await page.dispatchEvent(onto, "dragover", { dataTransfer: transfer });
  await page.dispatchEvent(onto, "drop", { dataTransfer: transfer });
}

/** Waits for the card of a batch with this state. */
async function card(page: Page, state: string) {
  const found = page.locator(".cards > li").filter({ has: page.locator(".badge", { hasText: state }) });
  await found.first().waitFor();
  return found.first();
}

async function download(page: Page, button: ReturnType<Page["locator"]>) {
  const [saved] = await Promise.all([page.waitForEvent("download"), button.click()]);
  const text = await Deno.readTextFile(await saved.path());
  return {
    name: saved.suggestedFilename(),
    lines: text.trimEnd().split("\n").map((line) => JSON.parse(line)),
  };
}

const openBatches = (page: Page) => page.getByRole("link", { name: "Batches" }).click();

browserTest("page: a batch goes from a dropped file to its downloads", async () => {
  const reply = (prompt: string) => `${prompt.includes("two") ? "Second" : "Other"}${".".repeat(40)}`;
  await inDataFolder((folder) =>
    withBatches(folder, { reply, tokenMs: 80 }, async ({ base }) => {
      await withPage(base, async ({ page, barriers }) => {
        await openBatches(page);
        const bad = chatLine("four", { messages: [] });
        await drop(page, "questions.jsonl", ["one", "two", "three"].map((id) => chatLine(id)).concat(bad));
        const form = page.getByRole("form", { name: "Batch of questions.jsonl" });
        await form.waitFor();
        assertMatch(await form.innerText(), /4 lines, \d+ bytes · no problem found · for demo/);
        assertEquals(await form.getByLabel("Endpoint").inputValue(), "/v1/chat/completions");
        await form.getByLabel("Go on where lines are bad").check();
        await form.getByRole("button", { name: "Start the batch" }).click();

        await card(page, "running");
        assertEquals(await barriers(), []);
        await page.reload(); // the server stores the batch
        const done = await card(page, "done");
        assertMatch(await done.innerText(), /questions\.jsonl[^]*4 of 4 lines · 1 failed/);
        const answers = await download(page, done.getByRole("button", { name: "Answers" }));
        assertEquals(answers.name, "questions-answers.jsonl");
        assertEquals(
          answers.lines.map((
            line,
          ) => [line.custom_id, line.response.body.choices[0].message.content.replace(/\.+$/, "")]),
          [["one", "Other"], ["two", "Second"], ["three", "Other"]],
        );
        const errors = await download(page, done.getByRole("button", { name: "Errors" }));
        assertEquals(errors.lines.map(({ custom_id: id }) => id), ["four"]);
        assertEquals(await barriers(), []);
      });
    })
  );
});

browserTest("page: shows bad lines before the upload, and the server's errors after it", async () => {
  await inDataFolder((folder) =>
    withBatches(folder, {}, async ({ base }) => {
      await withPage(base, async ({ page }) => {
        // The page accepts a dropped file anywhere as a request file.
        await page.locator(".welcome").waitFor();
        await drop(page, "bad.jsonl", [chatLine("a"), "{", chatLine("a")], ".log");
        const form = page.getByRole("form", { name: "Batch of bad.jsonl" });
        await form.waitFor();
        assertMatch(
          await form.innerText(),
          /3 lines[^]*2 bad[^]*Line 2 is not JSON[^]*Line 3 "custom_id" "a" is line 1's too/,
        );
        await form.getByRole("button", { name: "Start the batch" }).click();
        const failed = await card(page, "failed");
        assertMatch(await failed.innerText(), /Line 2: /);

        await drop(page, "none.jsonl", ["nonsense"]);
        const none = page.getByRole("form", { name: "Batch of none.jsonl" });
        await none.waitFor();
        assert(await none.getByRole("button", { name: "Start the batch" }).isDisabled());
      });
    })
  );
});

for (const pathPrefix of [undefined, "/a/llm"]) {
  const where = pathPrefix === undefined ? "" : ", under a prefix of all paths";
  browserTest(
    `page: a running batch is cancelled, and its progress comes with a key too${where}`,
    async () => {
      const options = { tokenMs: 50, apiKeys: ["secret"], reply: () => "slow ".repeat(40), pathPrefix };
      await inDataFolder((folder) =>
        withBatches(folder, options, async ({ base }) => {
          await withPage(`${base}${pathPrefix ?? ""}`, async ({ page }) => {
            const dialog = page.getByRole("dialog", { name: "This server wants a key" });
            await dialog.getByLabel("Key", { exact: true }).fill("secret");
            await page.keyboard.press("Enter");
            await openBatches(page);
            await drop(page, "slow.jsonl", Array.from({ length: 50 }, (_, i) => chatLine(`line ${i}`)));
            await page.getByRole("button", { name: "Start the batch" }).click();
            const running = await card(page, "running");
            await running.getByRole("button", { name: "Cancel" }).click();
            const cancelled = await card(page, "cancelled");
            const { lines } = await download(page, cancelled.getByRole("button", { name: "Errors" }));
            assertEquals(lines.length, 50);
          });
        })
      );
    },
  );
}

browserTest("page: shows a message instead of batches on a server without files", async () => {
  await withServer({}, async ({ base }) => {
    await withPage(base, async ({ page, barriers }) => {
      await openBatches(page);
      await page.getByText("This server keeps no files, so it answers no batches.").waitFor();
      assertEquals(await page.locator(".drop").isVisible(), false);
      assertEquals(await barriers(), []);
    });
  });
});

/** A server with batches. The caller stops it. */
async function startServer(folder: string) {
  const { promise: base, resolve: started } = Promise.withResolvers<string>();
  const { promise: asked, resolve: stop } = Promise.withResolvers<void>();
  const ended = withBatches(folder, { tokenMs: 20, reply: () => "word ".repeat(10) }, ({ base }) => {
    started(base);
    return asked;
  });
  return {
    base: await base,
    end: () => {
      stop();
      return ended;
    },
  };
}

browserTest("page: follows a batch across a restart of the server", async () => {
  await inDataFolder(async (folder) => {
    const first = await startServer(folder);
    await using proxy = lossyProxy(first.base);
    await withPage(proxy.base, async ({ page }) => {
      await openBatches(page);
      await drop(page, "long.jsonl", Array.from({ length: 16 }, (_, i) => chatLine(`line ${i}`)));
      await page.getByRole("button", { name: "Start the batch" }).click();
      await card(page, "running");
      proxy.down();
      await first.end();
      await page.locator("#banner", { hasText: "The server does not answer" }).waitFor();
      const second = await startServer(folder);
      proxy.up(second.base);
      const done = await card(page, "done");
      assertMatch(await done.innerText(), /16 of 16 lines/);
      assertEquals(await page.locator("#banner").isVisible(), false);
      await second.end();
    });
  });
});
