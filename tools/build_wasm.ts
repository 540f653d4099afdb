/**
 * Builds the kernels as WebAssembly into engine/backend/wasm/compy.wasm, which is committed (`deno task build:wasm`). A
 * custom section of the module holds a hash of its sources. A test compares it with the sources.
 */
import { fromFileUrl } from "@std/path";
import { hashSources, SOURCES_SECTION, wasmFile, withSection } from "./wasm_sources.ts";

const CRATE = new URL("../rust-kernels/", import.meta.url);
const BUILT = new URL("target/wasm32-unknown-unknown/wasm/compy.wasm", CRATE);

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
async function cargo(): Promise<boolean> {
  const flags = [
    `-Ctarget-feature=${FEATURES.map((name) => `+${name}`).join(",")}`,
    ...LINK.map((flag) => `-Clink-arg=${flag}`),
    // Keeps paths of the building machine out of the module.
    `--remap-path-prefix=${fromFileUrl(CRATE)}=`,
    `--remap-path-prefix=${Deno.env.get("HOME")}=`,
  ];
  const command = new Deno.Command("cargo", {
    args: "build --locked --lib --profile wasm --target wasm32-unknown-unknown -Z build-std=std,panic_abort"
      .split(" "),
    cwd: CRATE,
    env: { RUSTC_BOOTSTRAP: "1", CARGO_ENCODED_RUSTFLAGS: flags.join("\x1f") },
  });
  return (await command.spawn().status).success;
}

function say(text: string): void {
  Deno.stderr.writeSync(new TextEncoder().encode(text + "\n"));
}

async function main(): Promise<number> {
  if (!await cargo()) {
    say(
      "Cannot build the kernels as WebAssembly. It needs the standard library's source: rustup component add rust-src",
    );
    return 1;
  }
  const module = withSection(await Deno.readFile(BUILT), SOURCES_SECTION, await hashSources());
  await Deno.writeFile(wasmFile, module);
  const gzip = new Response(new Blob([module]).stream().pipeThrough(new CompressionStream("gzip")));
  say(`${fromFileUrl(wasmFile)}: ${module.length} bytes, ${(await gzip.bytes()).length} with gzip`);
  return 0;
}

if (import.meta.main) Deno.exit(await main());
