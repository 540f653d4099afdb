/**
 * Writes tests/models/text_parity_expected.json (`deno task parity:texts [NAME…]`): embeddings of the texts of
 * tests/models/text_parity_cases.ts by the exact pass and by llama.cpp. Covers all models, or those whose names begin
 * with NAME. README.md in this folder lists the required programs.
 */
import { encodeBase64 } from "@std/encoding/base64.js";
import { fromFileUrl, join } from "@std/path";
import { loadEngine } from "../../engine/load/load.ts";
import { parseGguf } from "../../engine/gguf/reader.ts";
import { normalized, relevance } from "../../engine/answers/rows.ts";
import { digest } from "../../tests/models/parity_cases.ts";
import { synthesize } from "../../testing/synth/synth.ts";
import {
  PAIRS,
  TEXT_MODELS,
  TEXT_TABLE_URL,
  type TextModel,
  tokensOf,
} from "../../tests/models/text_parity_cases.ts";
import { EXACT, peerFolder, run } from "./programs.ts";

const here = (name: string) => fromFileUrl(new URL(name, import.meta.url));

if (import.meta.main) {
  const folder = await Deno.makeTempDir({ prefix: "compy-parity-" });
  try {
    const peer = await peerFolder(folder);
    const wanted = ({ name }: TextModel) =>
      Deno.args.length === 0 || Deno.args.some((begin) => name.startsWith(begin));
    const known = JSON.parse(await Deno.readTextFile(TEXT_TABLE_URL));
    const table: Record<string, unknown> = {};
    for (const model of TEXT_MODELS) {
      table[model.name] = wanted(model) ? await answersOf(model, folder, peer) : known[model.name];
    }
    await Deno.writeTextFile(TEXT_TABLE_URL, JSON.stringify(table, undefined, 2) + "\n");
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

async function answersOf(model: TextModel, folder: string, installed: string) {
  const path = join(folder, `${model.name}.gguf`);
  const bytes = synthesize(model.options);
  await Deno.writeFile(path, bytes);
  const { engine } = await loadEngine({ model: path, threads: 1 });
  const tokens = JSON.stringify(tokensOf(model, engine));
  await engine.close();
  const exact = await run("python3", [EXACT, "--pool", model.kind, path], folder, tokens);
  if (model.options.architecture === "neo-bert") await Deno.writeFile(path, partsInTurn(bytes));
  const ranks = model.kind === "rank";
  const input = ranks ? JSON.stringify(PAIRS) : tokens;
  const peer = await run(
    "node",
    [here("llama_cpp_texts.mjs"), path, ranks ? "rank" : "embed"],
    installed,
    input,
  );
  const rows = lines<number[]>(exact).map((row) => Float32Array.from(row));
  return {
    sha256: await digest(bytes),
    exact: rows.map((row) => ranks ? relevance(row) : packed(row)),
    llamaCpp: ranks
      ? lines<number>(peer)
      : lines<number[]>(peer).map((row) => packed(Float32Array.from(row))),
  };
}

/**
 * NeoBERT's heads as llama.cpp reads them: all queries, all keys, all values. Its converter keeps the checkpoint's
 * order, with each head's query, key and value together, so llama.cpp would compute a different model from a converted
 * file.
 */
function partsInTurn(bytes: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
  const { metadata, tensors } = parseGguf(bytes);
  const heads = metadata.getCount("neo-bert.attention.head_count");
  const turned = bytes.slice();
  for (const { name, offset, byteLength } of tensors.values()) {
    if (!name.endsWith(".attn_qkv.weight")) continue;
    const size = byteLength / (3 * heads);
    for (let head = 0; head < heads; head++) {
      for (let part = 0; part < 3; part++) {
        const from = offset + (3 * head + part) * size;
        turned.set(bytes.subarray(from, from + size), offset + (heads * part + head) * size);
      }
    }
  }
  return turned;
}

function lines<T>(text: string): T[] {
  return text.trimEnd().split("\n").map((line) => JSON.parse(line));
}

function packed(row: Float32Array): string {
  return encodeBase64(new Uint8Array(normalized(row).buffer));
}
