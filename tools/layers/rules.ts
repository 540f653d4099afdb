/** The rules of the layout: which folders import which, how large folders and files are, and the exceptions. */

export interface Layer {
  readonly files: RegExp;
  /** The files of this repository that the layer's files may import. */
  readonly imports: RegExp;
  /** The reason, for the author of a change that breaks the rule. */
  readonly why: string;
}

/** The engine's core may import these interfaces of other folders only. */
const INTERFACES = String
  .raw`api\/|(tokenizer|grammar|chat)\/types\.ts$|models\/types\.ts$|cache\/disk\/types\.ts$|backend\/backend\.ts$`;

/** Layers of the repository. The first entry whose pattern matches a file counts. */
export const LAYERS: readonly Layer[] = [
  { files: /^package\.ts$/, imports: /^$/, why: "names and paths import nothing" },
  { files: /^main\.ts$/, imports: /^cli\//, why: "main.ts only starts the command line" },
  {
    files: /^examples\/browser\//,
    imports: /^lib\/model\.ts$/,
    why: "a page bundles the part of the library that runs in browsers",
  },
  {
    files: /^(examples|deploy)\//,
    imports: /^examples\//,
    why: 'examples are programs of users: they import "compy"',
  },
  { files: /^mod\.ts$/, imports: /^lib\//, why: "mod.ts lists the public names of lib/" },
  {
    files: /^lib\//,
    imports:
      /^(lib\/|routes\/|jobs\/|convert\/convert\.ts$|(tables\/tables|ffi\/(find|names|built|cargo|build_report|awaited))\.ts$|engine\/(answers\/|mod\.ts$|load\/|cache\/disk\/admin\.ts$|models\/(folder|pool|slot)\.ts$))/,
    why: "the library combines engine, routes and jobs through their public modules",
  },
  {
    files: /^cli\/shared\//,
    imports: /^(cli\/(shared|commands\.ts$)|lib\/|hub\/mod\.ts$)/,
    why: "shared command code knows no command",
  },
  {
    files: /^cli\//,
    imports: /^((lib|cli|bench)\/|(hub\/mod|doctor\/doctor|doctor\/checks\/limits)\.ts$)/,
    why: "commands use the library and the public modules of hub, doctor and bench",
  },
  {
    files: /^routes\/(core|access|metrics|listener)\//,
    imports:
      /^(routes\/(core|access|metrics|listener|generation)\/|engine\/(answers\/|mod\.ts$)|jobs\/(service\/(service|response_store)|types|json_depth|written_numbers)\.ts$)/,
    why: "what all endpoints share knows none of them",
  },
  {
    files: /^routes\/generation\//,
    imports:
      /^(routes\/(core|access|metrics|generation)\/|engine\/(answers\/|mod\.ts$)|jobs\/(service\/response_store|json_depth)\.ts$)/,
    why: "what generating endpoints share knows none of them",
  },
  ...["openai", "anthropic", "llama_server", "ollama"].map((dialect) => ({
    files: new RegExp(`^routes/${dialect}/`),
    imports: new RegExp(
      `^(routes/(core|access|metrics|generation|${dialect})/|routes/generations\\.ts$|engine/(answers/|mod\\.ts$)|jobs/(service/response_store|types)\\.ts$)`,
    ),
    why: "an API dialect knows what endpoints share, and no other dialect",
  })),
  {
    files: /^routes\//,
    imports:
      /^(routes\/|engine\/mod\.ts$|jobs\/(service\/(service|response_store)|types|json_depth|written_numbers)\.ts$)/,
    why: "HTTP knows the engine's interface and the batch service, and nothing behind them",
  },
  {
    files: /^tables\//,
    imports:
      /^(tables\/|jobs\/((input|outputs|output_form|lines|results|errors|check|answers|asked|json_depth)|journal\/storage|run\/dispatch)\.ts$)/,
    why: "tables become lines of a job and answers become tables: they know no model and no endpoint",
  },
  {
    files: /^jobs\/nats\//,
    imports:
      /^jobs\/(nats\/|(answers|errors|model_identity|written_numbers)\.ts$|run\/(runner|dispatch|probe)\.ts$)/,
    why: "workers and coordinators replace an engine: they know the runner's interface, not its parts",
  },
  {
    files: /^jobs\//,
    imports: /^(jobs\/(?!nats\/)|engine\/mod\.ts$|ffi\/runtime\.ts$)/,
    why: "jobs know the engine's interface, and do not know who answers their lines",
  },
  { files: /^engine\/mod\.ts$/, imports: /^engine\//, why: "mod.ts lists the engine's public names" },
  {
    files: /^engine\/api\//,
    imports: new RegExp(`^engine/(${INTERFACES})`),
    why: "the engine's interface imports types only",
  },
  {
    files: /^engine\/load\//,
    imports: /^engine\/(?!mod\.ts)/,
    why: "loading puts the engine's parts together and needs nothing beyond the engine",
  },
  {
    files: /^engine\/(loop|schedule|cache|sampling|output|speculation)\//,
    imports: new RegExp(
      `^(engine/(${INTERFACES}|(loop|schedule|cache|sampling|output|speculation)/)|ffi/runtime\\.ts$)`,
    ),
    why: "the engine's core knows tokenizers, grammars, chats and backends by their interfaces only",
  },
  {
    files: /^engine\/vision\//,
    imports: new RegExp(
      `^(engine/(vision/|gguf/|plan/|pacing/|schedule/images\\.ts$|${INTERFACES})|package\\.ts$)`,
    ),
    why: "a tower is a plan of its own, and gives the core rows",
  },
  {
    files: /^engine\/answers\//,
    imports: new RegExp(`^engine/(answers/|${INTERFACES})`),
    why: "answers are built from the events that an engine publishes",
  },
  {
    files: /^engine\/models\//,
    imports: new RegExp(`^engine/(models/|${INTERFACES}|gguf/shards\\.ts$)`),
    why: "the pool knows engines by their interface, and how shards are named",
  },
  {
    files: /^convert\//,
    imports: /^(convert\/|engine\/(gguf|tokenizer|architectures|chat\/template|vision)\/)/,
    why: "the converter knows file formats and checks its result with the readers; it computes nothing",
  },
  {
    files: /^engine\/pacing\//,
    imports: /^engine\/pacing\//,
    why: "any code may do its work in slices, so pacing knows none",
  },
  { files: /^engine\/gguf\//, imports: /^engine\/gguf\//, why: "the reader imports nothing else" },
  {
    files: /^engine\/tokenizer\//,
    imports: /^engine\/(tokenizer|gguf)\//,
    why: "tokenizers know the file's metadata and nothing else of the engine",
  },
  {
    files: /^engine\/architectures\//,
    imports: /^engine\/(architectures|plan|gguf)\//,
    why: "architectures know the plan builder and metadata, and no backend",
  },
  {
    files: /^engine\/plan\//,
    imports: /^engine\/(plan\/|gguf\/|backend\/backend\.ts$)/,
    why: "plans know the file and the backends' interface",
  },
  {
    files: /^engine\/backend\/backend\.ts$/,
    imports: /^engine\/(plan|gguf)\//,
    why: "the interface knows no backend",
  },
  {
    files: /^engine\/backend\/choose\.ts$/,
    imports: /^engine\/(backend|plan|gguf)\//,
    why: "backends are chosen here and nowhere else",
  },
  {
    files: /^engine\/backend\/cpu\//,
    imports: /^(engine\/(backend\/(backend\.ts$|cpu\/)|plan\/|gguf\/)|ffi\/)/,
    why: "the CPU backend runs plans on the kernels and knows no other backend",
  },
  {
    files: /^engine\/backend\/wasm\//,
    imports:
      /^(engine\/(backend\/(backend\.ts$|wasm\/|cpu\/(step|weight)_words\.ts$)|plan\/|gguf\/)|package\.ts$)/,
    why: "WebAssembly runs the same kernels as the CPU backend, with the same step encoding",
  },
  {
    files: /^engine\/backend\/webgpu\//,
    imports: /^(engine\/(backend\/(backend\.ts$|webgpu\/)|plan\/|gguf\/)|package\.ts$)/,
    why: "the GPU backend runs plans and knows no other backend",
  },
  {
    files: /^engine\/grammar\//,
    imports: /^(engine\/(grammar\/|tokenizer\/types\.ts$|pacing\/fair_turns\.ts$)|ffi\/)/,
    why: "grammars know the vocabulary, the turns of their compilers and their own library",
  },
  {
    files: /^engine\/chat\/template\//,
    imports: /^engine\/(chat\/template|tokenizer|gguf)\//,
    why: "templates know metadata and tokenizers",
  },
  {
    files: /^engine\/chat\//,
    imports: /^engine\/(chat\/|grammar\/types\.ts$|tokenizer\/types\.ts$)/,
    why: "chat formats know templates and tokenizers by their interface",
  },
  { files: /^ffi\//, imports: /^ffi\//, why: "the bindings import nothing else" },
  {
    files: /^hub\//,
    imports:
      /^(hub\/|engine\/load\/load\.ts$|engine\/models\/folder\.ts$|engine\/gguf\/(reader|cursor|errors|types)\.ts$)/,
    why: "hubs know files and headers, and ask the engine how much memory a model needs",
  },
  {
    files: /^doctor\//,
    imports: /^(doctor\/|ffi\/|engine\/(mod\.ts$|load\/|models\/folder\.ts$))/,
    why: "the doctor checks the machine, the libraries and the engine, and no server",
  },
  { files: /^bench\//, imports: /^(bench|engine)\//, why: "the bench command measures the engine" },
  {
    files: /^lab\//,
    imports: /^(lab|bench|engine)\//,
    why: "experiments measure the engine; nothing needs them",
  },
  {
    files: /^tools\//,
    imports: /^(tools|engine|ffi)\//,
    why: "tools serve development; no command needs them",
  },
];

/** Path of the file with names, and with the paths of files that come with compy. */
export const PACKAGE = "package.ts";
/**
 * Files that every file may import: names and paths, errors whose messages the outer folders word for their readers,
 * and pauses of long work.
 */
export const SHARED: readonly string[] = [PACKAGE, "engine/api/errors.ts", "engine/pacing/pauses.ts"];

/** Files that are not packed, and the one file that knows where compy is installed. */
export const FINDS_ITSELF = /^(package\.ts$|tools\/|bench\/|lab\/)/;

/** Tests and their helpers, which may import more than the sources around them. */
export const TEST =
  /^(tests|testing|tools\/parity)\/|_test\.ts$|(^|\/)testing[^/]*\.ts$|(^|\/)bad_files\.ts$/;

/** Folders of experiments and campaigns, which tests must not import. */
export const NOT_FOR_TESTS = /^(lab|tests\/campaigns)\//;

export const MAX_FILES = 20;
export const MAX_LINES = 400;

/** Exceptions from the rules, each with its reason. */
export const EXCEPTIONS: readonly {
  readonly path: RegExp;
  readonly rule: "files" | "lines" | "cycle";
  readonly why: string;
}[] = [
  { path: /^engine\/plan\/ops$/, rule: "files", why: "one op is one file, listed in registry.ts" },
  { path: /^engine\/chat\/formats$/, rule: "files", why: "one chat format is one file" },
  {
    path: /^engine\/cache\/kv_cache\.ts$/,
    rule: "lines",
    why: "one class holds the invariants of the block pool",
  },
];
