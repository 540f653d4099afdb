/**
 * Records the terminal session in the README (`deno task recording`): runs each command as a user would, and draws its
 * timed output as docs/session.svg, an animation without scripts.
 */
import { fromFileUrl } from "@std/path";

const ROOT = fromFileUrl(new URL("..", import.meta.url));
const PICTURE = `${ROOT}docs/session.svg`;

/** The command lines that the recording shows. */
const COMMANDS = [
  'deno task generate --chat "Who are you?"',
  'deno task generate --chat "Tell me a story about a small dinosaur." --temperature 0',
  'deno task generate --chat "What does Pip like?" --schema pip.json --temperature 0',
  "deno task batch run questions.jsonl --out answers.jsonl",
  `grep -o '"content":"[^"]*"' answers.jsonl`,
];

const FILES: Readonly<Record<string, string>> = {
  "pip.json": JSON.stringify({
    type: "object",
    properties: { likes: { enum: ["stories", "rain"] } },
    required: ["likes"],
    additionalProperties: false,
  }),
  "questions.jsonl": ["Who are you?", "What do you like?", "What does Pip like?"].map((content, i) =>
    JSON.stringify({
      custom_id: `line-${i + 1}`,
      method: "POST",
      url: "/v1/chat/completions",
      body: { messages: [{ role: "user", content }], temperature: 0 },
    })
  ).join("\n"),
};

/** A piece of text, and its time in seconds since the start. */
interface Piece {
  readonly at: number;
  readonly text: string;
  readonly typed?: boolean;
}

const COLUMNS = 96;
const [CELL_WIDTH, LINE_HEIGHT, MARGIN] = [8.4, 19, 18];
/** Seconds between two typed keys, and after a command. */
const [KEY, PAUSE] = [0.03, 0.9];

if (import.meta.main) await Deno.writeTextFile(PICTURE, draw(await record()));

async function record(): Promise<Piece[]> {
  const folder = await Deno.makeTempDir();
  try {
    for (const [name, text] of Object.entries(FILES)) await Deno.writeTextFile(`${folder}/${name}`, text);
    const pieces: Piece[] = [];
    let at = 0.5;
    for (const typed of COMMANDS) {
      pieces.push({ at, text: "$ ", typed: true });
      for (const key of typed) pieces.push({ at: at += KEY, text: key, typed: true });
      pieces.push({ at: at += 0.3, text: "\n" });
      const begun = performance.now();
      const start = at;
      for await (const text of output(typed, folder)) {
        at = start + (performance.now() - begun) / 1000;
        pieces.push({ at, text });
      }
      at += PAUSE;
    }
    return pieces;
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

/** Yields a command line's output as it arrives. The command runs as a task of this checkout, but in `folder`. */
async function* output(line: string, folder: string): AsyncGenerator<string, void> {
  const command = line.replaceAll("deno task ", `deno task -q --config ${ROOT}deno.json `);
  const child = new Deno.Command("bash", {
    args: ["-c", `${command} 2>&1`],
    cwd: folder,
    env: { NO_COLOR: "1", INIT_CWD: folder },
    stdin: "null",
    stdout: "piped",
  }).spawn();
  yield* child.stdout.pipeThrough(new TextDecoderStream());
  const { code } = await child.status;
  if (code !== 0) throw new Error(`${line} ended with exit code ${code}`);
}

/** Text in one row that arrived at the same time. */
interface Run extends Piece {
  readonly row: number;
  readonly column: number;
}

/** Returns the text with long lines wrapped between words. */
function layOut(pieces: readonly Piece[]): Run[] {
  const runs: Run[] = [];
  let [row, column] = [0, 0];
  for (const { text, ...piece } of pieces) {
    for (const word of text.match(/\n|[^\S\n]+|[^\s]+/g) ?? []) {
      if (word === "\n" || (column + word.length > COLUMNS && /\w/.test(word))) {
        [row, column] = [row + 1, 0];
      }
      if (word === "\n") continue;
      if (word.trim() !== "") runs.push({ ...piece, text: word, row, column });
      column += word.length;
    }
  }
  return runs;
}

function draw(pieces: readonly Piece[]): string {
  const runs = layOut(pieces);
  const rows = 1 + Math.max(...runs.map(({ row }) => row));
  const width = Math.ceil(COLUMNS * CELL_WIDTH + 2 * MARGIN);
  const height = Math.ceil(rows * LINE_HEIGHT + 2 * MARGIN);
  const texts = runs.map(({ text, at, row, column, typed }) => {
    const [x, y] = [MARGIN + column * CELL_WIDTH, MARGIN + (row + 0.75) * LINE_HEIGHT];
    const kind = typed ? ' class="typed"' : "";
    return `<text x="${x.toFixed(1)}" y="${y.toFixed(1)}"${kind} style="animation-delay:${at.toFixed(2)}s">${
      escaped(text)
    }</text>`;
  });
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img">
<title>A terminal: the demo model says who it is, tells a story, answers in a JSON schema, and answers a batch</title>
<style>
rect { fill: #10201a; }
text { font: 14px ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #d6e6da; white-space: pre; opacity: 0; animation: come 0.01s forwards; }
.typed { fill: #8fd694; }
@keyframes come { to { opacity: 1; } }
@media (prefers-reduced-motion: reduce) { text { animation: none; opacity: 1; } }
</style>
<rect width="100%" height="100%" rx="8"/>
${texts.join("\n")}
</svg>
`;
}

function escaped(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(" ", "\u00a0");
}
