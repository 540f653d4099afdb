import { promises as files } from "node:fs";
import { assert, assertEquals } from "@std/assert";
import { createApp } from "./app.ts";
import { LIBRARY_FILES } from "./page_libraries.ts";
import { FakeEngine } from "./testing.ts";

const FOLDER = new URL("./page/", import.meta.url);
const app = createApp(new FakeEngine(), { apiKeys: ["secret"] });

/** Paths of all files that a browser gets from the folder. */
const PATHS = Array.from(Deno.readDirSync(FOLDER), ({ name }) => name)
  .filter((name) => !name.endsWith(".ts"))
  .map((name) => name === "index.html" ? "/" : `/page/${name}`);

Deno.test("page: serves all its files without a key, with the right media types", async () => {
  assert(PATHS.length > 10);
  for (const path of PATHS) {
    const answer = await app.request(path);
    const type = answer.headers.get("content-type")!;
    assertEquals(answer.status, 200, path);
    const expected = path.endsWith(".js")
      ? "text/javascript"
      : path.endsWith(".css")
      ? "text/css"
      : path.endsWith(".svg")
      ? "image/svg+xml"
      : "text/html";
    assert(type.startsWith(expected), `${path}: ${type}`);
    assertEquals(answer.headers.get("x-content-type-options"), "nosniff");
    assert((await answer.text()).length > 50, path);
  }
});

Deno.test("page: serves the libraries' files, which name no other site", async () => {
  for (const name of Object.keys(LIBRARY_FILES)) {
    const answer = await app.request(`/page/${name}`);
    const text = await answer.text();
    assertEquals(answer.status, 200, name);
    if (name.endsWith(".css")) assert(!/@import|\burl\(\s*['"]?(?!data:)\w/.test(text), name);
    if (name.endsWith(".js")) {
      assert(/\bexport\b/.test(text) && !/\beval\(|new Function\b|XMLHttp/.test(text), name);
    }
  }
});

Deno.test("page: needs no key, but the API and all other paths do", async () => {
  for (
    const path of [
      "/v1/models",
      "/metrics",
      "/page/",
      "/page/none.js",
      "/page/markdown_test.ts",
      "/page/../guard.ts",
    ]
  ) {
    assertEquals((await app.request(path)).status, 401, path);
  }
  assertEquals((await app.request("/", { method: "POST" })).status, 401);
  assertEquals((await app.request("/", { headers: { host: "evil.example" } })).status, 403);
});

Deno.test("page: its policy allows its own files only", async () => {
  const { headers } = await app.request("/");
  const policy = new Map(
    headers.get("content-security-policy")!.split("; ").map((rule) => {
      const [name, ...values] = rule.split(" ");
      return [name, values.join(" ")];
    }),
  );
  assertEquals(Object.fromEntries(policy), {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "connect-src": "'self'",
    "img-src": "'self' data:",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
    "require-trusted-types-for": "'script'",
    "trusted-types": "compy",
    "worker-src": "'self'",
  });
  assertEquals(headers.get("x-frame-options"), "DENY");
  assertEquals(headers.get("referrer-policy"), "no-referrer");
  assertEquals(headers.get("strict-transport-security"), null);
});

Deno.test("page: browsers revalidate a file and get it once", async () => {
  const first = await app.request("/page/app.js");
  await first.body?.cancel();
  const tag = first.headers.get("etag")!;
  assertEquals(first.headers.get("cache-control"), "no-cache");
  const again = await app.request("/page/app.js", { headers: { "if-none-match": tag } });
  assertEquals([again.status, await again.text()], [304, ""]);
  const head = await app.request("/page/app.js", { method: "HEAD" });
  assertEquals([head.status, await head.text()], [200, ""]);
});

Deno.test("page: is not in the OpenAPI document, and refuses methods other than GET, HEAD and OPTIONS", async () => {
  const open = createApp(new FakeEngine());
  const { paths } = await (await open.request("/doc")).json();
  assertEquals(Object.keys(paths).filter((path) => path === "/" || path.startsWith("/page")), []);
  const answer = await open.request("/", { method: "DELETE" });
  assertEquals([answer.status, answer.headers.get("allow")], [405, "GET, HEAD, OPTIONS"]);
  await answer.body?.cancel();
});

Deno.test("page: its files use relative paths and no other site", async () => {
  for (const path of PATHS) {
    const text = await Deno.readTextFile(
      new URL(path === "/" ? "index.html" : path.slice("/page/".length), FOLDER),
    );
    const named = path.endsWith(".js")
      ? [...text.matchAll(/^import [^;]*?"([^"]+)";$/gm)].map(([, name]) => `page/${name}`)
      : [...text.matchAll(/(?:href|src)="([^"#]+)"/g)].map(([, name]) => name);
    for (const name of named) {
      const target = new URL(name.replace("page/./", "page/"), "http://host/");
      assert(PATHS.includes(target.pathname), `${path} names ${name}`);
      assert(!name.startsWith("/"), `${path} names ${name}`);
    }
    assert(!/innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(/.test(text), path);
    if (path === "/") assert(!/\sstyle=|\son\w+=|<style|<script>/.test(text), "something inline");
  }
});

Deno.test("page: a file that could not be read is read again", async () => {
  const errors: unknown[] = [];
  const app = createApp(new FakeEngine(), { onError: (error) => errors.push(error) });
  const { readFile } = files;
  Object.assign(files, { readFile: () => Promise.reject(new Error("Too many open files")) });
  try {
    assertEquals((await app.request("/page/app.js")).status, 500);
  } finally {
    files.readFile = readFile;
  }
  assertEquals((await app.request("/page/app.js")).status, 200);
  assertEquals(errors.length, 1);
});
