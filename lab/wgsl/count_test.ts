import { assertEquals } from "@std/assert";
import { openTestDevice } from "../../engine/backend/webgpu/kernels/testing.ts";
import type { TensorType } from "../../engine/gguf/types.ts";
import type { PaperDispatch } from "../gpu_paper.ts";
import { dispatchesOf } from "../gpu_paper.ts";
import { planOf } from "../gpu_shapes.ts";
import { type CountedStep, countPaper, inputOf } from "../gpu_traffic.ts";
import { fullTier } from "../../testing/tier.ts";
import { countDispatch } from "./count.ts";
import { accessesOf, instrument } from "./testing_instrument.ts";

const gpu = await openTestDevice();

const NAMES = {
  head: `@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read> ends: array<u32>;
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {`,
};

function count(body: string, ends: number[] = []) {
  return countDispatch({
    code: `${NAMES.head}\n${body}\n}`,
    entryPoint: "main",
    constants: {},
    workgroups: [3, 1, 1],
    words: new Map([[2, Uint32Array.from(ends)]]),
  }, Infinity);
}

Deno.test("loads count by lane, and once where all lanes load the same; operations by component", () => {
  const { storage, floats, integers } = count(`
    let mine = x[lane];
    let ours = x[group.x];
    y[64u * group.x + lane] = dot(mine, ours) + fma(mine.x, 2.0, 1.0);`);
  assertEquals(storage.get("x"), { loaded: 3 * (64 * 16 + 16), stored: 0, accesses: 3 * 64 * 2 });
  assertEquals(storage.get("y"), { loaded: 0, stored: 3 * 64 * 4, accesses: 3 * 64 });
  assertEquals([floats, integers], [3 * 64 * (8 + 2 + 1), 3 * 64 * 2]);
});

Deno.test("loops turn as often as rows and lanes say; what is only read in one branch counts there", () => {
  const { storage } = count(
    `
    var sum = 0.0;
    for (var i = lane; i < ends[group.x]; i += 64u) {
      for (var j = 0u; j <= i; j++) { if (j == 5u) { sum += x[j].x; } }
    }
    if (lane < 2u) { y[lane] = sum; }`,
    [10, 65, 0],
  );
  // Lanes 5 to 9 of the first; 5 to 63, and lane 0's second turn, of the second.
  assertEquals(storage.get("x")!.accesses, 5 + 59 + 1);
  assertEquals(storage.get("y")!.accesses, 6);
});

Deno.test("a long grid is counted by some of its workgroups, exactly where work grows evenly", () => {
  const of = (groups: number, most: number) =>
    countDispatch({
      code: `${NAMES.head} for (var i = 0u; i < group.x; i++) { y[lane] += f32(i); } }`,
      entryPoint: "main",
      constants: {},
      workgroups: [groups, 1, 1],
      words: new Map(),
    }, most).storage.get("y")!.accesses;
  assertEquals(of(21, 3), of(21, Infinity));
  assertEquals(of(21, Infinity), 64 * (20 * 21) / 2);
});

Deno.test("instrumented shaders count indices within indices", () => {
  const { code } = instrument(`@group(0) @binding(0) var<storage, read> a: array<u32>;
fn f() -> u32 { return a[a[1u] + 2u]; }`);
  assertEquals(code.includes("a[counted_0(a[counted_0(1u)] + 2u)]"), true);
});

const SMALL = { layers: 1, width: 128, feedForward: 96, heads: 4, kvHeads: 2, headDim: 32, vocabulary: 304 };
/** A software driver compiles for a second a kernel: the rest is a campaign, as in matmul_test.ts. */
const ALL = Deno.env.has("COMPY_ALL_KERNELS");

function bindingsOf({ dispatch, words }: PaperDispatch) {
  return dispatch.bindings.map((bound, binding) => {
    const { size = 0 } = "buffer" in bound ? { size: bound.size ?? bound.buffer.size } : bound;
    return { binding, bytes: size, words: words.get(binding) };
  });
}

for (
  const [name, type, step] of [
    ["a token", "Q4_0", { sequences: 1, rows: 1, cached: 1300 }],
    ["three tokens of two sequences", "Q6_K", { sequences: 2, rows: 3, cached: 40 }],
    ["a prompt", "MXFP4", { sequences: 1, rows: 45, cached: 70 }],
  ] as [string, TensorType, CountedStep][]
) {
  // The one that is left: attention and products of few rows.
  const left = name === "a token" || ALL;
  fullTier.test({
    name: `${name}: the count over the text is what instrumented shaders count on a device`,
    ignore: !gpu || !left,
    sanitizeResources: false,
    sanitizeOps: false,
    fn: async () => {
      const plan = planOf({ name, type, ...SMALL });
      const papers = await dispatchesOf(plan, inputOf(plan, step), gpu!.kernels, "f32");
      const seen = new Set<string>();
      for (const paper of papers) {
        // Which of the candidates' branches are taken is the data's affair.
        if (paper.dispatch.label === "- candidates" || seen.has(paper.kernel.key)) continue;
        seen.add(paper.kernel.key);
        const { storage } = countPaper(paper, Infinity);
        const found = await accessesOf(gpu!.device, paper.kernel, paper.workgroups, bindingsOf(paper));
        for (const [buffer, accesses] of found) {
          const what = `${paper.dispatch.label}: accesses of ${buffer}`;
          assertEquals(Math.round(storage.get(buffer)?.accesses ?? 0), accesses, what);
        }
      }
    },
  });
}
