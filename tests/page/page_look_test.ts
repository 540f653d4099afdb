/// <reference lib="dom" />
import { assert, assertEquals, assertMatch } from "@std/assert";
import type { Page } from "playwright-core";
import { withServer } from "../../routes/testing_server.ts";
import { browserTest, withPage } from "./browser.ts";

/* Keyboard, phone, dark mode, screen readers and live plots of the page. */

const LONG = "Averylongwordwithoutanyblank".repeat(12);
const REPLY =
  `# Heading\n\n${LONG}\n\n| a | b |\n|---|---|\n| ${LONG} | 2 |\n\n\`\`\`js\n${LONG}\n\`\`\`\n\n- ${LONG}`;

async function ask(page: Page, text: string): Promise<void> {
  await page.getByLabel("Message", { exact: true }).fill(text);
  await page.getByRole("button", { name: "Send", exact: true }).click();
  await page.locator(".answer .figures").last().waitFor();
}

/** Whether content overflows the viewport on the right. */
const overflows = (page: Page) =>
  page.evaluate(() => {
    const { scrollWidth, clientWidth } = document.documentElement;
    const log = document.querySelector(".log")!;
    return scrollWidth > clientWidth || log.scrollWidth > log.clientWidth;
  });

browserTest("page: works with the keyboard alone", async () => {
  await withServer({ reply: () => "One.\n\n```\ncode\n```", tokenMs: 5 }, async ({ base }) => {
    await withPage(base, async ({ page }) => {
      const focused = () =>
        page.evaluate(() => {
          const element = document.activeElement!;
          return element.getAttribute("aria-label") ?? element.textContent?.trim() ?? element.tagName;
        });
      const tabTo = async (name: string) => {
        for (let i = 0; i < 40; i++) {
          if (await focused() === name) return;
          await page.keyboard.press("Tab");
        }
        throw new Error(`Tab does not reach ${name}`);
      };
      await page.locator(".welcome").waitFor();
      assertEquals(await focused(), "Message");
      await page.keyboard.type("Hello");
      await page.keyboard.press("Shift+Enter");
      await page.keyboard.type("there");
      await page.keyboard.press("Enter");
      await page.locator(".user", { hasText: "Hello\nthere" }).waitFor();
      await page.locator(".answer .figures").waitFor();
      assertEquals(await focused(), "Message");

      await page.keyboard.press("Shift+Tab"); // a text model has no button for images before it
      assertEquals(await focused(), "Answer again");
      await tabTo("Skip to the content");
      assert(await page.locator(".skip").evaluate((link) => link.getBoundingClientRect().top >= 0));
      const ring = await page.locator(".skip").evaluate((link) => getComputedStyle(link).outlineStyle);
      assertEquals(ring, "solid");
      await tabTo("Edit and send again");
      await page.keyboard.press("Enter");
      assertEquals(await focused(), "Your message");
      await page.keyboard.press("Escape");
      assertEquals(await focused(), "Edit and send again");
      await tabTo("Settings of this conversation");
      await page.keyboard.press("Enter");
      await page.getByRole("dialog", { name: "Settings" }).waitFor();
      await page.keyboard.press("Escape");
      assertEquals(await focused(), "Settings of this conversation");
      await tabTo("Server");
      await page.keyboard.press("Enter");
      await page.getByRole("heading", { name: "Speed" }).waitFor();
      assertEquals(await page.locator("nav [aria-current=page]").innerText(), "Server");
    });
  });
});

browserTest("page: fits a phone's screen in every view, light and dark", async () => {
  const phone = { viewport: { width: 360, height: 720 }, hasTouch: true, isMobile: true };
  await withServer({ reply: () => REPLY, contextLength: 8192 }, async ({ base }) => {
    await withPage(base, async ({ page, barriers }) => {
      await ask(page, LONG);
      for (const colorScheme of ["light", "dark"] as const) {
        await page.emulateMedia({ colorScheme });
        for (const view of ["Chat", "Batches", "Server"]) {
          await page.getByRole("button", { name: "Menu" }).click();
          await page.getByRole("link", { name: view, exact: true }).click();
          await page.locator(`#${view.toLowerCase()}`).waitFor();
          assertEquals(await page.locator(".side").isVisible(), false);
          assertEquals(await overflows(page), false, `${view}, ${colorScheme}`);
          assertEquals(await barriers(), [], `${view}, ${colorScheme}`);
        }
      }
      for (const _ of ["another view is shown", "it is shown already"]) {
        await page.getByRole("button", { name: "Menu" }).click();
        await page.getByRole("link", { name: LONG.slice(0, 20) }).click();
        assertEquals(await page.locator(".side").isVisible(), false);
      }
      await page.getByRole("button", { name: "Settings of this conversation" }).click();
      assertEquals(await overflows(page), false);
      assertEquals(await barriers(), []);
    }, phone);
  });
});

browserTest("page: follows the system's theme until the user chooses one, and keeps the choice", async () => {
  await withServer({}, async ({ base }) => {
    await withPage(base, async ({ page, barriers }) => {
      const paper = () => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
      const light = await paper();
      await page.emulateMedia({ colorScheme: "dark" });
      const dark = await paper();
      assert(light !== dark);
      assertEquals(await barriers(), []);
      await page.getByRole("button", { name: "Colours: as the system" }).click();
      assertEquals(await paper(), light);
      await page.reload();
      assertEquals(await paper(), light);
      await page.getByRole("button", { name: "Colours: light" }).click();
      await page.emulateMedia({ colorScheme: "light" });
      assertEquals(await paper(), dark);
    });
  });
});

browserTest("page: announces each paragraph of an answer once to screen readers", async () => {
  const paragraphs = ["First paragraph.", "Second one.", "The end."];
  const options = { reply: () => paragraphs.join("\n\n"), tokenMs: 60, contextLength: 2048 };
  await withServer(options, async ({ base }) => {
    await withPage(base, async ({ page }) => {
      await page.getByLabel("Message", { exact: true }).fill("Hi");
      await page.keyboard.press("Enter");
      const said = page.locator("#announcements");
      await said.getByText("First paragraph.").waitFor({ state: "attached" });
      assertEquals(await page.getByRole("button", { name: "Stop", exact: true }).isVisible(), true);
      await page.locator(".answer .figures").waitFor();
      assertEquals(await said.locator("p").allTextContents(), paragraphs);
      assertEquals(await said.getAttribute("aria-live"), "polite");
    });
  });
});

browserTest("page: reduces motion if the system asks for it", async () => {
  await withServer({ tokenMs: 20, reply: () => "word ".repeat(50) }, async ({ base }) => {
    await withPage(base, async ({ page }) => {
      await page.getByLabel("Message", { exact: true }).fill("Hi");
      await page.keyboard.press("Enter");
      const pulse = page.locator(".answer .pulse");
      assertEquals(await pulse.evaluate((element) => getComputedStyle(element).animationName), "none");
    }, { reducedMotion: "reduce" });
  });
});

browserTest("page: updates plots while they are visible, and sends no other requests", async () => {
  await withServer(
    { tokenMs: 4, reply: () => "word ".repeat(1500), contextLength: 8192 },
    async ({ base }) => {
      await withPage(base, async ({ page, barriers }) => {
        let asked = 0;
        page.on("request", (request) => request.url().endsWith("/metrics") && asked++);
        await page.getByLabel("Message", { exact: true }).fill("Hi");
        await page.keyboard.press("Enter");
        await page.locator(".answer", { hasText: "word" }).waitFor();
        assertEquals(asked, 0);
        await page.getByRole("link", { name: "Server" }).click();
        const speed = page.getByRole("img", { name: /^Speed: [1-9]\d* tokens\/s written/ });
        await speed.waitFor();
        await page.getByRole("img", { name: "Requests: 1 running, 0 waiting" }).waitFor();
        assertMatch((await speed.locator(".line-0").getAttribute("d"))!, /^M[\d.]+ [\d.]+L/);
        assertEquals(await barriers(), []);
        await page.getByRole("link", { name: "Chat", exact: true }).click();
        await page.locator("#chat").waitFor();
        const before = asked;
        await new Promise((resolve) => setTimeout(resolve, 1500));
        assertEquals(asked, before);
      });
    },
  );
});
