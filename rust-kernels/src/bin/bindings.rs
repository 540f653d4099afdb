//! Prints generated TypeScript: `bindings` prints ffi/bindings.ts, `formats` prints engine/gguf/formats.ts.
use compy::ffi::{ABI_VERSION, EXPORTS};
use compy::formats::FORMATS;

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("bindings") => bindings(),
        Some("formats") => formats(),
        _ => {
            eprintln!("usage: bindings bindings|formats");
            std::process::exit(2);
        }
    }
}

fn formats() {
    println!("// Generated from rust-kernels/src/formats/ by `deno task bindings`; do not edit.\n");
    println!("/**");
    println!(
        " * The tensor types that compy computes with: ggml's type id, elements and bytes of a block in the file, and"
    );
    println!(" * whether the kernels multiply by f32 activations instead of 8-bit blocks.");
    println!(" */");
    println!("export const FORMATS = {{");
    let mut formats: Vec<_> = FORMATS.iter().collect();
    formats.sort_by_key(|f| f.id);
    for f in formats {
        let (id, elements, bytes, float) = (f.id, f.block_columns, f.block_bytes, !f.is_block());
        println!("  {}: {{ id: {id}, elements: {elements}, bytes: {bytes}, float: {float} }},", f.name);
    }
    println!("}} as const;");
}

fn bindings() {
    println!("// Generated from rust-kernels/src/ffi.rs by `deno task bindings`; do not edit.\n");
    println!("/** Changes whenever an export's meaning or a message's layout does. */");
    println!("export const ABI_VERSION = {ABI_VERSION};\n");
    println!("const parameters = [\"u64\", \"buffer\", \"usize\", \"buffer\", \"usize\"] as const;\n");
    println!(
        "/** Handle, input and its length, output and its length; the result is bytes written, or -1 - n for a message. */"
    );
    println!("export const SYMBOLS = {{");
    for e in EXPORTS {
        let lines: Vec<_> = e.doc.lines().map(str::trim).collect();
        println!("  /** {} */", lines.join(" "));
        let extra = if e.nonblocking { ", nonblocking: true" } else { "" };
        println!("  {}: {{ parameters, result: \"i32\"{extra} }},", e.name);
    }
    println!("}} as const;");
}
