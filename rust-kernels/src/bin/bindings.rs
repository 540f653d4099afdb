//! Prints ffi/bindings.ts from the list of exports.
use compy::ffi::{ABI_VERSION, EXPORTS};

fn main() {
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
