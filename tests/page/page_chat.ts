/** Helpers for tests of the page's chat. */
import type { Page } from "playwright-core";

export async function ask(page: Page, text: string): Promise<void> {
  await page.getByLabel("Message", { exact: true }).fill(text);
  await page.keyboard.press("Enter");
}

/** The texts of the answers, without their buttons. */
export const answers = (page: Page) => page.locator(".answer > .text").allInnerTexts();

export async function settled(page: Page): Promise<void> {
  await page.getByRole("button", { name: "Send", exact: true }).waitFor();
}
