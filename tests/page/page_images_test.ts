/// <reference lib="dom" />
import { assert, assertEquals, assertMatch } from "@std/assert";
import { Buffer } from "node:buffer";
import type { Page } from "playwright-core";
import { decodeImage } from "../../engine/vision/decode.ts";
import { loadEngine } from "../../engine/load/load.ts";
import { serveHttp } from "../../routes/serve.ts";
import { withFiles } from "../models/vision/files.ts";
import { png } from "../models/vision/pictures.ts";
import { browserTest, withPage } from "./browser.ts";
import { ask, settled } from "./page_chat.ts";

/* Images in the page's chat, in Chromium, with a seeded vision model. */

/** Runs `test` with the address of a server whose model has a vision tower, or has none. */
async function withVision(tower: boolean, test: (base: string) => Promise<void>): Promise<void> {
  await withFiles({ tower: "qwen3vl", type: "Q8_0", seed: 6 }, async ({ model, tower: file }) => {
    if (!tower) await Deno.remove(file);
    const { engine } = await loadEngine({ model, backend: "cpu", threads: 2, contextLength: 1024 });
    const server = serveHttp(engine, { signals: false });
    try {
      await test(`http://127.0.0.1:${server.port}`);
    } finally {
      await server.shutdown(0);
    }
  });
}

async function file(name: string, width = 64): Promise<{ name: string; mimeType: string; buffer: Buffer }> {
  return { name, mimeType: "image/png", buffer: Buffer.from(await png(width, 64, 1)) };
}

/** Dispatches a paste or drop event with files to an element. */
async function hand(page: Page, type: "paste" | "drop", target: string, files: [string, string, string][]) {
  await page.evaluate(([type, target, files]) => {
    const data = new DataTransfer();
    for (const [name, type, base64] of files) {
      const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
      data.items.add(new File([bytes], name, { type }));
    }
    const options = { bubbles: true, cancelable: true };
    document.querySelector(target)!.dispatchEvent(
      type === "paste"
        ? new ClipboardEvent(type, { ...options, clipboardData: data })
        : new DragEvent(type, { ...options, dataTransfer: data }),
    );
  }, [type, target, files] as const);
}

/** Returns the names of the images in the composer or in messages. */
const names = (page: Page, place: string) =>
  page.locator(`${place} .images img`).evaluateAll((images) =>
    images.map((image) => image.getAttribute("alt"))
  );

/** Returns the URLs of the images in a request's messages. */
const urls = (body: string | null): string[] =>
  // deno-lint-ignore no-explicit-any -- the request's JSON
  JSON.parse(body!).messages.flatMap(({ content }: any) => typeof content === "string" ? [] : content)
    .flatMap((part: { image_url?: { url: string } }) => part.image_url?.url ?? []);

browserTest("page: attaches, pastes and drops images, and keeps them over a reload", async () => {
  await withVision(true, async (base) => {
    await withPage(base, async ({ page, barriers }) => {
      const bodies: (string | null)[] = [];
      page.on("request", (request) => request.method() === "POST" && bodies.push(request.postData()));
      const base64 = (await png(64, 64, 2)).toBase64();
      await page.getByLabel("Images to attach").setInputFiles([
        await file("one.png"),
        await file("two.png", 96),
      ]);
      await hand(page, "paste", "#prompt", [["three.png", "image/png", base64]]);
      await hand(page, "drop", ".log", [["four.png", "image/png", base64]]);
      await page.getByRole("button", { name: "Remove two.png" }).click();
      await page.getByRole("button", { name: "Remove four.png" }).waitFor();
      assertEquals(await names(page, ".composer"), ["one.png", "three.png", "four.png"]);
      assertEquals(await barriers(), []);
      await page.getByRole("button", { name: "Settings of this conversation" }).click();
      await page.getByLabel("Most tokens", { exact: true }).fill("4");
      await page.keyboard.press("Escape");
      await ask(page, "What is this?");
      await settled(page);
      assertEquals([await names(page, ".composer"), await names(page, ".user")], [
        [],
        ["one.png", "three.png", "four.png"],
      ]);
      assertEquals(await page.locator(".trouble").allInnerTexts(), []);
      const one = `data:image/png;base64,${(await file("one.png")).buffer.toString("base64")}`;
      assertEquals(urls(bodies[0]), [one, ...Array(2).fill(`data:image/png;base64,${base64}`)]);
      const width = await page.locator(".user img").first().evaluate((image: HTMLImageElement) =>
        image.naturalWidth
      );
      assertEquals(width, 64);

      await page.reload();
      await page.locator(".user img").first().waitFor();
      await page.getByRole("button", { name: "Answer again" }).click();
      await settled(page);
      assertEquals(urls(bodies[1]), urls(bodies[0]));
      await page.getByRole("button", { name: "Edit and send again" }).click();
      await page.locator(".user").getByRole("button", { name: "Remove three.png" }).click();
      assertEquals(await barriers(), []);
      await page.getByRole("button", { name: "Send again" }).click();
      await settled(page);
      assertEquals(urls(bodies[2]), [urls(bodies[0])[0], urls(bodies[0])[2]]);

      const photo = Buffer.from(await png(2000, 1000, 1, { kind: 0 }));
      assert(photo.length > 1_900_000);
      await page.getByLabel("Images to attach").setInputFiles([
        { name: "photo.png", mimeType: "image/png", buffer: photo },
      ]);
      await page.getByRole("button", { name: "Remove photo.png" }).waitFor();
      await page.getByRole("button", { name: "Send", exact: true }).click();
      await settled(page);
      const sent = urls(bodies[3])[2];
      assertMatch(sent, /^data:image\/jpeg;base64,/);
      const { width: across, height } = await decodeImage(Uint8Array.fromBase64(sent.split(",")[1]));
      assertEquals([across, height], [1732, 866]);
    });
  });
});

browserTest("page: says why an image cannot be attached, and drops other files as batches", async () => {
  await withVision(true, async (base) => {
    await withPage(base, async ({ page }) => {
      const problem = page.locator(".attachments [role=alert]");
      const text = (text: string) => new TextEncoder().encode(text).toBase64();
      const refused = async (name: string, base64: string, expected: RegExp) => {
        await hand(page, "drop", ".log", [[name, "image/png", base64]]);
        await problem.filter({ hasText: name }).waitFor();
        assertMatch(await problem.innerText(), expected);
      };
      await refused("a.svg", text("<svg/>"), /^a\.svg is not a PNG, JPEG, WebP or GIF image\.$/);
      await refused(
        "b.png",
        (await png(64, 64, 1, { rows: 9 })).slice(0, 60).toBase64(),
        /^b\.png is damaged/,
      );
      await page.evaluate(() => {
        const dataTransfer = new DataTransfer();
        dataTransfer.items.add(new File([new Uint8Array(31e6)], "large.png", { type: "image/png" }));
        const options = { bubbles: true, cancelable: true, dataTransfer };
        document.querySelector(".log")!.dispatchEvent(new DragEvent("drop", options));
      });
      await problem.filter({ hasText: "large.png has 31.0 MB: an image may have at most 30.0 MB." })
        .waitFor();
      await page.getByLabel("Images to attach").setInputFiles(
        await Promise.all(Array.from({ length: 9 }, (_, i) => file(`${i}.png`))),
      );
      await problem.filter({ hasText: "A conversation may have at most 8 images." }).waitFor();
      assertEquals((await names(page, ".composer")).length, 8);
      const line = '{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{}}';
      await hand(page, "drop", ".log", [["batch.jsonl", "", text(line)]]);
      await page.waitForURL(`${base}/#batches`);
    });
  });
});

browserTest(
  "page: attaches no image for a model without a vision tower, and sends none, with advice",
  async () => {
    await withVision(false, async (base) => {
      await withPage(base, async ({ page }) => {
        const list = `${base}/v1/models`;
        const told = await (await fetch(list)).json();
        const { architecture: _, ...unloaded } = told.data[0];
        await page.route(list, (route) => route.fulfill({ json: { data: [unloaded] } }));
        await page.reload();
        await page.getByLabel("Images to attach").setInputFiles([await file("one.png")]);
        await page.getByRole("button", { name: "Remove one.png" }).waitFor();
        await page.getByRole("button", { name: "Send", exact: true }).click();
        await page.getByRole("alert").filter({ hasText: "this model reads text only" }).waitFor();
        assertMatch(await page.locator(".advice").innerText(), /vision tower \(an mmproj file\)/);
        await page.unroute(list);
        await page.reload();
        const bodies: unknown[] = [];
        page.on("request", (request) => request.method() === "POST" && bodies.push(request.postData()));
        await page.getByRole("button", { name: "Try again" }).click();
        await page.getByRole("alert").filter({ hasText: "model reads text only." }).waitFor();
        assertMatch(await page.locator(".advice").innerText(), /vision tower \(an mmproj file\)/);
        assertEquals(bodies, []);
        assert(!await page.getByRole("button", { name: "Attach images" }).isVisible());
        await page.getByLabel("Images to attach").setInputFiles([await file("two.png")]);
        await page.locator(".attachments [role=alert]").filter({ hasText: "model reads text only." })
          .waitFor();
        await page.evaluate(() => indexedDB.deleteDatabase("compy-images"));
        await page.reload();
        await page.getByRole("button", { name: "Try again" }).click();
        await page.getByRole("alert").filter({ hasText: "no longer has the image one.png" }).waitFor();
        assert((await page.locator(".user img").count()) === 1);
      });
    });
  },
);
