/** Seeded texts in every script, with difficult cases for tokenizers between the words. */

type Random = (n: number) => number;

/** First and last code points of letters and their marks. */
const SCRIPTS: readonly (readonly [first: number, last: number])[] = [
  [0x61, 0x7a],
  [0x41, 0x5a],
  [0x30, 0x39],
  [0xc0, 0x24f],
  [0x250, 0x36f],
  [0x370, 0x3ff],
  [0x400, 0x52f],
  [0x531, 0x58a],
  [0x590, 0x5f4],
  [0x600, 0x6ff],
  [0x700, 0x7bf],
  [0x900, 0x97f],
  [0x980, 0x9fe],
  [0xa00, 0xaff],
  [0xb00, 0xb7f],
  [0xb80, 0xc7f],
  [0xc80, 0xdff],
  [0xe00, 0xedf],
  [0xf00, 0xfff],
  [0x1000, 0x109f],
  [0x10a0, 0x10ff],
  [0x1100, 0x11ff],
  [0x1200, 0x139f],
  [0x13a0, 0x1bff],
  [0x1c80, 0x1cbf],
  [0x1d00, 0x1dff],
  [0x1e00, 0x1fff],
  [0x2070, 0x218f],
  [0x2c00, 0x2dff],
  [0x3040, 0x30ff],
  [0x3105, 0x31ff],
  [0x3400, 0x4dbf],
  [0x4e00, 0x9fff],
  [0xa000, 0xa4cf],
  [0xa4d0, 0xabff],
  [0xac00, 0xd7ff],
  [0xf900, 0xfaff],
  [0xfb00, 0xfdff],
  [0xfe70, 0xfeff],
  [0xff00, 0xffef],
  [0x10000, 0x10fff],
  [0x11000, 0x11fff],
  [0x12000, 0x1343f],
  [0x16800, 0x16fff],
  [0x17000, 0x18aff],
  [0x1d400, 0x1d7ff],
  [0x1e000, 0x1e95f],
  [0x20000, 0x2ebef],
  [0x2f800, 0x2fa1f],
];

/** Punctuation, symbols, emoji, and invalid code points. */
const OTHERS: readonly (readonly [first: number, last: number])[] = [
  [0x21, 0x2f],
  [0x3a, 0x40],
  [0x5b, 0x60],
  [0x7b, 0x7e],
  [0xa1, 0xbf],
  [0x2010, 0x205e],
  [0x20a0, 0x20c0],
  [0x2190, 0x23ff],
  [0x2460, 0x27bf],
  [0x3001, 0x303f],
  [0x1f300, 0x1faff],
  [0x1f1e6, 0x1f1ff],
  [0x300, 0x36f],
  [0, 0x1f],
  [0x7f, 0x9f],
  [0x200b, 0x200f],
  [0xfe00, 0xfe0f],
  [0xe000, 0xe0ff],
  [0xfff0, 0xffff],
  [0xe0020, 0xe007f],
  [0xf0000, 0xf00ff],
];

const BLANKS = [
  ...[
    " ",
    " ",
    " ",
    " ",
    "  ",
    "   ",
    "        ",
    "\n",
    "\n\n",
    "\r\n",
    " \n",
    "\n ",
    "\t",
    "\t\t",
    "\r",
    "\v",
  ],
  ..."\f|\x85|\xa0|\u1680|\u2003|\u2009|\u2028|\u2029|\u202f|\u3000|\u200b|\ufeff|\u2581| \u2581".split("|"),
];

const PARTS = [
  ..."I'm we'LL they've 'Re don't 'S it's l'été d'Or ''s 's's O'Neil's".split(" "),
  ..."HTTPServer getElementById camelCaseÉtat XMLHttpRequest iPhone ÀÉÎ snake_case kebab-case".split(" "),
  ..."0 7 42 123 1234 12345678 3.14159 1,000,000 0x1F ½ ² Ⅷ ١٢٣ १२३ 1st 2nd".split(" "),
  ..."!!! ... ?! -- => != += /* */ // <br/> {{}} [0] $100 100% #tag @user a@b.example /etc/passwd".split(" "),
  ..."👍🏽 👨‍👩‍👧‍👦 🇩🇪 ❤️ ☎️ e\u0301 n\u0303 ก็ी क्षि 한국어 ㅎㅎ ﷺ ﬁ ﾊﾟ İstanbul ẞ Σίσυφος ς ǅ".split(" "),
  ..."漢字かな交じり文 中文，标点。 「引用」 العربيّة עִבְרִית हिन्दी ไทย မြန်မာ ქართული Ελληνικά Кириллица".split(
    " ",
  ),
  ..."<sentinel:12> IMGIMGABCZ <|im_end| |endoftext|> [CLS [MASK] <s> </s> <unk> <0x41> ##ing".split(" "),
];

function word(random: Random, ranges: readonly (readonly [number, number])[], longest: number): string {
  const [first, last] = ranges[random(ranges.length)];
  let text = "";
  for (let i = 1 + random(longest); i > 0; i--) {
    const code = first + random(last - first + 1);
    if (code < 0xd800 || code > 0xdfff) text += String.fromCodePoint(code);
  }
  return text;
}

/** A text of up to `most` parts. It may contain the texts in `tokens`, for example those of control tokens. */
export function scriptText(random: Random, most: number, tokens: readonly string[]): string {
  let text = "";
  for (let i = 1 + random(most); i > 0; i--) {
    const kind = random(20);
    if (kind < 8) text += word(random, SCRIPTS, 8);
    else if (kind < 10) text += word(random, OTHERS, 3);
    else if (kind < 14) text += BLANKS[random(BLANKS.length)];
    else if (kind < 18) text += PARTS[random(PARTS.length)];
    else if (kind < 19 && tokens.length > 0) text += tokens[random(tokens.length)];
    else text += word(random, [[0x20, 0x7e]], 12);
    if (random(3) === 0) text += " ";
  }
  return text;
}
