/**
 * Child process of lab/share.ts. Requests a URL 50 times a second, and prints each request's start (Unix time) and
 * response time, in milliseconds.
 */
import { print } from "../bench/shell.ts";

const EVERY_MS = 20;

const [url] = Deno.args;
for (;;) {
  const start = performance.now();
  await (await fetch(url)).body?.cancel();
  print(`${performance.timeOrigin + start} ${performance.now() - start}\n`);
  await new Promise((resolve) => setTimeout(resolve, EVERY_MS));
}
