import { readdirSync } from "node:fs";
import { readFile } from "node:fs/promises";
import type { Env as HonoEnv, Hono, Schema } from "hono";
import { etag } from "hono/etag";
import { secureHeaders } from "hono/secure-headers";
import { shipped } from "../package.ts";

/** What stands in this folder is served as it is: plain HTML, CSS and JavaScript, nothing is built. */
const FOLDER = shipped("routes/page/");

const TYPES: Readonly<Record<string, string>> = {
  html: "text/html; charset=utf-8",
  css: "text/css; charset=utf-8",
  js: "text/javascript; charset=utf-8",
  svg: "image/svg+xml",
};

/** The page asks this server and no other, runs its own scripts alone, and stands in no other page. */
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
  // Whether names are served over TLS alone is for the proxy that has the certificate to say.
  strictTransportSecurity: false,
});

/**
 * Serves the page at `/` and its parts under `/page/`. They hold nothing secret and need no key; what the page asks of
 * the API does. None of it is part of the API's document. Throws where the folder is missing.
 */
export function mountPage<E extends HonoEnv, S extends Schema, P extends string>(app: Hono<E, S, P>): void {
  for (const name of readdirSync(FOLDER)) {
    const type = TYPES[name.slice(name.lastIndexOf(".") + 1)];
    if (type === undefined) continue;
    const path = name === "index.html" ? "/" : `/page/${name}`;
    let content: Promise<Uint8Array<ArrayBuffer>> | undefined;
    app.get(path, headers, etag(), async (c) => {
      content ??= readFile(new URL(name, FOLDER)).then((bytes) => new Uint8Array(bytes)).catch((error) => {
        content = undefined; // such as too many open files, which passes
        throw error;
      });
      // Asked for again each time, and answered by 304: a newer server has a newer page.
      return c.body(await content, 200, { "content-type": type, "cache-control": "no-cache" });
    });
  }
}
