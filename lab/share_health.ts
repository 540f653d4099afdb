/**
 * The process of lab/share.ts that asks for an address 50 times a second, and prints of each answer when it was asked for (Unix
 * time) and how long it took, in milliseconds.
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
