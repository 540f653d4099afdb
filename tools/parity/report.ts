/**
 * Prints a Markdown table of each format's distance from the exact answer, compared with llama.cpp. The arguments are
 * the instruction set (default the best), the architecture (default all dense ones) and the KV cache type (default
 * f16).
 */
import type { KvType } from "../../engine/mod.ts";
import { DECODERS, FORMATS, PARITY_FILES, type ParityFile } from "../../tests/models/parity_cases.ts";
import { compare, judge, type Judged, maxOfTopFive, wrongChoices } from "../../tests/models/parity_judge.ts";

const CLEAR_MARGIN = 0.3;
/** Hybrids and mixtures of experts, which are reported separately. */
const APART: readonly string[] = ["qwen35", "qwen3moe"];

const rows = [
  ["format", "mean", "llama.cpp", "ratio", "max", "llama.cpp", "ratio", "max of top 5", "wrong choices"],
  Array(9).fill("---"),
];
const [isa, architecture, kvType] = Deno.args;
const asked = ({ options }: ParityFile) =>
  architecture
    ? options.architecture === architecture
    : ![...APART, ...DECODERS].includes(options.architecture);
for (const format of FORMATS) {
  const judged: Judged[] = [];
  for (const file of PARITY_FILES.filter((file) => file.format === format && asked(file))) {
    judged.push(...await judge(file, { isa: isa || undefined, kvType: kvType as KvType || undefined }));
  }
  if (judged.length === 0) continue;
  const { ours, llamaCpp } = compare(judged);
  const beside = (a: number, b: number) => [a.toFixed(4), b.toFixed(4), (a / b).toFixed(2)];
  const wrong = wrongChoices(judged, () => CLEAR_MARGIN).length;
  const topFive = maxOfTopFive(judged).toFixed(4);
  rows.push([
    format,
    ...beside(ours.mean, llamaCpp.mean),
    ...beside(ours.max, llamaCpp.max),
    topFive,
    `${wrong}`,
  ]);
}
const text = rows.map((row) => `| ${row.join(" | ")} |\n`).join("");
await Deno.stdout.write(new TextEncoder().encode(text));
