import { assertEquals, assertThrows } from "@std/assert";
import { ClockWatch } from "./clock.ts";

const DAY = 24 * 3600;
const TODAY = 1_800_000_000;

/**
 * Runs a clock for `seconds`, then sets it ahead by `jump`. Returns the shifts of records that were created at these
 * times.
 */
function shiftsOf(start: number, seconds: number, jump: number, createdAt: readonly number[]) {
  let [now, steady] = [start, 500];
  const watch = new ClockWatch(() => now, () => steady);
  watch.follow(() => {}); // at the start
  const follow = () => {
    let shifts: number[] | undefined;
    watch.follow((shift) => shifts = createdAt.map((at) => shift(at)));
    return shifts;
  };
  assertEquals(follow(), undefined);
  now += seconds + jump;
  steady += seconds;
  const full = () => {
    throw new Error("The disk is full");
  };
  if (Math.abs(jump) >= 60) assertThrows(() => watch.follow(full), Error, "full");
  const shifts = follow();
  assertEquals(follow(), undefined);
  return shifts;
}

Deno.test("clock: drift and small corrections are not taken for a jump", () => {
  for (const jump of [0, 59, -59]) assertEquals(shiftsOf(TODAY, 10 * DAY, jump, []), undefined);
});

Deno.test("clock: after a jump, only the dates of records written with the wrong clock are shifted", () => {
  // A machine that starts in 1970 and is set to today; the second record is from before its restart.
  assertEquals(shiftsOf(100, 30, TODAY, [120, TODAY - DAY]), [TODAY, 0]);
  // A clock that jumps ten years ahead, and back. The last record is from before it was wrong.
  const years = 3650 * DAY;
  assertEquals(shiftsOf(TODAY, 30, years, [TODAY - DAY, TODAY + 20]), [years, years]);
  assertEquals(shiftsOf(TODAY + years, 30, -years, [TODAY + years - DAY, TODAY + years + 20, TODAY - DAY]), [
    -years,
    -years,
    0,
  ]);
});

Deno.test("clock: at the start, the age of records from before the clock was set counts anew", () => {
  const shiftsAt = (now: number) => {
    const shifts: number[] = [];
    const watch = new ClockWatch(() => now, () => now);
    for (let calls = 0; calls < 2; calls++) {
      watch.follow((shift) => shifts.push(...[120, TODAY - DAY].map((at) => shift(at))));
    }
    return shifts;
  };
  assertEquals(shiftsAt(100), []);
  assertEquals(shiftsAt(TODAY), [TODAY - 120, 0]);
});
