/** What tests of the page's chat share. */
import type { Page } from "playwright-core";

export async function ask(page: Page, text: string): Promise<void> {
  await page.getByLabel("Message", { exact: true }).fill(text);
  await page.keyboard.press("Enter");
}

/** The answers, as they are read: without what can be done with them. */
export const answers = (page: Page) => page.locator(".answer > .text").allInnerTexts();

export async function settled(page: Page): Promise<void> {
  await page.getByRole("button", { name: "Send", exact: true }).waitFor();
}
