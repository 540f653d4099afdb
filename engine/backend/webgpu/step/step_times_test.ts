import { assertEquals } from "@std/assert";
import { Costs, type Piece } from "./costs.ts";
import type { Kernel } from "../kernels/types.ts";
import { type PassClock, passTimes } from "../device/pass_clock.ts";
import type { Dispatch } from "./dispatch.ts";
import { StepTimes } from "./step_times.ts";

function pieceOf(key: string): Piece {
  const kernel = { key } as Kernel;
  return { kernel, dispatch: {} as Dispatch, first: [0, 0, 0], groups: [1, 1, 1], work: 1000 };
}

/** A clock with numbered timestamps. */
function clockOf(most: number) {
  let passes = 0;
  const next = () => ({ beginningOfPassWriteIndex: 2 * passes, endOfPassWriteIndex: 2 * passes++ + 1 });
  return { most, next, restart: () => void (passes = 0) } as unknown as PassClock;
}

const keys = (times: StepTimes, pieces: readonly Piece[]) =>
  times.passes(pieces).map(({ pieces, stamps }) =>
    `${pieces.map(({ kernel }) => kernel.key).join("")}${stamps ? " timed" : ""}`
  );

const [A, B, C] = ["a", "b", "c"].map(pieceOf);

/** Returns costs after the kernels a, b and c have run for 1 ms each. */
function learned(): Costs {
  const costs = new Costs(1e-3);
  costs.learn([A, B, C], 3);
  return costs;
}

Deno.test("step times: in each step, one dispatch of each kernel is timed", () => {
  const costs = learned();
  const times = new StepTimes(clockOf(8), costs);
  assertEquals(keys(times, [A, A, B, B]), ["a timed", "a", "b timed", "b"]);
  assertEquals(keys(times, [A, B, A, C, A]), ["aba", "c timed", "a"]);
  times.learn([{ begin: 5, end: 5.5 }, { begin: 6, end: 11 }, { begin: 20, end: 21 }]);
  assertEquals([A, B, C].map((piece) => Math.round(1e6 * costs.sum([piece])) / 1e6), [0.707107, 5, 1]);
});

Deno.test("step times: a kernel's first run is not timed, and the number of timed passes fits the clock's buffer", () => {
  const costs = new Costs(1e-3);
  assertEquals(keys(new StepTimes(clockOf(8), costs), [A, B]), ["ab"]);
  assertEquals(keys(new StepTimes(clockOf(2), learned()), [A, B, C, pieceOf("d")]), [
    "a timed",
    "b timed",
    "cd",
  ]);
});

Deno.test("step times: if all passes of a submit are timed, the submit's time is from its first pass to its last", () => {
  const times = new StepTimes(clockOf(8), learned(), true);
  assertEquals(keys(times, [B, A]), ["b timed", "a timed"]);
  assertEquals(keys(times, [A, A, C]), ["aa timed", "c timed"]);
  const submits = times.submits([[1, 2], [2, 4], [10, 11], [12, 15]].map(([begin, end]) => ({ begin, end })));
  assertEquals(submits, [
    { ms: 3, expected: 2, kernels: ["b", "a"] },
    { ms: 5, expected: 3, kernels: ["a", "a", "c"] },
  ]);
});

Deno.test("pass times: timestamps are nanoseconds in two words", () => {
  const words = Uint32Array.of(4_000_000_000, 1, 500_000, 2, 7, 0, 7, 0);
  const [first, second] = passTimes(words);
  assertEquals(Math.round(1e6 * (first.end - first.begin)), 2 ** 32 - 4_000_000_000 + 500_000);
  assertEquals([second.begin, second.end], [7e-6, 7e-6]);
});
