import type { Finding, Wanted, World } from "../types.ts";
import { size } from "../units.ts";

/** Bandwidth below which a model of 1 GB answers a single request more slowly than people read. */
const SLOW_GBPS = 8;
/** Bytes that the measurement takes temporarily, and bytes that it leaves to other programs. */
const MEASURED_BYTES = 512 * 2 ** 20;
const LEFT_BYTES = 256 * 2 ** 20;

/**
 * Measures memory bandwidth, which limits the speed of single answers, and arithmetic, which limits prompts.
 */
export async function checkBandwidth(
  world: Pick<World, "measureLimits" | "memory" | "threads">,
  { threads = world.threads, backend }: Pick<Wanted, "threads" | "backend">,
): Promise<Finding> {
  const memory = world.memory();
  if (memory && Math.min(memory.available, memory.limit) < MEASURED_BYTES + LEFT_BYTES) {
    return {
      status: "ok",
      found: `not measured: that takes ${size(MEASURED_BYTES)}, and too little is free`,
    };
  }
  const { readGbps, int8Gops, f32Gflops } = await world.measureLimits(threads, backend);
  const found = `${short(readGbps)} GB/s read, ${short(int8Gops)} x 10^9 int8 and ${
    short(f32Gflops)
  } x 10^9 f32 operations a second; 1 GB a token answers one request at ${
    readGbps.toFixed(0)
  } tokens a second at most`;
  const figures = { read_gbps: readGbps, int8_gops: int8Gops, f32_gflops: f32Gflops };
  if (readGbps >= SLOW_GBPS) return { status: "ok", found, figures };
  return {
    status: "slow",
    found,
    advice:
      "each token reads all weights: take a model in fewer bits (Q4_0 reads half of Q8_0), or one with experts; " +
      "see that all memory channels have a module and that nothing else computes",
    figures,
  };
}

function short(value: number): string {
  return value.toFixed(value < 10 ? 1 : 0);
}
