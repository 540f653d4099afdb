/// <reference lib="dom" />
import { assert, assertEquals } from "@std/assert";
import { withServer } from "../../routes/testing_server.ts";
import { browserTest, withPage } from "./browser.ts";
import { answers, ask, settled } from "./page_chat.ts";

/* Formulas and highlighted code in Chromium. */

const REPLY = [
  "Let $a_1$ be \\(x^2\\), it costs $5 and $6:",
  "$$\n\\begin{aligned}\na &= \\frac{b}{c} \\\\\n&= \\sum_{i=0}^n i\n\\end{aligned}\n$$",
  "```python\ndef f(x):\n    return 'a' # done\n```",
  "- in a list: $y$\n  ```ts\n  const a = 1;\n  ```",
].join("\n\n");

browserTest(
  "page: typesets formulas and highlights code, while an answer comes and after a reload",
  async () => {
    await withServer({ reply: () => REPLY, tokenMs: 3, contextLength: 8192 }, async ({ base }) => {
      await withPage(base, async ({ page, barriers }) => {
        const requested: string[] = [];
        page.on("request", (request) => requested.push(new URL(request.url()).pathname));
        await ask(page, "Hi");
        await page.locator(".answer math mfrac").waitFor();
        await settled(page);
        for (const colorScheme of ["light", "dark"] as const) {
          await page.emulateMedia({ colorScheme });
          // The libraries arrive one after the other.
          await page.locator(".answer math").nth(3).waitFor();
          await page.locator(".token.kwd").nth(2).waitFor();
          assertEquals(await page.locator(".answer math").count(), 4);
          assertEquals(await page.locator(".token.kwd").allInnerTexts(), ["def", "return", "const"]);
          assertEquals(await page.locator(".answer math[display=block] mtr").count(), 2);
          assertEquals(
            await page.locator(".answer pre").first().innerText(),
            "def f(x):\n    return 'a' # done",
          );
          assert((await answers(page))[0].includes("it costs $5 and $6:"));
          assertEquals(await barriers(), []);
          await page.reload();
        }
        // Libraries come from this server, each file once per page, and only the grammars that the code needs.
        const libraries = requested.filter((path) => /temml|highlight/.test(path));
        assertEquals([...new Set(libraries)].sort(), [
          "/page/highlight/py.js",
          "/page/highlight/todo.js",
          "/page/highlight/tokenize.js",
          "/page/highlight/ts.js",
          "/page/temml.css",
          "/page/temml.js",
        ]);
      });
    });
  },
);

browserTest("page: a conversation without formulas and code loads no library", async () => {
  await withServer({ reply: () => "Plain **text**, for $5.\n\n```\nplain\n```" }, async ({ base }) => {
    await withPage(base, async ({ page }) => {
      const requested: string[] = [];
      page.on("request", (request) => requested.push(request.url()));
      await ask(page, "Hi");
      await settled(page);
      assertEquals(requested.filter((url) => /temml|highlight|worker/.test(url)), []);
    });
  });
});

browserTest("page: hostile formulas and code run no scripts and do not slow the page down", async () => {
  const hostile = [
    "$\\href{javascript:document.title='run'}{x}$ $\\htmlData{a=b}{x}$ $\\style{position:fixed}{x}$",
    "$\\def\\a{\\a\\a}\\a$ $\\text{<img src=x onerror=\"document.title='run'\">}$",
    "$\\kern-900em\\rule{900em}{900em}$",
    `$${"{".repeat(4000)}$`,
    // A regular expression of this grammar takes seconds for this text.
    `\`\`\`js\n${"a".repeat(20_000)}\n\`\`\``,
    `\`\`\`js\n${`${"let a = 1; ".repeat(100)}\n`.repeat(1000)}\n\`\`\``,
    "```html\n<script>document.title='run'</script>\n```",
    "$1$",
  ].join("\n\n");
  await withServer({ reply: () => "Fine.", contextLength: 8192 }, async ({ base }) => {
    await withPage(base, async ({ page }) => {
      await ask(page, "Hi");
      await settled(page);
      // The scripted server would need minutes for a text of this length.
      const slowest = await page.evaluate(async (text) => {
        const { GrowingText } = await import(new URL("page/render.js", document.baseURI).href);
        const shown = new GrowingText();
        document.querySelector(".log")!.append(shown.element);
        shown.show(text);
        let slowest = 0;
        let before = performance.now();
        while (!shown.element.querySelector(".token") || shown.element.querySelectorAll("math").length < 3) {
          await new Promise((resolve) => setTimeout(resolve, 10));
          const now = performance.now();
          slowest = Math.max(slowest, now - before);
          before = now;
        }
        return slowest;
      }, hostile);
      await page.locator(".token", { hasText: "script" }).first().waitFor();
      await page.locator("math mn", { hasText: "1" }).waitFor();
      assert(slowest < 2000, `the page stood still for ${slowest.toFixed(0)} ms`);
      assertEquals(await page.title(), "Chat · compy");
      assertEquals(await page.locator(".log :is(script, img, iframe)").count(), 0);
      assertEquals(await page.locator("math [href], math [style*=fixed]").count(), 0);
    });
  });
});

browserTest("page: a growing answer keeps the elements of its finished parts", async () => {
  // The answer is longer than the test needs to check the page.
  const reply = () => "First $a$.\n\n```js\nlet a = 1;\n```\n\n```js\n" + "let b = 2;\n".repeat(600) + "```";
  await withServer({ reply, tokenMs: 3, contextLength: 8192 }, async ({ base }) => {
    await withPage(base, async ({ page }) => {
      await ask(page, "Hi");
      await page.locator("pre").nth(1).waitFor();
      await page.locator("pre").first().locator(".token").first().waitFor();
      await page.evaluate(() => {
        for (const kept of document.querySelectorAll("math, pre, pre .token")) {
          kept.setAttribute("data-kept", "");
        }
      });
      await page.locator("pre").nth(1).filter({ hasText: "let b = 2;\n".repeat(40) }).waitFor();
      assertEquals(await page.locator("math:not([data-kept]), pre:not([data-kept])").count(), 0);
      assertEquals(await page.locator("pre").first().locator(".token:not([data-kept])").count(), 0);
      assert(
        await page.locator("pre").nth(1).locator(".token.kwd").count() > 5,
        "growing code is highlighted",
      );
      await page.getByRole("button", { name: "Stop", exact: true }).click();
      await settled(page);
    });
  });
});
