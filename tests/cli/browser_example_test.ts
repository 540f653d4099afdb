import { assert, assertStringIncludes } from "@std/assert";
import { join } from "@std/path";
import { buildBrowserExample } from "../../tools/browser_example.ts";
import { browserPath, withPage } from "../page/browser.ts";
import { fullTier } from "../../testing/tier.ts";

/* The page of examples/browser/: a model answers in Chromium, from a static server. */

const TYPES: Readonly<Record<string, string>> = {
  html: "text/html",
  js: "text/javascript",
  wasm: "application/wasm",
};
/** Headers that let a page share memory with its workers. */
const ISOLATED = {
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-embedder-policy": "require-corp",
};

/** Serves the folder's files. */
function serveFiles(
  folder: string,
  headers: Readonly<Record<string, string>>,
): Deno.HttpServer<Deno.NetAddr> {
  const options = { hostname: "127.0.0.1", port: 0, onListen: () => {} };
  return Deno.serve(options, async (request) => {
    const { pathname } = new URL(request.url);
    const name = pathname === "/" ? "index.html" : pathname.slice(1);
    try {
      const type = TYPES[name.split(".").at(-1)!] ?? "application/octet-stream";
      const body = await Deno.readFile(join(folder, name));
      return new Response(body, { headers: { ...headers, "content-type": type } });
    } catch {
      return new Response("There is no such file", { status: 404 });
    }
  });
}

for (const isolated of [true, false]) {
  fullTier.test({
    name: `examples/browser: the demo model answers on a page, ${
      isolated ? "with threads" : "alone on a page that is not isolated"
    }`,
    ignore: browserPath() === undefined,
    async fn() {
      const folder = await Deno.makeTempDir();
      try {
        await buildBrowserExample(folder);
        await using server = serveFiles(folder, isolated ? ISOLATED : {});
        await withPage(`http://127.0.0.1:${server.addr.port}`, async ({ page }) => {
          await page.waitForSelector("button:enabled");
          const state = await page.textContent("#state");
          assertStringIncludes(state!, "demo: wasm-simd128");
          assert(isolated === !state!.includes("1 thread"), state!);
          await page.click("button");
          await page.waitForSelector("button:enabled");
          assertStringIncludes((await page.textContent("#answer"))!, "My name is compy");
        });
      } finally {
        await Deno.remove(folder, { recursive: true });
      }
    },
  });
}
