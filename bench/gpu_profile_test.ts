import { assertEquals } from "@std/assert";
import { gpuProfileRows } from "./gpu_profile.ts";

Deno.test("GPU profile: has one row per kind of dispatch, which shows the time to copy the weights, and one row for recording", () => {
  const limits = { readGbps: 2, int8Gops: Infinity, f32Gflops: Infinity };
  const dispatches = [
    { label: "0 matmul blk.0.attn_q.weight", ms: 3, bytes: 2e6 },
    { label: "0 attention", ms: 9, bytes: 0 },
    { label: "1 matmul blk.1.attn_q.weight", ms: 5, bytes: 2e6 },
    { label: "- matmul output.weight", ms: 2, bytes: 4e6 },
  ];
  assertEquals(gpuProfileRows({ recordMs: 1.5, dispatches }, limits), [
    { work: "decode", sequences: 1, op: "attention", count: 1, ms: 9, floorMs: 0 },
    { work: "decode", sequences: 1, op: "matmul attn_q", count: 2, ms: 8, floorMs: 2 },
    { work: "decode", sequences: 1, op: "recording, on the CPU", count: 4, ms: 1.5, floorMs: 0 },
    { work: "decode", sequences: 1, op: "matmul output", count: 1, ms: 2, floorMs: 2 },
  ]);
});
