import { promises as files, readdirSync } from "node:fs";
import type { Env as HonoEnv, Hono, Schema } from "hono";
import { etag } from "hono/etag";
import { secureHeaders } from "hono/secure-headers";
import { shipped } from "../package.ts";
import { SAMPLING_FIELDS } from "./page_fields.ts";

/** The files of this folder are served unchanged, except sampling.js: plain HTML, CSS and JavaScript without a build step. */
const FOLDER = shipped("routes/page/");

const TYPES: Readonly<Record<string, string>> = {
  html: "text/html; charset=utf-8",
  css: "text/css; charset=utf-8",
  js: "text/javascript; charset=utf-8",
  svg: "image/svg+xml",
};

/** The module that browsers get as sampling.js. */
const SAMPLING_MODULE = `export const SAMPLING_FIELDS = ${JSON.stringify(SAMPLING_FIELDS)};\n`;

/** The page connects only to this server, runs only its own scripts, and cannot be embedded. */
const headers = secureHeaders({
  contentSecurityPolicy: {
    defaultSrc: ["'none'"],
    scriptSrc: ["'self'"],
    styleSrc: ["'self'"],
    connectSrc: ["'self'"],
    imgSrc: ["'self'", "data:"],
    baseUri: ["'none'"],
    formAction: ["'none'"],
    frameAncestors: ["'none'"],
    requireTrustedTypesFor: ["'script'"],
    trustedTypes: ["'none'"],
  },
  xFrameOptions: "DENY",
  // The proxy that has the certificate decides whether names are served over TLS only.
  strictTransportSecurity: false,
});

/**
 * Serves the page at `/` and its files under `/page/`. They contain nothing secret and need no key; the API requests of
 * the page do. They are not in the API's document. Throws if the folder is missing.
 */
export function mountPage<E extends HonoEnv, S extends Schema, P extends string>(app: Hono<E, S, P>): void {
  for (const name of readdirSync(FOLDER)) {
    const type = TYPES[name.slice(name.lastIndexOf(".") + 1)];
    if (type === undefined) continue;
    const path = name === "index.html" ? "/" : `/page/${name}`;
    let content: Promise<Uint8Array<ArrayBuffer>> | undefined = name === "sampling.js"
      ? Promise.resolve(new TextEncoder().encode(SAMPLING_MODULE))
      : undefined;
    app.get(path, headers, etag(), async (c) => {
      content ??= files.readFile(new URL(name, FOLDER)).then((bytes) => new Uint8Array(bytes)).catch(
        (error) => {
          content = undefined; // a temporary failure, such as too many open files
          throw error;
        },
      );
      // Browsers revalidate each time and get a 304: a newer server has a newer page.
      return c.body(await content, 200, { "content-type": type, "cache-control": "no-cache" });
    });
  }
}
