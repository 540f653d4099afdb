/**
 * Few rows of activations: a lane owns whole blocks of 32 columns, so that it loads a block's codes at once and adds up
 * in registers; a subgroup (or a workgroup) shares a row. A block of x serves several rows of the matrix. Rows and the
 * tokens of a pass are written out in the text: naga guards each loop with a counter, which keeps drivers from unrolling.
 */
import { gpuFormat } from "./formats/registry.ts";
import { blockDot, type Numbers, numbersOf, preamble, store } from "./shader.ts";
import { type Kernel, type KernelDevice, type MatMulSpec, type Tuning, WORKGROUP_LANES } from "./types.ts";

const MAX_WORKGROUPS = 65535;

/** The kernel for up to `maxRows` rows of activations, `tokens` of them a workgroup. */
export function gemv(
  spec: MatMulSpec,
  device: KernelDevice,
  tuning: Tuning,
  tokens: number,
  maxRows: number,
): Kernel {
  const numbers = numbersOf(gpuFormat(spec.type), spec.arithmetic);
  const subgroup = tuning.reduce === "subgroup" && device.subgroups;
  const lanes = subgroup ? device.subgroupSize : WORKGROUP_LANES;
  const size = lanes * tuning.subgroups;
  const rows = tuning.rows * (subgroup ? tuning.subgroups : 1);
  return {
    key: [
      "gemv",
      spec.type,
      spec.arithmetic,
      spec.columns,
      spec.epilogue,
      spec.bias,
      tuning.rows,
      size,
      subgroup,
      tokens,
    ]
      .join(" "),
    code: code(spec, numbers, tuning.rows, tokens, subgroup),
    entryPoint: "matmul",
    constants: { SIZE: size },
    maxRows,
    workgroups: (n, m) => [Math.min(MAX_WORKGROUPS, Math.ceil(n / rows)), Math.ceil(m / tokens), 1],
  };
}

function code(spec: MatMulSpec, numbers: Numbers, rows: number, tokens: number, subgroup: boolean): string {
  const up = spec.epilogue === "swiglu";
  const rowNames = [...list(rows, (r) => `row_${r}`), ...(up ? list(rows, (r) => `up_${r}`) : [])];
  const sums = rowNames.flatMap((row) => list(tokens, (t) => `${row}_${t}`));
  const setup = gpuFormat(spec.type).decoder(numbers.weight).setup ?? "";
  return `${preamble(spec, numbers)}
${blockDot(spec, numbers)}
override SIZE: u32 = 64u;
${subgroup ? COUNTED : `var<workgroup> shares: array<f32, SIZE * ${sums.length}u>;`}
@compute @workgroup_size(SIZE)
fn matmul(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) lane_in_group: u32,
) {
  ${setup}
  ${subgroup ? SUBGROUP : WORKGROUP}
  let passed = group_rows * ${rows}u;
  for (var base = group.x * passed; base < op.n; base += groups.x * passed) {
    let first = base + part * ${rows}u;
    ${list(rows, (r) => `let row_${r} = min(first + ${r}u, op.n - 1u);`).join("\n    ")}
    ${up ? list(rows, (r) => `let up_${r} = op.n + row_${r};`).join("\n    ") : ""}
    ${list(tokens, (t) => `let t_${t} = min(${tokens}u * group.y + ${t}u, step.x - 1u);`).join("\n    ")}
    ${sums.map((s) => `var sum_${s} = vec4<f32>();`).join("\n    ")}
    for (var b = lane; b < BLOCKS; b += lanes) {
      ${products(rowNames, tokens).join("\n      ")}
    }
    ${subgroup ? addSubgroup(sums) : addWorkgroup(sums)}
    if (lane == 0u) {
      ${list(tokens, (t) => list(rows, (r) => storeRow(spec, tokens, r, t))).flat().join("\n      ")}
    }
    ${subgroup ? "" : "workgroupBarrier();"}
  }
}
`;
}

/** How many subgroups the workgroup turned out to have. */
const COUNTED = `var<workgroup> counter: atomic<u32>;
var<workgroup> counted: u32;`;

/**
 * A subgroup's place in the workgroup and a lane's place in the subgroup are counted, not computed from the lane's index:
 * nothing says that lanes of a subgroup follow each other, that a pipeline's subgroups are as wide as the probe's, or
 * that all are full.
 */
const SUBGROUP = `let lane = subgroupExclusiveAdd(1u);
  let lanes = subgroupAdd(1u);
  var part = 0u;
  if (lane == 0u) { part = atomicAdd(&counter, 1u); }
  part = subgroupBroadcastFirst(part);
  workgroupBarrier();
  if (lane_in_group == 0u) { counted = atomicLoad(&counter); }
  let group_rows = workgroupUniformLoad(&counted);`;

const WORKGROUP = `let group_rows = 1u;
  let part = 0u;
  let lane = lane_in_group;
  let lanes = SIZE;`;

/** One token: its block once for all rows. Several: the rows' blocks once for all tokens. */
function products(rowNames: readonly string[], tokens: number): string[] {
  if (tokens === 1) {
    return [
      "let v = read_block(t_0, b);",
      ...rowNames.map((row) => `sum_${row}_0 += block_dot(decode_block(${row}, b), v);`),
    ];
  }
  return [
    ...rowNames.map((row) => `let w_${row} = decode_block(${row}, b);`),
    ...list(tokens, (t) => [
      `let v_${t} = read_block(t_${t}, b);`,
      ...rowNames.map((row) => `sum_${row}_${t} += block_dot(w_${row}, v_${t});`),
    ]).flat(),
  ];
}

function addSubgroup(sums: readonly string[]): string {
  return sums.map((s) => `let all_${s} = subgroupAdd(dot(sum_${s}, vec4<f32>(1.0)));`).join("\n    ");
}

function addWorkgroup(sums: readonly string[]): string {
  const at = (i: number, lane = "lane") => `shares[${i}u * SIZE + ${lane}]`;
  return `${sums.map((s, i) => `${at(i)} = dot(sum_${s}, vec4<f32>(1.0));`).join("\n    ")}
    workgroupBarrier();
    for (var width = SIZE / 2u; width > 0u; width /= 2u) {
      if (lane < width) {
        ${sums.map((_, i) => `${at(i)} += ${at(i, "lane + width")};`).join("\n        ")}
      }
      workgroupBarrier();
    }
    ${sums.map((s, i) => `let all_${s} = ${at(i, "0u")};`).join("\n    ")}`;
}

function storeRow(spec: MatMulSpec, tokens: number, r: number, t: number): string {
  const conditions = [
    `first + ${r}u < op.n`,
    ...(tokens > 1 ? [`${tokens}u * group.y + ${t}u < step.x`] : []),
  ];
  const statement = store(spec.epilogue, spec.bias, `all_row_${r}_${t}`, `all_up_${r}_${t}`);
  return `if (${conditions.join(" && ")}) { let row = row_${r}; let t = t_${t}; ${statement} }`;
}

function list<T>(length: number, of: (i: number) => T): T[] {
  return Array.from({ length }, (_, i) => of(i));
}
