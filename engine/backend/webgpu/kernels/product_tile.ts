/**
 * Matrix products of many rows of activations. Each lane has a matrix row, and the workgroup loads the activations of a
 * tile of tokens once for all its rows. A lane takes the strands of `product.ts` one after the other, so it needs two
 * sums per token and gives the same bits. For a gate and up pair, half the lanes take the gate, and half the up matrix.
 */
import { STRANDS } from "./formats/format.ts";
import { gpuFormat } from "./formats/registry.ts";
import { blockDot, type Numbers, numbersOf, preamble, store } from "./shader.ts";
import { list } from "./list.ts";
import { stageOf } from "./stage.ts";
import type { Kernel, MatMulSpec } from "./types.ts";
import { decoded, pairWords } from "./words.ts";

/** Number of matrix rows per workgroup, one per lane. Every device supports 256 lanes. */
const LANES = 256;
/** Number of activation rows per tile. Workgroup memory holds a pair of blocks of each row, 8 KiB. */
const TOKENS = 32;
/** Number of tokens whose up results are passed to the gate's lanes at once. */
const HANDED = 8;

/** Returns the tile kernel for any number of activation rows. */
export function productTile(spec: MatMulSpec): Kernel {
  const numbers = numbersOf(gpuFormat(spec.type), spec.arithmetic);
  const rows = rowsOf(spec);
  return {
    key: ["product_tile", spec.type, spec.arithmetic, spec.columns, spec.epilogue, spec.bias].join(" "),
    code: code(spec, numbers),
    entryPoint: "matmul",
    constants: {},
    maxRows: Infinity,
    workgroups: (n, m) => [Math.ceil(n / rows), Math.ceil(m / TOKENS), 1],
    work: () => LANES * TOKENS * spec.columns,
  };
}

/** Returns the number of matrix rows that a workgroup computes. */
function rowsOf({ epilogue }: MatMulSpec): number {
  return epilogue === "swiglu" ? LANES / 2 : LANES;
}

function code(spec: MatMulSpec, numbers: Numbers): string {
  const format = gpuFormat(spec.type);
  const { setup = "", offset } = format.decoder(numbers.weight);
  const up = spec.epilogue === "swiglu";
  const rows = rowsOf(spec);
  const words = pairWords(format, "words", "row", "pair", "pair");
  const all = (text: (t: number) => string) => list(TOKENS, text).join(" ");
  return `${preamble(spec, numbers)}
${blockDot(spec, numbers)}
const SIZE = ${LANES}u;
${stageOf(format, numbers, { rows: TOKENS, blocks: 2, offset: offset !== undefined })}
${up ? `var<workgroup> ups: array<f32, ${rows * HANDED}>;` : ""}
@compute @workgroup_size(${LANES})
fn matmul(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane_in_group: u32) {
  ${setup}
  let slot = lane_in_group % ${rows}u;
  let row_of_y = group.x * ${rows}u + slot;
  let row = min(row_of_y, op.n - 1u)${up ? ` + select(0u, op.n, lane_in_group >= ${rows}u)` : ""};
  let t_base = group.y * ${TOKENS}u;
  ${all((t) => `var all_${t} = 0.0; var sum_${t} = 0.0;`)}
  ${words.before}
  for (var strand = 0u; strand < ${STRANDS}u; strand++) {
    for (var pair = strand; pair < PAIRS; pair += ${STRANDS}u) {
      for (var i = lane_in_group; i < ${2 * TOKENS}u; i += SIZE) {
        let t = min(t_base + (i >> 1u), step.x - 1u);
        stage(i >> 1u, i & 1u, read_block(t, min(2u * pair + (i & 1u), BLOCKS - 1u)));
      }
      ${words.load}
      workgroupBarrier();
      for (var b = 2u * pair; b < min(2u * pair + 2u, BLOCKS); b++) {
        let w = ${decoded(format, "b", "load_own(row, b)", words.words)};
        ${list(TOKENS, (t) => `sum_${t} = block_dot(w, staged(${t}u, b & 1u), sum_${t});`).join("\n        ")}
      }
      workgroupBarrier();
    }
    ${all((t) => `all_${t} += sum_${t}; sum_${t} = 0.0;`)}
  }
  ${up ? list(TOKENS / HANDED, (h) => handOver(spec, rows, h * HANDED)).join("\n  ") : putAll(spec)}
}
`;
}

/** Returns WGSL that stores the lane's results in y. */
function putAll(spec: MatMulSpec): string {
  const put = (t: number) =>
    `{ let t = t_base + ${t}u; if (t < step.x) { ${store(spec.epilogue, spec.bias, `all_${t}`)} } }`;
  return `if (row_of_y < op.n) {
    ${list(TOKENS, put).join("\n    ")}
  }`;
}

/** Returns WGSL that passes the up results of some tokens to the gate's lanes, which store the products in y. */
function handOver(spec: MatMulSpec, rows: number, from: number): string {
  const hand = (i: number) => `ups[${i * rows}u + slot] = all_${from + i};`;
  const put = (i: number) =>
    `{ let t = t_base + ${from + i}u; let up = ups[${i * rows}u + slot]; if (t < step.x) { ${
      store(spec.epilogue, spec.bias, `all_${from + i}`, "up")
    } } }`;
  return `if (lane_in_group >= ${rows}u) {
    ${list(HANDED, hand).join(" ")}
  }
  workgroupBarrier();
  if (lane_in_group < ${rows}u && row_of_y < op.n) {
    ${list(HANDED, put).join("\n    ")}
  }
  workgroupBarrier();`;
}
