import { assertEquals } from "@std/assert";
import { handOutOrder } from "./hand_out.ts";

const DOCUMENT = "It was a long document about nothing in particular. ".repeat(8);

function lines(...given: [key: string, answer: number][]) {
  return given.map(([key, answer], index) => ({ index, key, answer }));
}

function order(found: { index: number }[]): number[] {
  return found.map(({ index }) => index);
}

Deno.test("handOutOrder: groups lines with a long common prefix", () => {
  const given = lines([`A${DOCUMENT}1`, 9], [`B${DOCUMENT}1`, 5], [`A${DOCUMENT}2`, 9], [`B${DOCUMENT}2`, 5]);
  assertEquals(order(handOutOrder(given, "", true)), [0, 2, 1, 3]);
});

Deno.test("handOutOrder: puts lines first that share a prefix with lines of the previous read-ahead", () => {
  const given = lines([`A${DOCUMENT}1`, 9], [`B${DOCUMENT}1`, 5], [`A${DOCUMENT}2`, 9], [`B${DOCUMENT}2`, 5]);
  assertEquals(order(handOutOrder(given, `B${DOCUMENT}0`, false)), [1, 3, 0, 2]);
});

Deno.test("handOutOrder: alternates long and short answers, but puts long ones first among the last lines", () => {
  const given = lines(["a", 1], ["b", 2], ["c", 3], ["d", 4], ["e", 5]);
  assertEquals(order(handOutOrder(given, "", false)), [4, 0, 3, 1, 2]);
  assertEquals(order(handOutOrder(given, "", true)), [4, 3, 2, 1, 0]);
});

Deno.test("handOutOrder: returns every line exactly once", () => {
  const given = lines(
    ...Array.from({ length: 999 }, (_, n): [string, number] => [`${n % 7}${DOCUMENT}`, n * 31 % 17]),
  );
  assertEquals(order(handOutOrder(given, "", false)).sort((a, b) => a - b), order(given));
});
