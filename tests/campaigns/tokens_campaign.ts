/**
 * Compares token ids with llama.cpp's (`deno task tokens [FILE.gguf …]`), on seeded texts of every script. Every fourth
 * text has control tokens recognised. Without files, it uses the vocabularies in llama.cpp's source, and for each
 * pre-tokenizer a vocabulary that shows its splits. Needs Node with npm, and git.
 */
import { basename, fromFileUrl, join } from "@std/path";
import { GgufBuilder } from "../../engine/gguf/testing.ts";
import { openGguf } from "../../engine/gguf/reader.ts";
import { CODE_OF_BYTE } from "../../engine/tokenizer/byte_codes.ts";
import { PRE_TOKENIZERS, preTokenizer } from "../../engine/tokenizer/split/pre_tokenizers.ts";
import { randomIntegers } from "../../engine/tokenizer/testing.ts";
import { TOKEN_TYPE } from "../../engine/tokenizer/token_types.ts";
import { createTokenizer } from "../../engine/tokenizer/tokenizer.ts";
import { PEER, run } from "../../tools/parity/programs.ts";
import { campaignLine } from "../../testing/campaign.ts";
import { scriptText } from "../models/script_texts.ts";

const REFEREE = fromFileUrl(new URL("../../tools/parity/llama_cpp_tokens.mjs", import.meta.url));
/** Maximum differences shown per vocabulary. */
const SHOWN = 3;

export interface TokenFigures {
  readonly texts: number;
  readonly tokens: number;
  readonly differing: readonly { text: string; special: boolean; ours: number[]; theirs: number[] }[];
}

/** Encodes `count` texts with a file's vocabulary here and in llama.cpp. */
async function compareTokens(
  path: string,
  peer: string,
  count: number,
  seed: number,
): Promise<TokenFigures> {
  const { metadata } = await openGguf(path);
  const tokenizer = createTokenizer(metadata);
  const types = metadata.getNumbers("tokenizer.ggml.token_type");
  const special: number[] = [TOKEN_TYPE.CONTROL, TOKEN_TYPE.USER_DEFINED, TOKEN_TYPE.UNKNOWN];
  const tokens = metadata.getStrings("tokenizer.ggml.tokens")!.filter((_, id) =>
    special.includes(types?.[id] ?? 0)
  );
  const random = randomIntegers(seed);
  const cases = Array.from({ length: count }, (_, i) => ({
    text: scriptText(random, i % 3 === 0 ? 30 : 8, tokens),
    special: i % 4 === 0,
  }));
  const answers = await run(
    "node",
    [REFEREE, path],
    peer,
    cases.map((one) => JSON.stringify(one)).join("\n"),
  );
  const theirs = answers.trimEnd().split("\n").map((line): number[] => JSON.parse(line));
  const ours = cases.map(({ text, special }) => tokenizer.encode(text, { parseSpecial: special }));
  return {
    texts: count,
    tokens: theirs.flat().length,
    differing: cases.map((one, i) => ({ ...one, ours: ours[i], theirs: theirs[i] }))
      .filter(({ ours, theirs }) => ours.length !== theirs.length || ours.some((id, i) => id !== theirs[i])),
  };
}

/**
 * Returns a byte-level vocabulary in which any two bytes merge, in a random order. Almost every split between two bytes
 * then changes the ids.
 */
function pairVocabulary(pre: string): Uint8Array<ArrayBuffer> {
  const bytes = Array.from(CODE_OF_BYTE, (code) => String.fromCharCode(code));
  const pairs = bytes.flatMap((left) => bytes.map((right) => [left, right]));
  const random = randomIntegers(5);
  for (let i = pairs.length - 1; i > 0; i--) {
    const j = random(i + 1);
    [pairs[i], pairs[j]] = [pairs[j], pairs[i]];
  }
  return new GgufBuilder()
    .set("general.architecture", "STRING", "llama")
    .set("tokenizer.ggml.model", "STRING", "gpt2")
    .set("tokenizer.ggml.pre", "STRING", pre)
    .array("tokenizer.ggml.tokens", "STRING", [...bytes, ...pairs.map((pair) => pair.join(""))])
    .array("tokenizer.ggml.merges", "STRING", pairs.map((pair) => pair.join(" ")))
    .build().bytes;
}

/** The vocabularies in llama.cpp's source, which node-llama-cpp carries as a git bundle. */
async function vocabularies(peer: string, folder: string): Promise<string[]> {
  const bundle = join(peer, "node_modules/node-llama-cpp/llama/gitRelease.bundle");
  await run("git", [
    "clone",
    "--quiet",
    "--config",
    "advice.detachedHead=false",
    bundle,
    join(folder, "source"),
  ], folder);
  const models = join(folder, "source", "models");
  const names = Array.from(Deno.readDirSync(models), ({ name }) => name);
  return names.filter((name) => name.endsWith(".gguf")).sort().map((name) => join(models, name));
}

if (import.meta.main) {
  const { operands: given, texts: count, seed, pre, peer: installed } = campaignLine({
    task: "tokens",
    does:
      "Compare token ids with llama.cpp's, of its own vocabularies and of one for each pre-tokenizer, or of those of files.",
    operands: "[FILE.gguf…]",
    options: {
      texts: ["seeded texts for each vocabulary", 10_000],
      pre: ["one pre-tokenizer alone", undefined],
      peer: ["folder in which node-llama-cpp is installed; without it, it is fetched", undefined],
      seed: ["what chance begins with", 1],
    },
  });
  const folder = await Deno.makeTempDir({ prefix: "compy-tokens-" });
  const peer = installed ?? folder;
  let differing = 0;
  const report = async (name: string, path: string) => {
    let line = name.padEnd(40);
    try {
      const figures = await compareTokens(path, peer, count, seed);
      differing += figures.differing.length;
      line += `${figures.differing.length} of ${figures.texts} texts differ, ${figures.tokens} tokens\n`;
      for (const one of figures.differing.slice(0, SHOWN)) line += `  ${JSON.stringify(one)}\n`;
    } catch (error) {
      line += `${(error as Error).message}\n`;
    }
    await Deno.stdout.write(new TextEncoder().encode(line));
  };
  try {
    if (!installed) {
      await run(
        "npm",
        ["install", "--omit=optional", "--no-audit", "--no-fund", "--prefix", folder, ...PEER],
        folder,
      );
    }
    const files = given.length > 0 || pre ? given : await vocabularies(peer, folder);
    for (const path of files) await report(basename(path), path);
    const names = pre ? [pre] : given.length > 0 ? [] : PRE_TOKENIZERS;
    for (const name of names.filter((name) => preTokenizer(name).spelling === "bytes")) {
      const path = join(folder, "pairs.gguf");
      await Deno.writeFile(path, pairVocabulary(name));
      await report(`pre-tokenizer ${name}`, path);
    }
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
  if (differing > 0) Deno.exit(1);
}
