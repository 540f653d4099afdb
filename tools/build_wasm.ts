/**
 * Builds the kernels and the decoders of images as WebAssembly, into modules that are committed (`deno task build:wasm`).
 * A custom section of a module holds a hash of its sources. A test compares it with the sources.
 */
import { fromFileUrl } from "@std/path";
import {
  hashSources,
  IMAGES,
  KERNELS,
  SOURCES_SECTION,
  type WasmModule,
  withSection,
} from "./wasm_sources.ts";

/** Features beyond WebAssembly's first version that the kernels use; docs/WASM.md lists the runtimes that have them. */
const FEATURES = [
  "simd128",
  "relaxed-simd",
  "atomics",
  "bulk-memory",
  "mutable-globals",
  "nontrapping-fptoint",
  "sign-ext",
];
/** Features that only the kernels use. */
const THREADS = ["relaxed-simd", "atomics"];
/** Bounds the memory of a module without threads. */
const BOUND = [`--max-memory=${2 ** 30}`];
/** Threads share one memory, which the host creates. Each thread has its own stack and variables. */
const LINK = [
  "--shared-memory",
  "--import-memory",
  `--initial-memory=${64 * 65_536}`,
  `--max-memory=${65_536 * 65_536}`,
  "-zstack-size=1048576",
  "--export=__stack_pointer",
  "--export=__wasm_init_tls",
  "--export=__tls_size",
];

/**
 * Runs cargo. Threads need a standard library with atomics, built from its source. RUSTC_BOOTSTRAP makes stable Rust do
 * that.
 */
async function cargo({ crate, threads }: WasmModule): Promise<boolean> {
  const features = threads ? FEATURES : FEATURES.filter((name) => !THREADS.includes(name));
  const flags = [
    `-Ctarget-feature=${features.map((name) => `+${name}`).join(",")}`,
    ...(threads ? LINK : BOUND).map((flag) => `-Clink-arg=${flag}`),
    // Keeps paths of the building machine out of the module.
    `--remap-path-prefix=${fromFileUrl(crate)}=`,
    `--remap-path-prefix=${Deno.env.get("HOME")}=`,
  ];
  const command = new Deno.Command("cargo", {
    args: "build --locked --lib --profile wasm --target wasm32-unknown-unknown -Z build-std=std,panic_abort"
      .split(" "),
    cwd: crate,
    env: { RUSTC_BOOTSTRAP: "1", CARGO_ENCODED_RUSTFLAGS: flags.join("\x1f") },
  });
  return (await command.spawn().status).success;
}

function say(text: string): void {
  Deno.stderr.writeSync(new TextEncoder().encode(text + "\n"));
}

async function main(): Promise<number> {
  for (const module of [KERNELS, IMAGES]) if (!await build(module)) return 1;
  return 0;
}

/** Returns false if cargo fails. */
async function build(made: WasmModule): Promise<boolean> {
  if (!await cargo(made)) {
    say(
      `Cannot build ${made.built}. It needs the standard library's source: rustup component add rust-src`,
    );
    return false;
  }
  const built = await Deno.readFile(new URL(`target/wasm32-unknown-unknown/wasm/${made.built}`, made.crate));
  const module = withSection(built, SOURCES_SECTION, await hashSources(made));
  await Deno.writeFile(made.file, module);
  const gzip = new Response(new Blob([module]).stream().pipeThrough(new CompressionStream("gzip")));
  say(`${fromFileUrl(made.file)}: ${module.length} bytes, ${(await gzip.bytes()).length} with gzip`);
  return true;
}

if (import.meta.main) Deno.exit(await main());
