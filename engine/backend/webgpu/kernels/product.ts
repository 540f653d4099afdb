/**
 * Matrix products of few rows of activations. A matrix row is cut into pairs of blocks of 32 columns, and
 * eight lanes share it. Lane s takes pairs s, s + 8 and so on, block by block. Then the eight lanes' sums are
 * added from the first to the last.
 *
 * Tiles (`product_tile.ts`) keep this order, so a product's bits depend neither on the number of rows of
 * activations nor on the device's subgroups, which are not used.
 *
 * Rows and tokens are unrolled in the text: naga guards each loop with a counter, which keeps drivers from
 * unrolling it.
 */
import { STRANDS } from "./formats/format.ts";
import { gpuFormat } from "./formats/registry.ts";
import { blockDot, type Numbers, numbersOf, preamble, store } from "./shader.ts";
import { list } from "./list.ts";
import { stageOf } from "./stage.ts";
import type { Kernel, MatMulSpec, Tuning } from "./types.ts";
import { decoded, type PairWords, pairWordsOfNeighbours } from "./words.ts";

/**
 * STAGED: number of activation blocks per strand that workgroup memory holds at once. ADDED: number of tokens whose
 * sums the lanes add at once.
 */
const STAGED = 8;
const ADDED = 2;

/** Returns the product kernel that computes `tokens` activation rows per workgroup. */
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
    work: () => passed * tokens * spec.columns * (spec.epilogue === "swiglu" ? 2 : 1),
  };
}

function code(spec: MatMulSpec, numbers: Numbers, rows: number, tokens: number): string {
  const format = gpuFormat(spec.type);
  const { setup = "", offset } = format.decoder(numbers.weight);
  const up = spec.epilogue === "swiglu";
  const rowNames = [...list(rows, (r) => `row_${r}`), ...(up ? list(rows, (r) => `up_${r}`) : [])];
  // With a single activation row, a lane multiplies both blocks of a pair at once. With more, registers hold one block
  // of weights.
  const blocks = tokens === 1 ? 2 : 1;
  const staged = Math.min(STAGED / blocks, tokens);
  const added = Math.min(ADDED, tokens);
  const words = rowNames.map((row) => pairWordsOfNeighbours(format, `words_${row}`, row, "pair", "first"));
  const work = { spec, rowNames, words, blocks, staged };
  return `${preamble(spec, numbers)}
${blockDot(spec, numbers)}
override SIZE: u32 = 256u;
const STRANDS = ${STRANDS}u;
${stageOf(format, numbers, { rows: staged, blocks: blocks * STRANDS, offset: offset !== undefined })}
${words.map(({ globals }) => globals).join("\n")}
var<workgroup> shares: array<f32, SIZE * ${added * rowNames.length}u>;
fn all_of(at: u32) -> f32 {
  return ${list(STRANDS - 1, (s) => s + 1).reduce((sum, s) => `(${sum} + shares[at + ${s}u])`, "shares[at]")};
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
  ${words.map(({ before }) => before).join(" ")}
  for (var first = 0u; first < PAIRS; first += STRANDS) {
    let pair = min(first + strand, PAIRS - 1u);
    ${words.map(({ load }) => load).join("\n    ")}
    for (var half = 0u; half < 2u; half += ${blocks}u) {
    ${turn(work, tokens)}
    }
  }
  ${list(tokens / added, (a) => addUp(spec, { rowNames, rows, from: a * added, added })).join("\n  ")}
}
`;
}

interface Work {
  readonly spec: MatMulSpec;
  readonly rowNames: readonly string[];
  /** WGSL that loads the shared elements of a pair, for each matrix row. */
  readonly words: readonly PairWords[];
  /** Number of blocks of a pair that a lane multiplies at once. */
  readonly blocks: number;
  /** Number of tokens whose activations workgroup memory holds at once. */
  readonly staged: number;
}

/**
 * Returns WGSL that loads the strands' blocks from `half` on and multiplies them with all tokens. Decoding starts after
 * the first tokens' barrier, while loads are in flight. Elements loaded by neighbouring lanes need the same barrier.
 */
function turn(work: Work, tokens: number): string {
  const { spec, rowNames, words, blocks, staged } = work;
  const format = gpuFormat(spec.type);
  const load = list(blocks, (e) => [
    `let b_${e} = 2u * (first + strand) + half + ${e}u;`,
    `let at_${e} = min(b_${e}, BLOCKS - 1u);`,
    ...rowNames.map((row) => `let own_${row}_${e} = load_own(${row}, at_${e});`),
  ]);
  const decode = list(
    blocks,
    (e) =>
      rowNames.map((row, r) =>
        `let w_${row}_${e} = ${decoded(format, `at_${e}`, `own_${row}_${e}`, words[r].words)};`
      ),
  );
  const multiplied = list(tokens / staged, (s) => [
    makeReady(work, s * staged),
    ...(s === 0 ? decode.flat() : []),
    multiply(work, s * staged),
  ]);
  return [...load, ...multiplied].flat().join("\n    ");
}

/** Returns WGSL with which the workgroup copies activation blocks of some tokens to its memory. */
function makeReady({ blocks, staged }: Work, from: number): string {
  const each = blocks * STRANDS;
  return `for (var i = lane_in_group; i < ${each * staged}u; i += SIZE) {
      let t = i / ${each}u;
      let e = i % ${each}u;
      let b = 2u * (first + e % STRANDS) + half + e / STRANDS;
      stage(t, e, read_block(min(t_base + ${from}u + t, step.x - 1u), min(b, BLOCKS - 1u)));
    }
    workgroupBarrier();`;
}

/** Returns WGSL with which each lane multiplies its own blocks with some tokens. */
function multiply({ rowNames, blocks, staged }: Work, from: number): string {
  const token = (t: number, e: number) =>
    `{
        let v = staged(${t}u, strand + ${e * STRANDS}u);
        ${
      rowNames.map((row) => {
        const sum = `sum_${row}_${from + t}`;
        return `${sum} = block_dot(w_${row}_${e}, v, ${sum});`;
      }).join("\n        ")
    }
      }`;
  return `${
    list(blocks, (e) =>
      `if (b_${e} < BLOCKS) {
      ${list(staged, (t) => token(t, e)).join("\n      ")}
    }`).join("\n    ")
  }
    workgroupBarrier();`;
}

/** Returns WGSL that adds the lanes' sums of each row for some tokens and stores the results in y. */
function addUp(spec: MatMulSpec, { rowNames, rows, from, added }: {
  readonly rowNames: readonly string[];
  readonly rows: number;
  readonly from: number;
  readonly added: number;
}): string {
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
