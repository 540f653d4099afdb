/** Holds the rules of who may import whom (`deno task layers`). Tests may import anything; nothing imports tests. */
import { fromFileUrl, join, relative } from "@std/path";

interface Layer {
  readonly files: RegExp;
  /** What these files may import, of this repository. */
  readonly imports: RegExp;
  /** Why, in a few words, for who breaks the rule. */
  readonly why: string;
}

/** The first that matches a file counts. */
const LAYERS: readonly Layer[] = [
  { files: /^package\.ts$/, imports: /^$/, why: "names and paths stand alone" },
  { files: /^main\.ts$/, imports: /^cli\//, why: "main.ts only starts the command line" },
  {
    files: /^examples\/browser\//,
    imports: /^lib\/model\.ts$/,
    why: "a page bundles the part of the library that browsers can read",
  },
  {
    files: /^(examples|deploy)\//,
    imports: /^examples\//,
    why: 'examples, and what is deployed, are programs of others: they import "compy"',
  },
  { files: /^mod\.ts$/, imports: /^lib\//, why: "mod.ts only names what of lib/ is public" },
  {
    files: /^lib\//,
    imports:
      /^(lib\/|routes\/|jobs\/|(tables\/tables|ffi\/(find|names|built|cargo|build_report|awaited))\.ts$|engine\/(answers\/|(types|load|load_reloading|coming_kernels|inspect|fingerprint|convert\/convert|prompt_cache\/admin|models\/(folder|pool|slot))\.ts$))/,
    why: "the library puts together what the engine, the routes and the jobs give, by their public faces",
  },
  {
    files: /^cli\//,
    imports: /^((lib|cli|bench)\/|(hub\/mod|doctor\/doctor)\.ts$)/,
    why:
      "commands stand on the library, and on the faces of what stands beside it; what is behind it they do not see",
  },
  {
    files: /^routes\/shared\//,
    imports: /^(routes\/shared\/|engine\/(answers\/|types\.ts$)|jobs\/(service|types|json_depth)\.ts$)/,
    why: "what endpoints share knows none of them",
  },
  {
    files: /^routes\/endpoints\//,
    imports: /^(routes\/shared\/|routes\/generations\.ts$|engine\/(answers\/|types\.ts$)|jobs\/types\.ts$)/,
    why: "an endpoint knows what endpoints share, and no other endpoint",
  },
  {
    files: /^routes\//,
    imports: /^(routes\/|engine\/types\.ts$|jobs\/(service|types|json_depth)\.ts$)/,
    why: "HTTP knows the engine's types, the batch service and nothing behind them",
  },
  {
    files: /^tables\//,
    imports:
      /^(tables\/|jobs\/(input|outputs|lines|results|storage|errors|check|answers|dispatch|asked|json_depth)\.ts$)/,
    why: "tables become the lines of a job, and its answers tables; they know no model and no endpoint",
  },
  {
    files: /^jobs\/nats\//,
    imports: /^jobs\/(nats\/|(answers|errors|runner|dispatch|probe|model_identity)\.ts$)/,
    why:
      "workers and coordinators stand where an engine does; they know the runner's interface, not its parts",
  },
  {
    files: /^jobs\//,
    imports: /^(jobs\/(?!nats\/)|engine\/types\.ts$|ffi\/runtime\.ts$)/,
    why: "jobs know the engine's types and nothing behind them, and not who answers their lines",
  },
  {
    files: /^engine\/(load|load_draft|load_reloading|inspect|fingerprint|size|machine)\.ts$/,
    imports: /^engine\//,
    why: "this is where the engine's parts are put together; they need nothing beyond it",
  },
  {
    files: /^engine\/[^/]+$/,
    imports:
      /^engine\/((?!load\.ts|load_draft\.ts|load_reloading\.ts|inspect\.ts|fingerprint\.ts|machine\.ts)[^/]+|(tokenizer|grammar|chat)\/types\.ts|models\/(types|loaded_models)\.ts|speculation\/(choose|drafter|speculation)\.ts|prompt_cache\/types\.ts|backend\/backend\.ts)$/,
    why:
      "the engine's core knows tokenizers, grammars, chats and backends by their interfaces, and nothing of files and plans",
  },
  {
    files: /^engine\/speculation\//,
    imports: /^engine\/(speculation\/|[^/]+\.ts$|backend\/backend\.ts$)/,
    why: "drafts are for sequences and steps, and know backends by their interface",
  },
  {
    files: /^engine\/answers\//,
    imports: /^engine\/(answers\/|types\.ts$)/,
    why: "answers are read from what an engine publishes, for whoever shows them",
  },
  {
    files: /^engine\/models\//,
    imports: /^engine\/(models\/|types\.ts$|gguf\/shards\.ts$)/,
    why:
      "what a server offers is made of engines, and of who loads them; of their files it knows how shards are called",
  },
  {
    files: /^engine\/convert\//,
    imports: /^engine\/(convert|gguf|tokenizer|architectures)\//,
    why: "the converter knows files, and asks who reads them whether they are sound; it computes nothing",
  },
  { files: /^engine\/gguf\//, imports: /^engine\/gguf\//, why: "the reader stands alone" },
  {
    files: /^engine\/tokenizer\//,
    imports: /^engine\/(tokenizer|gguf)\//,
    why: "tokenizers know the file's metadata and nothing of the engine",
  },
  {
    files: /^engine\/architectures\//,
    imports: /^engine\/(architectures|plan|gguf)\//,
    why: "architectures know the plan builder and metadata, nothing of backends",
  },
  {
    files: /^engine\/plan\//,
    imports: /^engine\/(plan\/|gguf\/|backend\/backend\.ts$)/,
    why: "plans know the file and the backends' interface",
  },
  {
    files: /^engine\/backend\/backend\.ts$/,
    imports: /^engine\/(plan|gguf)\//,
    why: "the interface knows none of the backends behind it",
  },
  {
    files: /^engine\/backend\/choose\.ts$/,
    imports: /^engine\/(backend|plan|gguf)\//,
    why: "backends are chosen here, and here alone",
  },
  {
    files: /^engine\/backend\/cpu\//,
    imports: /^(engine\/(backend\/(backend\.ts$|cpu\/)|plan\/|gguf\/)|ffi\/)/,
    why: "the CPU backend runs plans on the kernels and knows no other backend",
  },
  {
    files: /^engine\/backend\/wasm\//,
    imports:
      /^(engine\/(backend\/(backend\.ts$|wasm\/|cpu\/(step|factor)_words\.ts$)|plan\/|gguf\/)|package\.ts$)/,
    why: "WebAssembly runs the kernels of the CPU's backend, and is told of steps in the same words",
  },
  {
    files: /^engine\/backend\/webgpu\//,
    imports: /^(engine\/(backend\/(backend\.ts$|webgpu\/)|plan\/|gguf\/)|package\.ts$)/,
    why: "the GPU's backend runs plans and knows no other backend; only the CPU's calls the kernels",
  },
  {
    files: /^engine\/grammar\//,
    imports: /^(engine\/(grammar\/|tokenizer\/types\.ts$)|ffi\/)/,
    why: "grammars know the vocabulary and their own library, and nothing of the engine",
  },
  {
    files: /^engine\/chat\//,
    imports: /^engine\/(chat\/|grammar\/types\.ts$|tokenizer\/types\.ts$)/,
    why: "chat forms know templates and tokenizers by their interface, and nothing of the engine",
  },
  {
    files: /^engine\/prompt_cache\//,
    imports: /^(engine\/prompt_cache\/|ffi\/runtime\.ts$)/,
    why: "what keeps prompts on a disk knows names and bytes, and nothing of the engine",
  },
  { files: /^ffi\//, imports: /^ffi\//, why: "the kernels' bindings stand alone" },
  {
    files: /^hub\//,
    imports:
      /^(hub\/|engine\/load\.ts$|engine\/models\/folder\.ts$|engine\/gguf\/(reader|cursor|errors|types)\.ts$)/,
    why: "hubs know files and their headers, and ask the engine what a model needs; they run nothing",
  },
  {
    files: /^doctor\//,
    imports: /^(doctor\/|ffi\/|engine\/(types|load|machine|free_memory|models\/folder)\.ts$)/,
    why: "the doctor looks at the machine, the libraries and the engine by its public face, and at no server",
  },
  { files: /^bench\//, imports: /^(bench|engine)\//, why: "benchmarks measure the engine's parts" },
  {
    files: /^tools\//,
    imports: /^(tools|engine|ffi)\//,
    why: "tools serve development; no command needs them",
  },
];

/** What everybody may import: names, and where the files that come with compy stand. */
const SHARED = "package.ts";

/** What is not packed, and the one file that knows where compy stands. */
const FINDS_ITSELF = /^(package\.ts$|tools\/|bench\/)/;

const TEST = /^(tests|tools\/parity)\/|_test\.ts$|(^|\/)testing[^/]*\.ts$|(^|\/)bad_files\.ts$/;

/** What is wrong with a file's imports, in words. `file` is its path from the repository's root. */
export function check(file: string, source: string): string[] {
  if (TEST.test(file)) return [];
  const layer = LAYERS.find(({ files }) => files.test(file));
  if (!layer) return [`${file} belongs to no layer; add its folder to tools/layers.ts`];
  const own = FINDS_ITSELF.test(file) ? [] : pathsOf(file, source);
  return [
    ...own,
    ...importsOf(file, source).flatMap((target) => {
      if (TEST.test(target)) {
        return [`${file} imports ${target}: only tests may import what tests are made of`];
      }
      return target === SHARED || layer.imports.test(target)
        ? []
        : [`${file} imports ${target}: ${layer.why}`];
    }),
  ];
}

/** Paths that a bundle would break: its modules stand elsewhere. */
function pathsOf(file: string, source: string): string[] {
  if (!/\bimport\.meta\.(url|dirname|filename|resolve)\b/.test(withoutComments(source))) return [];
  return [`${file} asks where it stands: files that come with compy are found by shipped() of ${SHARED}`];
}

/** The files of this repository that a source imports, by their paths from its root. */
export function importsOf(file: string, source: string): string[] {
  return [...withoutComments(source).matchAll(/\b(?:from|import)\s*\(?\s*"(\.[^"]*)"/g)]
    .map(([, target]) => new URL(target, `file:///${file}`).pathname.slice(1));
}

function withoutComments(source: string): string {
  return source.replace(/\/\*.*?\*\/|(?<!:)\/\/[^\n]*/gs, "");
}

const NOT_SOURCE = new Set(["dist", "node_modules", "target"]);

/** TypeScript files under a folder, without what is built or fetched. */
async function* sources(folder: string): AsyncGenerator<string> {
  for await (const { name, isDirectory } of Deno.readDir(folder)) {
    if (name.startsWith(".") || NOT_SOURCE.has(name)) continue;
    if (isDirectory) yield* sources(join(folder, name));
    else if (name.endsWith(".ts")) yield join(folder, name);
  }
}

async function main(): Promise<number> {
  const root = fromFileUrl(new URL("..", import.meta.url));
  const problems: string[] = [];
  for await (const path of sources(root)) {
    const file = relative(root, path).replaceAll("\\", "/");
    problems.push(...check(file, await Deno.readTextFile(path)));
  }
  for (const problem of problems) Deno.stderr.writeSync(new TextEncoder().encode(`${problem}\n`));
  return problems.length > 0 ? 1 : 0;
}

if (import.meta.main) Deno.exit(await main());
