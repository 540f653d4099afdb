import { assertEquals } from "@std/assert";
import { Buckets, Counts, exposition } from "./exposition.ts";
import { stepRows } from "./metrics.ts";

const HELP = { name: "m", help: "h" };

Deno.test("exposition: escapes backslashes, quotes and line breaks in labels", () => {
  const counts = new Counts();
  counts.add({ route: 'a"b\\c\nd', status: "200" });
  counts.add({ route: 'a"b\\c\nd', status: "200" });
  counts.add({ route: "e", status: "404" });
  assertEquals(exposition([{ ...HELP, type: "counter", samples: () => counts.samples() }]).split("\n"), [
    "# HELP m h",
    "# TYPE m counter",
    'm{route="a\\"b\\\\c\\nd",status="200"} 2',
    'm{route="e",status="404"} 1',
    "",
  ]);
});

Deno.test("Buckets: counts a value on a bound in that bound's bucket, cumulatively", () => {
  const buckets = new Buckets([0, 0.5]);
  for (const value of [0, 0.25, 0.5, 2]) buckets.observe("a", value);
  assertEquals(
    exposition([{ ...HELP, type: "histogram", samples: () => buckets.samples() }]).split("\n").slice(2),
    [
      'm_bucket{le="0",model="a"} 1',
      'm_bucket{le="0.5",model="a"} 3',
      'm_bucket{le="+Inf",model="a"} 4',
      'm_sum{model="a"} 2.75',
      'm_count{model="a"} 4',
      "",
    ],
  );
});

Deno.test("stepRows: exports a histogram with cumulative buckets", () => {
  const samples = stepRows({ model: "a" }, { rows: 40, stepRows: [4, 1, 3, 2] });
  assertEquals(exposition([{ ...HELP, type: "histogram", samples: () => samples }]).split("\n").slice(2), [
    'm_bucket{le="1",model="a"} 4',
    'm_bucket{le="2",model="a"} 5',
    'm_bucket{le="4",model="a"} 8',
    'm_bucket{le="+Inf",model="a"} 10',
    'm_sum{model="a"} 40',
    'm_count{model="a"} 10',
    "",
  ]);
});
