import { promises as files, readdirSync } from "node:fs";
import type { Env as HonoEnv, Hono, Schema } from "hono";
import { etag } from "hono/etag";
import { secureHeaders } from "hono/secure-headers";
import { shipped } from "../package.ts";
import { SAMPLING_FIELDS } from "./page_fields.ts";
import { LIBRARY_FILES } from "./page_libraries.ts";

/**
 * Folder of the page's files: HTML, CSS and JavaScript without a build step. They are served unchanged, except
 * sampling.js.
 */
const FOLDER = shipped("routes/page/");

const TYPES: Readonly<Record<string, string>> = {
  html: "text/html; charset=utf-8",
  css: "text/css; charset=utf-8",
  js: "text/javascript; charset=utf-8",
  svg: "image/svg+xml",
};

/** Text of sampling.js, which lists the sampling settings for the page. */
const SAMPLING_MODULE = `export const SAMPLING_FIELDS = ${JSON.stringify(SAMPLING_FIELDS)};\n`;

/** Headers of the page: it connects only to this server, runs only its own scripts, and cannot be embedded. */
const headers = secureHeaders({
  contentSecurityPolicy: {
    defaultSrc: ["'none'"],
    scriptSrc: ["'self'"],
    styleSrc: ["'self'"],
    workerSrc: ["'self'"],
    connectSrc: ["'self'"],
    imgSrc: ["'self'", "data:"],
    baseUri: ["'none'"],
    formAction: ["'none'"],
    frameAncestors: ["'none'"],
    requireTrustedTypesFor: ["'script'"],
    // The page's Trusted Types policy allows only one script address: that of its worker.
    trustedTypes: ["compy"],
  },
  xFrameOptions: "DENY",
  // The proxy that has the certificate decides whether to require TLS.
  strictTransportSecurity: false,
});

/**
 * Serves the page at `/`, and its files and libraries under `/page/`. They contain no secrets and need no key, but the
 * page's API requests do. These paths are not in the OpenAPI document. Throws if the folder is missing.
 */
export function mountPage<E extends HonoEnv, S extends Schema, P extends string>(app: Hono<E, S, P>): void {
  const readers: Record<string, () => Promise<string | Uint8Array<ArrayBuffer>>> = { ...LIBRARY_FILES };
  for (const name of readdirSync(FOLDER)) {
    readers[name] = async () => new Uint8Array(await files.readFile(new URL(name, FOLDER)));
  }
  readers["sampling.js"] = () => Promise.resolve(SAMPLING_MODULE);
  for (const [name, read] of Object.entries(readers)) {
    const type = TYPES[name.slice(name.lastIndexOf(".") + 1)];
    if (type === undefined) continue;
    const path = name === "index.html" ? "/" : `/page/${name}`;
    let content: Promise<string | Uint8Array<ArrayBuffer>> | undefined;
    app.get(path, headers, etag(), async (c) => {
      content ??= read().catch((error) => {
        content = undefined; // a temporary failure, such as too many open files
        throw error;
      });
      // Browsers revalidate each time and get a 304, because a newer server has a newer page.
      return c.body(await content, 200, { "content-type": type, "cache-control": "no-cache" });
    });
  }
}
