import { assert, assertEquals, assertThrows } from "@std/assert";
import { GgufError } from "../../gguf/errors.ts";
import { PRE_TOKENIZERS, preTokenizer } from "./pre_tokenizers.ts";
import { finish } from "../../pacing/pauses.ts";
import { splitText } from "./stage.ts";
import { randomIntegers } from "../testing.ts";

function pieces(name: string, text: string): string[] {
  let start = 0;
  return finish(splitText(preTokenizer(name).stages, text)).map((end) => {
    const piece = text.slice(start, end);
    start = end;
    return piece;
  });
}

/** Each list of pieces; joined, they are the text to split. */
const CASES: [name: string, pieces: string[]][] = [
  ["default", ["I", "'", "m", " ", "123", "456", "7", "!?", " ", "<=", "a", "`", "b", "`", " x"]],
  ["gpt-2", ["I", "'m", " HE", "'", "S", " 1234", " ok", "!?", "\n\n ", " x", " "]],
  ["gpt-2", ["'", " ''", "s", "'re", "'", "r"]],
  ["starcoder", ["I", "'m", " ", "1", "2", "3", "4", " ok", "!?", "\n\n ", " x", " "]],
  ["smollm", ["v", "1", ".", "2"]],
  ["falcon", ["a", "`", "b", " ", "123", "456", "7", "!?", " ", "<=", "x"]],
  ["llama-bpe", ["I", "'M", " it", "'s", " ", "123", "456", "7", " (", "ok", ")!?\n\n", " ", " x", "\r\n"]],
  ["llama3", [" ", "\ty", "  "]],
  ["llama-v3", ["\n \n", "  ", " 中文", "。\n"]],
  ["dbrx", ["I", "'M", " ", "123", "456", "7", "!\n", " x"]],
  ["qwen2", ["I", "'M", " ", "1", "2", "3", " (", "ok", ")!?\n\n", " ", " x", "\r\n", " ", "\ty", "  "]],
  ["qwen2", ["e", "\u0301a", " \u0301", "b"]],
  ["deepseek-r1-qwen", ["a", "\x85\u3000", "\u3000中"]],
  ["qwen35", ["I", "'M", " it", "'s", " ", "1", "2", "3", " (", "ok", ")!?\n\n", " ", " x"]],
  ["qwen35", ["e\u0301a", " \u0301b"]],
  ["seed-coder", ["it", "'s", " ", "1", "2", "3", "!?", "\n\n", " x"]],
  ["tekken", ["HTTPServer", " it", "'s", " ABCdef", "GHI", " é", "A", " ", "1", "2", " a", "//\n", " b"]],
  ["gpt-4o", ["HTTPServer", " it's", " ABCdef", "GHI", " é", "A", " ", "123", "4", " a", "//\n", " b"]],
  ["llama4", ["WE'LL", " we'll", "'ll", " ÉÉ", "A"]],
  ["deepseek-llm", [
    "hi",
    " there",
    ",",
    " ",
    " Ç",
    "a",
    "！",
    " ",
    "1234",
    "中文한국",
    " ",
    "\n",
    " x",
    "  ",
  ]],
  ["deepseek-coder", ["hi", ",", " ", " Ça", "！", " ", "1", "2", "中文한국", " ", "\n", " x", "  "]],
  ["deepseek-v3", ["(foo", ")bar", "'s", " ", "123", "45", " ", "中文カナ", " x", "!?\n\n", " ", " e\u0301"]],
  ["deepseek-v3", ["\0", "\0y", "\0\0"]],
  ["spark2_5", ["1", "2", "3", "4", " x", "!?", "\n", "\n", "中文", " y"]],
  ["afmoe", ["ab", "1", "234", "567", " ", "中文เ", " x", "!\n"]],
  ["tiny_aya", ["ab", "1", "234", " it's", " e\u0301X"]],
  ["tiny_aya", ["e\u0301X", " \u0301"]],
  ["youtu", ["한국", "中文", "，。", "ab", " ", "1", "2", " it's"]],
  ["granite-embed-multi-97m", ["e\u0301", "Xy", " ", "123", "4"]],
  ["granite-embed-multi-97m", ["\u06e1", "I'm"]],
  ["granite-embed-multi-97m", ["\u06e1Im"]],
  ["kimi-k2", ["中文", "ab's", " ", "123", "4", "!?\n", "的", " x"]],
  ["jais-2", ["x", " ".repeat(512), " ".repeat(64), " ", " y", "\n\n", "  ", " "]],
  ["minicpm5", ["I", "'m", " ", "123", "4", " x"]],
  ["ufakzeka", ["Ankara", "'nın", " ", "1", "2"]],
  ["exaone-moe", ["I am here", "'s", " ", "1", " e\u0301 a", "!\n", "\n", " ok"]],
  ["laguna", [" ", "\n\n", " x", "1", "2", "!"]],
  ["superbpe", ["ab c ", "1", "234", " d", "567", "890"]],
  ["bloom", ["ab", " c12", "..  (", "d", ")"]],
  ["viking", ["ab", " c", "1", "2", "."]],
  ["chameleon", [
    "<",
    "sentinel",
    ":",
    "1",
    "2",
    ">",
    "a",
    "IMGIMGABCZ",
    "\n",
    "  ",
    " x",
    "1",
    "2",
    "!",
    "?",
  ]],
  ["roberta-bpe", ["I", "'m", " 12"]],
];

for (const [name, expected] of CASES) {
  const text = expected.join("");
  Deno.test(`pre-tokenizer ${name}: splits ${JSON.stringify(text)} as its published pattern does`, () => {
    assertEquals(pieces(name, text), expected);
  });
}

Deno.test("pre-tokenizer: refuses an unknown name and lists the known names", () => {
  const error = assertThrows(() => preTokenizer("qwen-9"), GgufError);
  assertEquals(error.code, "GGUF_VOCAB");
  assert(error.message.includes('"qwen-9"') && error.message.includes("deepseek-r1-qwen"), error.message);
});

Deno.test("pre-tokenizer: keeps every character, and returns no empty piece", () => {
  const random = randomIntegers(1);
  const alphabet = [
    "a",
    "Z",
    "é",
    "É",
    "7",
    "½",
    " ",
    "\n",
    "\r",
    "\t",
    "\u3000",
    "'",
    "s",
    "LL",
    "!",
    "/",
    "$",
    "中",
    "👍",
  ];
  alphabet.push("\u0301", "\0", "`", "の", "한", "\x85");
  for (const name of PRE_TOKENIZERS) {
    for (let i = 0; i < 200; i++) {
      const text = Array.from({ length: random(20) }, () => alphabet[random(alphabet.length)]).join("");
      const found = pieces(name, text);
      assertEquals(found.join(""), text);
      assert(found.every((piece) => piece.isWellFormed() && piece.length > 0));
    }
  }
});

Deno.test("pre-tokenizer: splits long runs in linear time and without recursion", () => {
  // A quadratic path in any pre-tokenizer would take minutes here.
  const runs = [
    "a",
    "A",
    "É",
    "éA",
    "7",
    " ",
    "\n",
    " \n",
    "\u3000",
    "!",
    "'",
    "' ",
    "/",
    "中",
    "👍",
    "\u0301",
    "\0",
  ];
  const names = PRE_TOKENIZERS.filter((name, i) => {
    const first = PRE_TOKENIZERS.findIndex((other) =>
      preTokenizer(other).stages === preTokenizer(name).stages
    );
    return first === i;
  });
  for (const name of names) {
    for (const run of runs) {
      const text = run.repeat(50_000) + "x";
      assertEquals(finish(splitText(preTokenizer(name).stages, text)).at(-1), text.length);
    }
  }
});
