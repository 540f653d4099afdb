/// <reference lib="dom" />
import { assertEquals, assertMatch } from "@std/assert";
import { withServer } from "../../routes/testing_server.ts";
import { browserTest, withPage } from "./browser.ts";
import { lossyProxy } from "./lossy_proxy.ts";
import { answers, ask, settled } from "./page_chat.ts";

/* The page in Chromium with a server that is busy, fails, is gone, or requires a key. */

browserTest("page: retries when a busy server says so", async () => {
  const options = { slots: 1, queue: 0, tokenMs: 5, reply: () => "Done.", contextLength: 2048 };
  await withServer(options, async ({ base, post }) => {
    await withPage(base, async ({ page }) => {
      const abort = new AbortController();
      const other = await post("/v1/completions", {
        model: "demo",
        prompt: "x",
        max_tokens: 2000,
        ignore_eos: true,
        stream: true,
      }, { signal: abort.signal });
      await ask(page, "Hi");
      await page.locator(".answer .progress", { hasText: "Sent again in" }).waitFor();
      abort.abort();
      await other.body?.cancel().catch(() => {});
      await page.locator(".answer", { hasText: "Done." }).waitFor();
      await settled(page);
    });
  });
});

browserTest("page: shows a failure during a stream with advice, and keeps the partial answer", async () => {
  await withServer(
    { tokenMs: 5, reply: () => "word ".repeat(200), contextLength: 4096 },
    async ({ base }) => {
      await using proxy = lossyProxy(base);
      await withPage(proxy.base, async ({ page }) => {
        await ask(page, "Hi");
        await page.locator(".answer", { hasText: "word word" }).waitFor();
        proxy.cut();
        await page.getByRole("alert").filter({ hasText: "The connection was lost" }).waitFor();
        assertMatch(await page.locator(".advice").innerText(), /continue it, or try again/);
        assertMatch((await answers(page))[0], /^word word/);
        await page.getByRole("button", { name: "Try again" }).click();
        await page.locator(".answer", { hasText: "word word" }).waitFor();
        assertEquals(await page.locator(".trouble").count(), 0);
      });
    },
  );
});

browserTest("page: shows an error event during a stream", async () => {
  const failure = new Error("nobody foresaw this");
  await withServer({ tokenMs: 5, failure, contextLength: 4096 }, async ({ base, errors }) => {
    await withPage(base, async ({ page }) => {
      await ask(page, "long ".repeat(60));
      await page.getByRole("alert").filter({ hasText: "its log says why" }).waitFor();
      assertMatch(await page.locator(".advice").innerText(), /failed in the midst of the answer/);
    });
    assertEquals(errors.length, 1);
  });
});

browserTest("page: reports an unreachable server, and reconnects when it is back", async () => {
  await withServer({ reply: () => "Back." }, async ({ base }) => {
    await using proxy = lossyProxy(base);
    await withPage(proxy.base, async ({ page }) => {
      await page.getByRole("combobox", { name: "Model" }).locator("option", { hasText: "demo" }).waitFor({
        state: "attached",
      });
      proxy.down();
      await ask(page, "Hi");
      await page.locator("#banner", { hasText: "The server does not answer" }).waitFor();
      await page.locator(".trouble", { hasText: "No answer from" }).waitFor();
      proxy.up();
      await page.locator("#banner").waitFor({ state: "hidden" });
      await page.getByRole("button", { name: "Try again" }).click();
      await page.locator(".answer", { hasText: "Back." }).waitFor();
    });
  });
});

browserTest("page: asks for the key once, and again after a wrong one", async () => {
  await withServer({ apiKeys: ["secret"], reply: () => "Welcome." }, async ({ base }) => {
    await withPage(base, async ({ page, another, barriers }) => {
      const dialog = page.getByRole("dialog", { name: "This server wants a key" });
      await dialog.waitFor();
      assertEquals(await barriers(), []);
      await dialog.getByLabel("Key", { exact: true }).fill("wrong");
      await dialog.getByRole("button", { name: "Use this key" }).click();
      await page.waitForFunction(() =>
        document.querySelector<HTMLInputElement>("dialog input")?.value === ""
      );
      await dialog.getByLabel("Key", { exact: true }).fill("secret");
      await dialog.getByRole("button", { name: "Use this key" }).click();
      await ask(page, "Hi");
      await page.locator(".answer", { hasText: "Welcome." }).waitFor();
      const kept = await page.evaluate(
        () => [sessionStorage.getItem("compy.key"), localStorage.getItem("compy.key")],
      );
      assertEquals(kept, ["secret", null]);

      await page.getByRole("button", { name: "Key" }).click();
      await dialog.getByLabel("Key", { exact: true }).fill("secret");
      await dialog.getByLabel("Remember it in this browser").check();
      await dialog.getByRole("button", { name: "Use this key" }).click();
      const tab = await page.context().newPage();
      await tab.goto(`${base}/`);
      await tab.getByRole("combobox", { name: "Model" }).locator("option", { hasText: "demo" }).waitFor({
        state: "attached",
      });
      await tab.close();

      await page.getByRole("button", { name: "Key" }).click();
      await dialog.getByLabel("Key", { exact: true }).fill("");
      await dialog.getByRole("button", { name: "Use this key" }).click();
      await dialog.getByText("Missing or wrong API key").waitFor(); // the old key was forgotten, and a key is required
      assertEquals(await page.evaluate(() => localStorage.getItem("compy.key")), null);
      await dialog.getByRole("button", { name: "Not now" }).click();

      const refused = await another();
      const refusal = refused.getByRole("dialog").getByRole("button", { name: "Not now" });
      await refusal.click();
      await ask(refused, "Hi");
      await refusal.click();
      await refused.locator(".trouble", { hasText: "Enter a key that this server takes." }).waitFor();
    });
  });
});
