/**
 * Many rows of activations: a workgroup computes 64 rows of the matrix for 32 tokens, block of 32 columns after block.
 * Half of its lanes decode a row's block each into workgroup memory, others make a token's block ready; then each lane
 * multiplies 4 rows by 4 tokens.
 */
import { BLOCK } from "./formats/format.ts";
import { gpuFormat } from "./formats/registry.ts";
import { type Numbers, numbersOf, preamble, store } from "./shader.ts";
import type { Kernel, MatMulSpec } from "./types.ts";

const ROWS = 64;
const TOKENS = 32;
const SIZE = 128;
/** Rows, and tokens, of a lane. */
const TILE = 4;
const ROW_LANES = ROWS / TILE;
const TOKEN_LANES = TOKENS / TILE;

/** The kernel for any number of rows of activations. */
export function gemm(spec: MatMulSpec): Kernel {
  const rows = spec.epilogue === "swiglu" ? ROWS / 2 : ROWS;
  return {
    key: ["gemm", spec.type, spec.arithmetic, spec.columns, spec.epilogue, spec.bias].join(" "),
    code: code(spec, numbersOf(gpuFormat(spec.type), spec.arithmetic)),
    entryPoint: "matmul",
    constants: {},
    maxRows: Infinity,
    workgroups: (n, m) => [Math.ceil(n / rows), Math.ceil(m / TOKENS), 1],
  };
}

function code(spec: MatMulSpec, numbers: Numbers): string {
  const format = gpuFormat(spec.type);
  const decoder = format.decoder(numbers.weight);
  const up = spec.epilogue === "swiglu";
  const scale = format.sub === BLOCK ? "f32" : "vec2<f32>";
  const offset = decoder.offset !== undefined;
  const half = numbers.input === "f16";
  // With swiglu the tile's upper rows are the up matrix's, beside the gate's lower ones.
  const rowOf = (v: string) =>
    up
      ? `select(min(base + ${v}, op.n - 1u), op.n + min(base + ${v} - ${ROWS / 2}u, op.n - 1u), ${v} >= ${
        ROWS / 2
      }u)`
      : `min(base + ${v}, op.n - 1u)`;
  return `${preamble(spec, numbers)}
const SIZE = ${SIZE}u;
var<workgroup> w_tile: array<vec4<${numbers.weight}>, ${8 * ROWS}>;
var<workgroup> w_scale: array<${scale}, ${ROWS}>;
${offset ? `var<workgroup> w_offset: array<${scale}, ${ROWS}>;` : ""}
var<workgroup> x_tile: array<vec4<${numbers.input}>, ${8 * TOKENS}>;
${half ? `var<workgroup> x_scale: array<f32, ${TOKENS}>;` : ""}
${offset ? `var<workgroup> x_sum: array<${scale}, ${TOKENS}>;` : ""}
@compute @workgroup_size(${SIZE})
fn matmul(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane_in_group: u32) {
  ${decoder.setup ?? ""}
  let lane = lane_in_group;
  let base = group.x * ${up ? ROWS / 2 : ROWS}u;
  let t_base = group.y * ${TOKENS}u;
  let r0 = lane % ${ROW_LANES}u;
  let t0 = lane / ${ROW_LANES}u;
  ${tile((i, j) => `var sum_${i}_${j} = 0.0;`).join(" ")}
  for (var b = 0u; b < BLOCKS; b++) {
    if (lane < ${ROWS}u) {
      let w = decode_block(${rowOf("lane")}, b);
      ${each8((k) => `w_tile[${k * ROWS}u + lane] = w.q[${k}];`)}
      w_scale[lane] = w.scale;
      ${offset ? "w_offset[lane] = w.offset;" : ""}
    } else if (lane < ${ROWS + TOKENS}u) {
      let i = lane - ${ROWS}u;
      let v = read_block(min(t_base + i, step.x - 1u), b);
      ${each8((k) => `x_tile[${k * TOKENS}u + i] = v.q[${k}];`)}
      ${half ? "x_scale[i] = v.scale;" : ""}
      ${offset ? "x_sum[i] = v.sum;" : ""}
    }
    workgroupBarrier();
    ${multiply(numbers, format.sub, half, offset)}
    workgroupBarrier();
  }
  ${storeTile(spec, up)}
}
`;
}

/** Statements that add the product of the tiles to the lane's sums, each scale's columns by themselves. */
function multiply(numbers: Numbers, sub: number, half: boolean, offset: boolean): string {
  const { weight } = numbers;
  const x = weight === numbers.input ? "" : "vec4<f32>";
  const parts = BLOCK / sub;
  const part = (p: number) =>
    `{
      ${tile((i, j) => `var part_${i}_${j} = vec4<${weight}>();`).join(" ")}
      for (var k = ${8 / parts * p}u; k < ${8 / parts * (p + 1)}u; k++) {
        ${of4((i) => `let w_${i} = w_tile[k * ${ROWS}u + r0 + ${i * ROW_LANES}u];`)}
        ${of4((j) => `let x_${j} = ${x}(x_tile[k * ${TOKENS}u + t0 + ${j * TOKEN_LANES}u]);`)}
        ${tile((i, j) => `part_${i}_${j} = fma(w_${i}, x_${j}, part_${i}_${j});`).join("\n        ")}
      }
      ${
      tile((i, j) => {
        const sum = `dot(${
          weight === "f16" ? `vec4<f32>(part_${i}_${j})` : `part_${i}_${j}`
        }, vec4<f32>(1.0))`;
        const scale = `scale_${i}${parts === 1 ? "" : ["x", "y"].map((c) => `.${c}`)[p]}`;
        return `sum_${i}_${j} += ${sum} * ${scale}${half ? ` * x_scale_${j}` : ""};`;
      }).join("\n      ")
    }
    }`;
  const row = (i: number) => `r0 + ${i * ROW_LANES}u`;
  const token = (j: number) => `t0 + ${j * TOKEN_LANES}u`;
  const offsets = tile((i, j) => {
    const [w, v] = [`w_offset[${row(i)}]`, `x_sum[${token(j)}]`];
    return `sum_${i}_${j} += ${parts === 1 ? `${w} * ${v}` : `dot(${w}, ${v})`};`;
  });
  return `${of4((i) => `let scale_${i} = w_scale[${row(i)}];`)}
    ${half ? of4((j) => `let x_scale_${j} = x_scale[${token(j)}];`) : ""}
    ${Array.from({ length: parts }, (_, p) => part(p)).join("\n    ")}
    ${offset ? offsets.join("\n    ") : ""}`;
}

function storeTile(spec: MatMulSpec, up: boolean): string {
  const rows = up ? TILE / 2 : TILE;
  return tile((i, j) => {
    if (i >= rows) return "";
    const statement = store(spec.epilogue, spec.bias, `sum_${i}_${j}`, `sum_${i + rows}_${j}`);
    return `{
    let row = base + r0 + ${i * ROW_LANES}u;
    let t = t_base + t0 + ${j * TOKEN_LANES}u;
    if (row < op.n && t < step.x) { ${statement} }
  }`;
  }).join("\n  ");
}

function tile(of: (i: number, j: number) => string): string[] {
  return Array.from({ length: TILE * TILE }, (_, at) => of(Math.floor(at / TILE), at % TILE));
}

function of4(of: (i: number) => string): string {
  return Array.from({ length: TILE }, (_, i) => of(i)).join(" ");
}

function each8(of: (k: number) => string): string {
  return Array.from({ length: 8 }, (_, k) => of(k)).join(" ");
}
