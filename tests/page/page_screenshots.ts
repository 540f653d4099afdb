/** Makes the pictures of the page in docs/, with real answers of the demo model (`deno task screenshots`). */
import { fromFileUrl } from "@std/path";
import { Buffer } from "node:buffer";
import type { Page } from "playwright-core";
import { chatLine, inDataFolder } from "../../routes/testing_batches.ts";
import { withPage } from "./browser.ts";
import { withLiveServer } from "../../testing/live_server.ts";

const DOCS = new URL("../../docs/", import.meta.url);
const DESK = { width: 1080, height: 720 };
const PHONE = {
  viewport: { width: 360, height: 640 },
  isMobile: true,
  hasTouch: true,
  deviceScaleFactor: 1.5,
};
const STORY = "Tell me a story about a small dinosaur.";

const shoot = (page: Page, name: string) => page.screenshot({ path: fromFileUrl(new URL(name, DOCS)) });

async function ask(page: Page, question: string): Promise<void> {
  await page.getByLabel("Message", { exact: true }).fill(question);
  await page.getByRole("button", { name: "Send", exact: true }).click();
  await page.locator(".answer .figures").last().waitFor();
}

async function greedy(page: Page): Promise<void> {
  await page.getByRole("button", { name: "Settings of this conversation" }).click();
  await page.getByLabel("Temperature", { exact: true }).fill("0");
  await page.keyboard.press("Escape");
}

async function main(): Promise<void> {
  await inDataFolder((data) =>
    withLiveServer([], async ({ url }) => {
      await withPage(url, async ({ page, another }) => {
        await greedy(page);
        await ask(page, "Who are you?");
        await page.getByRole("button", { name: "New conversation" }).first().click();
        await ask(page, STORY);
        await shoot(page, "page-light.png");

        const phone = await another(PHONE);
        await greedy(phone);
        await ask(phone, "Who are you?");
        await shoot(phone, "page-phone.png");

        await page.emulateMedia({ colorScheme: "dark" });
        await page.getByRole("link", { name: "Server" }).click();
        await new Promise((resolve) => setTimeout(resolve, 4000));
        await page.getByRole("link", { name: "Batches" }).click();
        const story = { messages: [{ role: "user", content: STORY }] };
        const lines = Array.from({ length: 400 }, (_, i) => chatLine(`story ${i}`, story));
        const file = { name: "stories.jsonl", mimeType: "text/plain", buffer: Buffer.from(lines.join("\n")) };
        await page.getByLabel("Choose a JSONL file").setInputFiles(file);
        await page.getByRole("button", { name: "Start the batch" }).click();
        await page.locator(".cards .badge").first().waitFor();
        await page.getByRole("link", { name: "Server" }).click();
        await new Promise((resolve) => setTimeout(resolve, 12_000));
        await shoot(page, "page-dark.png");
      }, { viewport: DESK });
    }, data)
  );
}

if (import.meta.main) await main();
