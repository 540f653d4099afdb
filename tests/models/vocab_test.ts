import { assertEquals } from "@std/assert";
import { fromFileUrl, join } from "@std/path";
import { openGguf } from "../../engine/gguf/reader.ts";
import { createTokenizer } from "../../engine/tokenizer/tokenizer.ts";

/**
 * Tables of texts and token ids from llama.cpp's tests: NAME.gguf has a vocabulary, NAME.inp has texts with a separator line, NAME.out has one
 * line of ids per text. The tables are too large for this repository.
 */
const NAMES = ["qwen2", "llama-bpe", "gpt-2", "llama-spm"];
const SEPARATOR = "\n__ggml_vocab_test__\n";

const folder = Deno.env.get("COMPY_VOCAB_DIR") ??
  fromFileUrl(new URL("../../../shared/data/vocab", import.meta.url));

function exists(path: string): boolean {
  try {
    return Deno.statSync(path).isFile;
  } catch {
    return false;
  }
}

for (const name of NAMES) {
  const path = join(folder, `${name}.gguf`);
  const found = exists(path);
  const reason = found
    ? ""
    : ` (skipped: no ${path}; set COMPY_VOCAB_DIR to a folder with llama.cpp's tables)`;
  Deno.test({
    name: `vocabularies: ${name} encodes llama.cpp's table like llama.cpp${reason}`,
    ignore: !found,
    async fn() {
      const tokenizer = createTokenizer((await openGguf(path)).metadata);
      const texts = (await Deno.readTextFile(join(folder, `${name}.inp`))).split(SEPARATOR);
      const lines = (await Deno.readTextFile(join(folder, `${name}.out`))).split("\n");
      const expected = lines.map((line) => line.trim().split(/\s+/).filter(Boolean).map(Number));
      assertEquals(texts.map((text) => tokenizer.encode(text)), expected);
    },
  });
}
