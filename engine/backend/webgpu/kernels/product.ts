/**
 * Matrix products for any number of rows of activations. Eight lanes share a row of the matrix, each takes every eighth block
 * of 32 columns; a workgroup makes the activations of eight blocks ready once for all its rows. Each lane's blocks, and then
 * the eight lanes, are added up in one order, so a product's bits depend neither on how many rows of activations there are
 * nor on the device's subgroups, which are not used. Rows and tokens are written out in the text: naga guards each loop with
 * a counter, which keeps drivers from unrolling.
 */
import { gpuFormat } from "./formats/registry.ts";
import { blockDot, type Numbers, numbersOf, preamble, scaleType, store } from "./shader.ts";
import type { Kernel, MatMulSpec, Tuning } from "./types.ts";

/** Lanes of a row of the matrix. */
const STRANDS = 8;
/** Tokens whose activations lie in workgroup memory at once, and tokens that are added up across lanes at once. */
const STAGED = 8;
const ADDED = 2;

/** The kernel that takes `tokens` rows of activations a workgroup. */
export function product(spec: MatMulSpec, tuning: Tuning, tokens: number, maxRows: number): Kernel {
  const numbers = numbersOf(gpuFormat(spec.type), spec.arithmetic);
  const { rows, lanes } = tuning;
  const passed = rows * lanes / STRANDS;
  return {
    key: ["product", spec.type, spec.arithmetic, spec.columns, spec.epilogue, spec.bias, rows, lanes, tokens]
      .join(" "),
    code: code(spec, numbers, rows, tokens),
    entryPoint: "matmul",
    constants: { SIZE: lanes },
    maxRows,
    workgroups: (n, m) => [Math.ceil(n / passed), Math.ceil(m / tokens), 1],
  };
}

function code(spec: MatMulSpec, numbers: Numbers, rows: number, tokens: number): string {
  const format = gpuFormat(spec.type);
  const { setup = "", offset } = format.decoder(numbers.weight);
  const up = spec.epilogue === "swiglu";
  const rowNames = [...list(rows, (r) => `row_${r}`), ...(up ? list(rows, (r) => `up_${r}`) : [])];
  const staged = Math.min(STAGED, tokens);
  const added = Math.min(ADDED, tokens);
  const half = numbers.input === "f16";
  return `${preamble(spec, numbers)}
${blockDot(spec, numbers)}
override SIZE: u32 = 256u;
const STRANDS = ${STRANDS}u;
/* blocks of activations, by token, quad and strand */
var<workgroup> x_quads: array<vec4<${numbers.input}>, ${staged * 8 * STRANDS}>;
${half ? `var<workgroup> x_scales: array<f32, ${staged * STRANDS}>;` : ""}
${offset === undefined ? "" : `var<workgroup> x_sums: array<${scaleType(format)}, ${staged * STRANDS}>;`}
var<workgroup> shares: array<f32, SIZE * ${added * rowNames.length}u>;
${stageFunction(numbers, offset !== undefined)}
fn all_of(at: u32) -> f32 {
  return ((shares[at] + shares[at + 1u]) + (shares[at + 2u] + shares[at + 3u])) +
    ((shares[at + 4u] + shares[at + 5u]) + (shares[at + 6u] + shares[at + 7u]));
}
@compute @workgroup_size(SIZE)
fn matmul(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane_in_group: u32) {
  ${setup}
  let strand = lane_in_group % STRANDS;
  let slots = SIZE / STRANDS;
  let slot = lane_in_group / STRANDS;
  let base = group.x * slots * ${rows}u;
  let t_base = group.y * ${tokens}u;
  ${list(rows, (r) => `let row_${r} = min(base + ${r}u * slots + slot, op.n - 1u);`).join("\n  ")}
  ${up ? list(rows, (r) => `let up_${r} = op.n + row_${r};`).join("\n  ") : ""}
  ${rowNames.flatMap((row) => list(tokens, (t) => `var sum_${row}_${t} = 0.0;`)).join(" ")}
  for (var first = 0u; first < BLOCKS; first += STRANDS) {
    let b = first + strand;
    let inside = b < BLOCKS;
    ${rowNames.map((row) => `let w_${row} = decode_block(${row}, min(b, BLOCKS - 1u));`).join("\n    ")}
    ${list(tokens / staged, (s) => multiply({ rowNames, from: s * staged, staged })).join("\n    ")}
  }
  ${list(tokens / added, (a) => addUp(spec, { rowNames, rows, from: a * added, added })).join("\n  ")}
}
`;
}

/** WGSL functions that put a block of activations into workgroup memory, and take it from there. */
function stageFunction({ input }: Numbers, offset: boolean): string {
  const half = input === "f16";
  const quads = list(8, (k) => `x_quads[(t * 8u + ${k}u) * STRANDS + strand]`);
  const fields = [
    `array<vec4<${input}>, 8>(${quads.join(", ")})`,
    ...(half ? ["x_scales[t * STRANDS + strand]"] : []),
    ...(offset ? ["x_sums[t * STRANDS + strand]"] : []),
  ];
  return `fn stage(t: u32, strand: u32, v: Input) {
  ${quads.map((quad, k) => `${quad} = v.q[${k}];`).join("\n  ")}
  ${half ? "x_scales[t * STRANDS + strand] = v.scale;" : ""}
  ${offset ? "x_sums[t * STRANDS + strand] = v.sum;" : ""}
}
fn staged(t: u32, strand: u32) -> Input { return Input(${fields.join(", ")}); }`;
}

interface Tokens {
  readonly rowNames: readonly string[];
  readonly from: number;
}

/** Statements: the workgroup makes some tokens' blocks ready, then each lane multiplies its own. */
function multiply({ rowNames, from, staged }: Tokens & { readonly staged: number }): string {
  const token = (t: number) =>
    `{
        let v = staged(${t}u, strand);
        ${
      rowNames.map((row) => `sum_${row}_${from + t} = block_dot(w_${row}, v, sum_${row}_${from + t});`).join(
        "\n        ",
      )
    }
      }`;
  return `for (var i = lane_in_group; i < ${STRANDS * staged}u; i += SIZE) {
      let t = i / STRANDS;
      let s = i % STRANDS;
      stage(t, s, read_block(min(t_base + ${from}u + t, step.x - 1u), min(first + s, BLOCKS - 1u)));
    }
    workgroupBarrier();
    if (inside) {
      ${list(staged, token).join("\n      ")}
    }
    workgroupBarrier();`;
}

/** Statements: the lanes of each row are added up for some tokens, and the results put into y. */
function addUp(
  spec: MatMulSpec,
  { rowNames, rows, from, added }: Tokens & { readonly rows: number; readonly added: number },
): string {
  const at = (t: number, row: number) => `${t * rowNames.length + row}u * SIZE + lane_in_group`;
  const share = list(
    added,
    (t) => rowNames.map((row, r) => `shares[${at(t, r)}] = sum_${row}_${from + t};`).join(" "),
  );
  const value = (row: string) =>
    `all_of((i / (slots * ${rows}u) * ${rowNames.length}u + ${row}) * SIZE + i % slots * STRANDS)`;
  const up = rowNames.length > rows ? `let up = ${value(`r + ${rows}u`)};` : "";
  return `${share.join("\n  ")}
  workgroupBarrier();
  for (var i = lane_in_group; i < slots * ${rows * added}u; i += SIZE) {
    let r = i / slots % ${rows}u;
    let t = t_base + ${from}u + i / (slots * ${rows}u);
    let row = base + r * slots + i % slots;
    if (row < op.n && t < step.x) {
      let value = ${value("r")};
      ${up}
      ${store(spec.epilogue, spec.bias, "value", "up")}
    }
  }
  workgroupBarrier();`;
}

function list<T>(length: number, of: (i: number) => T): T[] {
  return Array.from({ length }, (_, i) => of(i));
}
