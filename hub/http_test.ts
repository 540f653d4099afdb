import { assertEquals } from "@std/assert";
import { retryAfter } from "./http.ts";

Deno.test("retry-after: a date is compared with the Date header of the answer, not with this machine's clock", () => {
  const waits = [
    ["120", undefined, 120_000],
    ["Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:07 GMT", 30_000],
    ["Sun, 06 Nov 2094 08:49:37 GMT", "Sun, 06 Nov 2094 08:49:07 GMT", 30_000],
    ["Sun, 06 Nov 1994 08:49:37 GMT", undefined, 0],
    ["soon", undefined, undefined],
  ] as const;
  for (const [after, date, ms] of waits) {
    const headers = new Headers({ "retry-after": after, ...(date && { date }) });
    assertEquals(retryAfter(headers), ms);
  }
  assertEquals(retryAfter(new Headers()), undefined);
});
