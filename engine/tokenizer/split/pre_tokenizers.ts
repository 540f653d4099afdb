import { GgufError, quote } from "../../gguf/errors.ts";
import type { Spelling } from "../decoder.ts";
import {
  apartFromHan,
  casedWord,
  characterRun,
  deepseek3,
  digits,
  expression,
  gpt2,
  lineBreakRun,
  oneLineBreak,
  onePunctuation,
  phrase,
  punctuationRun,
  spacedRun,
  tabOrBlanks,
  threeAsciiDigits,
  type WordRules,
  words,
} from "./patterns.ts";
import {
  blanksByPowers,
  isolate,
  isolateTrailingSpace,
  type Match,
  type Stage,
  triplesFromEnd,
} from "./stage.ts";
import { classAt, LETTER, MARK, NUMBER, PUNCTUATION, runOf, SPACE } from "./unicode.ts";

/** How a BPE vocabulary splits text before merging. */
export interface PreTokenizer {
  readonly stages: readonly Stage[];
  /** Pieces that become a token directly if they equal its text, regardless of merges. */
  readonly wholePieces: "all" | "line breaks" | "none";
  /** Whether BOS is added if the file does not say. */
  readonly addBos: boolean;
  /** Whether BOS is always added, because early files of these models wrongly disable it. */
  readonly alwaysBos: boolean;
  readonly spelling: Spelling;
  /** Whether capitals become lower case; with "words". */
  readonly lowercase?: boolean;
}

interface Rules extends Partial<PreTokenizer> {
  /** Names in `tokenizer.ggml.pre`, as llama.cpp's converter writes them. */
  readonly names: string;
  readonly stages: readonly Stage[];
}

const CL100K: WordRules = { letters: LETTER, digits: 3, contractions: "apart", tail: "\r\n" };
const O200K: WordRules = {
  letters: LETTER,
  word: casedWord(LETTER),
  digits: 3,
  contractions: "inside",
  tail: "\r\n/",
};
/** Rules of the o200k words without case distinction, with marks attached to letters. */
const MARKED_O200K: WordRules = {
  ...O200K,
  word: (text, index, end) => runOf(LETTER | MARK, text, index, end),
};

/** Matches a run of one kind of characters: Hangul letters, punctuation, bopomofo, or ideographs and kana. */
const YOUTU_RUNS = [
  /[\uac00-\ud7a3\u3131-\u318e]/,
  /[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]/,
  /[\u3105-\u312f]/,
  /[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]/,
].map((characters) => characterRun(characters, false));

const youtuRun: Match = (text, index, end) =>
  YOUTU_RUNS.map((run) => run(text, index, end)).find((stop) => stop > index) ?? index;

/** Characters of East Asian scripts written without blanks, as AFMoE lists them. */
const AFMOE_UNSPACED =
  /[\u4e00-\u9fff\u3400-\u4dbf\u8c48-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e40-\u0e7f\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]/u;

/** Matches ` ?` and a run of characters that are neither white space nor BLOOM's punctuation signs. */
const bloomWord: Match = (text, index, end) => {
  const isPart = (i: number) =>
    i < end && (classAt(text, i, end) & SPACE) === 0 &&
    !"(|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)".includes(text[i]);
  const body = text[index] === " " ? index + 1 : index;
  let stop = body;
  while (isPart(stop)) stop++;
  return stop > body ? stop : index;
};

const numberTriples = triplesFromEnd(
  (text, index, end) => (classAt(text, index, end) & NUMBER) !== 0,
  "after",
);
const asciiTriples = triplesFromEnd((text, index) => text[index] >= "0" && text[index] <= "9", "before");

/** Settings for merges over whole lines of raw text. */
const LINES: Partial<PreTokenizer> & { stages: readonly Stage[] } = {
  stages: [isolate(lineBreakRun)],
  spelling: "blank marks",
};

const gpt2Words = isolate(gpt2);
const eachDigit = isolate(digits(1));
const numbers = isolate(digits(Infinity));
const eachLineBreak = isolate(oneLineBreak);
const digitTriples = isolate(threeAsciiDigits);

/** Letters, punctuation and ideographs that the first DeepSeek tokenizers list explicitly. */
export const DEEPSEEK_LETTERS =
  /[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\u{10400}-\u{1044f}\u{104b0}-\u{104d3}\u{104d8}-\u{104fb}\u{10c80}-\u{10cb2}\u{10cc0}-\u{10cf2}\u{118a0}-\u{118df}\u{1e900}-\u{1e943}]/u;
const DEEPSEEK_PUNCTUATION = /[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3001\u3002]/u;
const DEEPSEEK_CJK = /[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]/u;

const RULES: readonly Rules[] = [
  {
    names: "gemma4 granite-embed-multi-311m",
    ...LINES,
    wholePieces: "line breaks",
    addBos: true,
    alwaysBos: true,
  },
  { names: "sarvam-moe", ...LINES },
  { names: "whitespace", stages: [], spelling: "words" },
  {
    names: "default",
    stages: [isolate(punctuationRun("$+<=>^~|")), gpt2Words, numbers, digitTriples],
  },
  {
    names:
      "gpt-2 phi-2 mpt olmo jais trillion granite-docling exaone4 gigachat a.x-4.0 mellum modern-bert jina-es jina-de jina-v2-es jina-v2-de jina-v1-en jina-v2-code roberta-bpe",
    stages: [gpt2Words],
  },
  {
    names: "starcoder refact command-r smollm codeshell exaone minerva-7b mellum2",
    stages: [eachDigit, gpt2Words],
  },
  {
    names: "falcon",
    stages: [isolate(punctuationRun("$+<=>^~|`")), gpt2Words, digitTriples],
  },
  {
    names: "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
    stages: [isolate(words(CL100K))],
    wholePieces: "all",
    addBos: true,
  },
  { names: "dbrx smaug-bpe chatglm-bpe", stages: [isolate(words(CL100K))] },
  { names: "glm4 glm5", stages: [isolate(words(CL100K))], wholePieces: "all" },
  {
    names:
      "qwen2 deepseek-r1-qwen stablelm2 hunyuan solar-open megrez kormo f2llmv2 grok-2 bailingmoe bailingmoe2 llada-moe",
    stages: [isolate(words({ ...CL100K, digits: 1 }))],
  },
  { names: "qwen35", stages: [isolate(words({ ...CL100K, letters: LETTER | MARK, digits: 1 }))] },
  { names: "seed-coder", stages: [isolate(words({ ...CL100K, digits: 1, tail: "" }))] },
  {
    names: "tekken",
    stages: [isolate(words({ ...O200K, digits: 1, contractions: "none" }))],
    wholePieces: "all",
    addBos: true,
  },
  { names: "gpt-4o llama4 kanana2 talkie minimax-m2", stages: [isolate(words(O200K))] },
  {
    names: "deepseek-llm",
    stages: [
      eachLineBreak,
      isolate(characterRun(DEEPSEEK_LETTERS, true)),
      isolate(characterRun(DEEPSEEK_PUNCTUATION, true)),
      isolateTrailingSpace,
      isolate(characterRun(DEEPSEEK_CJK, false)),
      numbers,
    ],
  },
  {
    names: "deepseek-coder",
    stages: [
      eachLineBreak,
      isolate(spacedRun(LETTER)),
      isolate(spacedRun(PUNCTUATION)),
      isolate(characterRun(DEEPSEEK_CJK, false)),
      eachDigit,
    ],
  },
  {
    names: "deepseek-v3 hunyuan-dense joyai-llm hy_v4",
    stages: [
      isolate(digits(3)),
      isolate(characterRun(/[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]/u, false)),
      isolate(deepseek3(true)),
    ],
  },
  {
    names: "spark2_5",
    stages: [
      isolate(digits(3)),
      isolate(characterRun(/[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]/u, false)),
      isolate(deepseek3(false)),
      eachDigit,
    ],
  },
  {
    names: "afmoe",
    stages: [
      numberTriples,
      isolate(characterRun(AFMOE_UNSPACED, false)),
      isolate(deepseek3(true)),
    ],
  },
  {
    names: "youtu",
    stages: [isolate(youtuRun), isolate(words({ ...MARKED_O200K, digits: 1 }))],
    wholePieces: "all",
  },
  { names: "tiny_aya cohere2moe", stages: [numberTriples, isolate(words(MARKED_O200K))] },
  {
    names: "granite-embed-multi-97m",
    stages: [isolate(words({ ...O200K, word: casedWord(LETTER | MARK), markBeforeCapitals: "apart" }))],
    wholePieces: "all",
  },
  {
    names: "kimi-k2",
    stages: [isolate(apartFromHan({ ...CL100K, contractions: "inside" }))],
  },
  { names: "jais-2", stages: [isolate(words(CL100K)), blanksByPowers] },
  {
    names: "minicpm5",
    stages: [isolate(digits(3)), isolate(words({ ...CL100K, digits: Infinity }))],
    wholePieces: "all",
  },
  { names: "ufakzeka", stages: [isolate(words({ ...CL100K, digits: 1, contractions: "none" }))] },
  {
    names: "exaone-moe",
    stages: [isolate(words({ ...CL100K, word: phrase, digits: 1, tail: "\r\n/", tailLength: 1 }))],
  },
  { names: "laguna", stages: [isolate(lineBreakRun), isolate(words({ ...CL100K, digits: 1 }))] },
  { names: "superbpe", stages: [numbers, asciiTriples] },
  { names: "bloom poro-chat gpt3-finnish", stages: [isolate(bloomWord)] },
  { names: "viking", stages: [isolate(bloomWord), eachDigit] },
  {
    names: "chameleon",
    stages: [
      isolate(expression("<sentinel:[0-9]+>")),
      isolate(expression("IMGIMG[A-I]{1,4}Z")),
      isolate(tabOrBlanks),
      eachDigit,
      isolate(onePunctuation),
      gpt2Words,
    ],
    addBos: true,
  },
];

const USUAL = { wholePieces: "none", addBos: false, alwaysBos: false, spelling: "bytes" } as const;

const BY_NAME = new Map<string, PreTokenizer>(
  RULES.flatMap(({ names, ...rules }) => names.split(" ").map((name) => [name, { ...USUAL, ...rules }])),
);

/** Names that `preTokenizer` accepts. */
export const PRE_TOKENIZERS: readonly string[] = [...BY_NAME.keys()];

/**
 * Returns the pre-tokenizer of that name. Throws GgufError(GGUF_VOCAB) listing the names for an unknown one.
 */
export function preTokenizer(name: string): PreTokenizer {
  const found = BY_NAME.get(name);
  if (found) return found;
  throw new GgufError("GGUF_VOCAB", `must be one of ${PRE_TOKENIZERS.join(", ")} (got ${quote(name)})`, {
    field: 'key "tokenizer.ggml.pre"',
  });
}
