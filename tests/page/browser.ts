/// <reference lib="dom" />
/** Chromium with the page, for tests. Debian's package is found automatically; COMPY_BROWSER names another program. */
import { assertEquals } from "@std/assert";
import axe from "axe-core";
import type { Browser, BrowserContextOptions, Page } from "playwright-core";
import { fullTier } from "../../testing/tier.ts";

const PLACES = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
const WAIT_MS = 20_000;

/** Returns the path of Chromium; undefined if Chromium is missing. Throws if COMPY_BROWSER_REQUIRED is set. */
export function browserPath(): string | undefined {
  const named = Deno.env.get("COMPY_BROWSER");
  const found = (named ? [named] : PLACES).find((path) => {
    try {
      return Deno.statSync(path).isFile;
    } catch {
      return false;
    }
  });
  if (found === undefined && Deno.env.get("COMPY_BROWSER_REQUIRED") === "1") {
    throw new Error("There is no Chromium: install it (Debian: chromium), or name it with COMPY_BROWSER");
  }
  return found;
}

export interface OpenPage {
  readonly page: Page;
  /** Opens another page with separate storage. */
  another(options?: BrowserContextOptions): Promise<Page>;
  /** Descriptions of the visible content's violations of axe's WCAG 2.2 AA rules. */
  barriers(): Promise<string[]>;
}

/**
 * Runs `test` with the page of a server open. Throws on failures that the page does not show: an exception, a violation
 * of its Content-Security-Policy, or a request outside `base`.
 */
export async function withPage(
  base: string,
  test: (open: OpenPage) => Promise<void>,
  options: BrowserContextOptions = {},
): Promise<void> {
  const browser = await launch();
  const faults: string[] = [];
  const open = async (options: BrowserContextOptions) => {
    const context = await browser.newContext({ viewport: { width: 1200, height: 800 }, ...options });
    context.setDefaultTimeout(WAIT_MS);
    const page = await context.newPage();
    page.on("pageerror", (error) => faults.push(`exception: ${error.stack}`));
    page.on("console", (message) => {
      // The browser logs each 4xx and 5xx answer and each lost connection; the page shows these itself.
      const expected = message.text().startsWith("Failed to load resource");
      if (!expected && message.type() !== "log") faults.push(`${message.type()}: ${message.text()}`);
    });
    page.on("request", (request) => {
      if (!/^(blob|data):/.test(request.url()) && !`${request.url()}/`.startsWith(`${base}/`)) {
        faults.push(`request to ${request.url()}`);
      }
    });
    await page.goto(`${base}/`);
    return page;
  };
  try {
    const page = await open(options);
    await test({
      page,
      another: (more = {}) => open({ ...options, ...more }),
      barriers: () => barriers(page),
    });
    assertEquals(faults, []);
  } catch (error) {
    if (faults.length > 0) throw new Error(`The page failed: ${faults.join("; ")}`, { cause: error });
    throw error;
  } finally {
    await browser.close();
  }
}

async function launch(): Promise<Browser> {
  // Otherwise playwright-core reads a folder of /proc while it loads, which needs `-A`.
  Deno.env.set("__IS_WSL_TEST__", "1");
  const { chromium } = await import("playwright-core");
  // Chromium's own sandbox does not start for root, as in most containers.
  return await chromium.launch({ executablePath: browserPath(), args: ["--no-sandbox"] });
}

async function barriers(page: Page): Promise<string[]> {
  await page.evaluate(axe.source);
  const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
  const found = await page.evaluate(async (tags) => {
    // deno-lint-ignore no-explicit-any -- set by the script above
    const { violations } = await (globalThis as any).axe.run(document, { runOnly: tags });
    // deno-lint-ignore no-explicit-any
    return violations.map(({ id, nodes }: any) => `${id}: ${nodes.map(({ html }: any) => html).join(" ")}`);
  }, tags);
  return found;
}

/** A test in Chromium. The test is skipped with a message if Chromium is missing. */
export function browserTest(name: string, test: () => Promise<void>): void {
  const ignore = browserPath() === undefined;
  // playwright-core keeps resources for its next browser.
  fullTier.test({ name, ignore, fn: test, sanitizeOps: false, sanitizeResources: false });
}
