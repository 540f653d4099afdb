import { assert, assertEquals } from "@std/assert";
import { describeSampling, LIMITS } from "../routes/core/fields.ts";
import { IGNORED, REFUSED_NAMES } from "../routes/core/parameters.ts";
import { GPU_TYPES, isGpuType } from "../engine/backend/webgpu/kernels/formats/registry.ts";
import { FORMATS } from "../engine/gguf/formats.ts";
import type { TensorType } from "../engine/gguf/types.ts";
import { SAMPLING_SETTINGS } from "../engine/mod.ts";
import { dirname, fromFileUrl, join, relative } from "@std/path";

const ROOT = fromFileUrl(new URL("..", import.meta.url));

Deno.test("docs: every link leads to an existing file and heading", async () => {
  const broken: string[] = [];
  for (const file of documents()) {
    for (const link of linksOf(await Deno.readTextFile(file))) {
      const [path, heading] = link.split("#");
      const target = path === "" ? file : join(dirname(file), decodeURIComponent(path));
      if (!exists(target) || (heading && !headingsOf(target).has(heading))) {
        broken.push(`${relative(ROOT, file)}: ${link}`);
      }
    }
  }
  assertEquals(broken, []);
});

Deno.test("docs: the map names every document", async () => {
  const map = new Set(linksOf(await Deno.readTextFile(join(ROOT, "docs/README.md"))));
  const named = documents(join(ROOT, "docs")).map((path) => relative(join(ROOT, "docs"), path));
  assertEquals(named.filter((name) => name !== "README.md" && !map.has(name)), []);
});

/** Maximum bytes of documents that people read from beginning to end. */
const SIZES: Readonly<Record<string, number>> = {
  "docs/ARCHITECTURE.md": 15_000,
  "docs/BENCHMARKS.md": 10_000,
  "docs/RELIABILITY.md": 12_000,
  "CHANGELOG.md": 8000,
};
const DESIGN_BYTES = 12_000;

Deno.test("docs: documents stay short enough to be read to the end", () => {
  const design = documents(join(ROOT, "docs/design")).map((path) =>
    [relative(ROOT, path), DESIGN_BYTES] as const
  );
  const long = [...Object.entries(SIZES), ...design]
    .filter(([path, most]) => Deno.statSync(join(ROOT, path)).size > most);
  assertEquals(long, []);
});

Deno.test("docs: the glossary has at most 40 terms, in alphabetical order", async () => {
  const rows = (await Deno.readTextFile(join(ROOT, "docs/GLOSSARY.md"))).match(/^\| .*$/gm)!.slice(2);
  const terms = rows.map((row) => row.split("|")[1].trim().toLowerCase());
  assertEquals(terms, terms.toSorted());
  assert(terms.length <= 40, `${terms.length} terms`);
});

Deno.test("docs: API.md lists every sampling setting", async () => {
  const rows = [
    "| field | allowed | default | meaning |",
    "| --- | --- | --- | --- |",
    ...SAMPLING_SETTINGS.map(samplingRow),
  ];
  await assertMade(
    "docs/API.md",
    /(?<=^<!-- sampling: .*\n)[^]*^(?=<!-- \/sampling)/m,
    `${rows.join("\n")}\n`,
  );
});

Deno.test("docs: API.md lists the parameters that are refused and ignored", async () => {
  const names = (list: readonly string[]) => list.map((name) => `\`${name}\``).join(", ");
  const rows = [
    "| what the server does | with |",
    "| --- | --- |",
    `| answers with a 400 that names the parameter, if the endpoint has no such field and the value is not neutral | ${
      names(REFUSED_NAMES)
    } |`,
    ...Object.entries(IGNORED).map(([subject, list]) =>
      `| ignores parameters about ${subject} | ${names(list)} |`
    ),
    "| warns, or answers 400 with `--strict-parameters` | any other |",
  ];
  await assertMade(
    "docs/API.md",
    /(?<=^<!-- parameters: .*\n)[^]*^(?=<!-- \/parameters)/m,
    `${rows.join("\n")}\n`,
  );
});

Deno.test("docs: MODELS.md lists the weight formats", async () => {
  const cpu = Object.keys(FORMATS).filter((type) => !isGpuType(type as TensorType));
  const types = `${GPU_TYPES.join(", ")}; on the CPU also ${cpu.join(", ")}`;
  await assertMade(
    "docs/MODELS.md",
    /^\| weights \|.*/m,
    `| weights | ${types}; in any mixture within a file |`,
  );
});

/** Compares a part of a document with its source, or writes it if UPDATE_SNAPSHOTS is set. */
async function assertMade(document: string, part: RegExp, made: string): Promise<void> {
  const path = join(ROOT, document);
  const text = await Deno.readTextFile(path);
  assert(part.test(text), `${document} has no ${part}`);
  const right = text.replace(part, () => made);
  if (Deno.env.get("UPDATE_SNAPSHOTS")) await Deno.writeTextFile(path, right);
  else assertEquals(text, right);
}

function samplingRow([, setting]: typeof SAMPLING_SETTINGS[number]): string {
  const { kind, default: unset, llamaServer, api: { name, min = 0, max = 0 } } = setting;
  const range = `${inPowers(min)} to ${inPowers(max)}`;
  const allowed = {
    number: range,
    whole: `whole number, ${range}`,
    texts: `up to ${LIMITS.breakers} texts of 1 to ${LIMITS.breakerCharacters} characters`,
    biases: `up to ${LIMITS.logitBiases} token ids, ${range} each`,
  }[kind];
  const shown = typeof unset === "number"
    ? unset
    : Array.isArray(unset)
    ? `\`${JSON.stringify(unset)}\``
    : kind === "biases"
    ? "none"
    : "random";
  const names = [name, llamaServer].filter((name) => name !== undefined).map((name) => `\`${name}\``);
  return `| ${names.join(" or ")} | ${allowed} | ${shown} | ${describeSampling(setting)} |`;
}

/** Returns a number as a power: `2^31 - 1` for 2147483647. */
function inPowers(value: number): string {
  const power = Math.round(Math.log2(Math.abs(value)));
  if (power < 20) return String(value);
  const rest = 2 ** power - Math.abs(value);
  return value < 0 ? `-2^${power} + ${rest}` : `2^${power} - ${rest}`;
}

/** The README, the documents in docs/, and the folders' notes. */
function documents(folder = ROOT): string[] {
  return [...Deno.readDirSync(folder)].flatMap(({ name, isDirectory }) => {
    const path = join(folder, name);
    if (!isDirectory) return name.endsWith(".md") ? [path] : [];
    return name.startsWith(".") || ["target", "node_modules", "dist"].includes(name) ? [] : documents(path);
  });
}

/** Links within the repository, outside of code. */
function linksOf(markdown: string): string[] {
  return [...withoutCode(markdown).matchAll(/\]\(([^()\s]+)\)/g)].map(([, link]) => link)
    .filter((link) => !/^[a-z]+:/.test(link));
}

/**
 * Anchors of the headings, as the usual sites make them: lower case, dashes for spaces, no other signs, numbers for
 * repetitions.
 */
function headingsOf(file: string): Set<string> {
  const found = new Map<string, number>();
  for (const [, heading] of withoutCode(Deno.readTextFileSync(file), false).matchAll(/^#{1,6} (.+)$/gm)) {
    const plain = heading.replace(/\[([^\]]*)\]\([^)]*\)/g, "$1");
    const anchor = plain.toLowerCase().replace(/[^\p{L}\p{N}\s_-]/gu, "").trim().replace(/\s/g, "-");
    const times = found.get(anchor) ?? 0;
    found.set(anchor, times + 1);
    if (times > 0) found.set(`${anchor}-${times}`, 1);
  }
  return new Set(found.keys());
}

function withoutCode(markdown: string, inline = true): string {
  const text = markdown.replace(/^ *```[\s\S]*?^ *```/gm, "");
  return inline ? text.replace(/`[^`\n]*`/g, "") : text;
}

function exists(path: string): boolean {
  try {
    Deno.statSync(path);
    return true;
  } catch {
    return false;
  }
}
