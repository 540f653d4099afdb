import { assertEquals, assertStringIncludes } from "@std/assert";
import { draw } from "./charts.ts";

const row = { threads: 1, shape: "3072x1024", format: "Q8_0", weights_in: "memory" };

Deno.test("chart: shows a kernel report as two bars per format", () => {
  const svg = draw([{
    kind: "kernels",
    isa: "avx2",
    rows: [
      { ...row, m: 1, share_of_bandwidth: 0.95, share_of_peak: 0.04 },
      { ...row, m: 512, share_of_bandwidth: 0.01, share_of_peak: 0.62 },
      { ...row, weights_in: "cache", m: 512, share_of_bandwidth: 0, share_of_peak: 0.77 },
    ],
  }]);
  assertEquals([...svg.matchAll(/>(\d+) %</g)].map(([, share]) => share), ["95", "62"]);
});

Deno.test("chart: shows a model report as speed per number of sequences, and escapes names", () => {
  const svg = draw([{
    model: "<b>&",
    isa: "avx2",
    threads: 2,
    rows: [
      { work: "prefill", sequences: 1, tokens_per_second: 300, share_of_limit: 0.5 },
      { work: "decode", sequences: 16, tokens_per_second: 200, share_of_limit: 0.4 },
      { work: "decode", sequences: 1, tokens_per_second: 40, share_of_limit: 0.8 },
    ],
  }]);
  assertStringIncludes(svg, "&lt;b>&amp;: decode");
  // The left point is 1 sequence, the right point 16. The limit at 16 sequences is the top of the chart.
  assertStringIncludes(svg, 'points="90.0,272.4 680.0,202.0"');
  assertStringIncludes(svg, ">500</text>");
});
