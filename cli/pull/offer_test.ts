import { assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import type { Choice, Offer } from "../../hub/mod.ts";
import { askWhich, offerAsText } from "./offer.ts";

function choice(quantisation: string, bytes: number, missing = ""): Choice {
  const path = `M-${quantisation}.gguf`;
  const url = new URL(`https://example.org/${path}`);
  const pieces = [{ path, url, size: bytes, sha256: undefined, file: path, offset: 0 }];
  return { name: `M-${quantisation}`, quantisation, pieces, bytes, missing };
}

const choices = [
  { choice: choice("Q4_0", 2e9), memory: 3e9, estimated: false, fits: true, refusal: "" },
  { choice: choice("Q8_0", 4e9), memory: 5e9, estimated: true, fits: false, refusal: "" },
  {
    choice: choice("F16", 8e9, "1 of 2 files"),
    memory: undefined,
    estimated: true,
    fits: undefined,
    refusal: "",
  },
];
const OFFER: Offer = { source: "hf:me/M-GGUF", choices, recommended: choices[0], free: 4e9 };

Deno.test("pull: the table shows each choice, its memory and whether it fits", () => {
  assertEquals(offerAsText(OFFER).split("\n").slice(2, 6), [
    "   choice  download  files  memory",
    "*  Q4_0    2.0 GB    1      3.0 GB   fits",
    "   Q8_0    4.0 GB    1      ~5.0 GB  does not fit",
    "   F16     8.0 GB    1      ?        incomplete on the hub: 1 of 2 files missing",
  ]);
  assertStringIncludes(offerAsText(OFFER), "4.0 GB are free here");
});

Deno.test("pull: accepts a choice's label, its name or an empty line, and asks again otherwise", async () => {
  const { signal } = new AbortController();
  const asked = async (...lines: (string | undefined)[]) => {
    const readLine = () => Promise.resolve(lines.shift());
    return (await askWhich(OFFER, signal, { readLine, write: () => {} })).name;
  };
  assertEquals(await asked(""), "M-Q4_0");
  assertEquals(await asked("q5", "q8_0"), "M-Q8_0");
  assertEquals(await asked("m-f16"), "M-F16");
  await assertRejects(() => asked(undefined), Error, "Stopped");
  const stop = new AbortController();
  const answer = askWhich(OFFER, stop.signal, { readLine: () => new Promise(() => {}), write: () => {} });
  stop.abort(new Error("Ctrl-C"));
  await assertRejects(() => answer, Error, "Ctrl-C");
});
