//! Writes FILE.metal beside each FILE.wgsl of a folder: `wgsl-to-msl FOLDER`. It uses naga, the compiler of Deno's
//! WebGPU, in the same version, so that Metal gets the same code. Overrides have the defaults of the source.
use naga::back::pipeline_constants::process_overrides;
use naga::back::{PipelineConstants, msl};
use naga::valid::{Capabilities, ValidationFlags, Validator};
use std::error::Error;
use std::path::Path;

fn translate(source: &str) -> Result<String, Box<dyn Error>> {
    let module = naga::front::wgsl::parse_str(source).map_err(|e| e.emit_to_string(source))?;
    let info = Validator::new(ValidationFlags::all(), Capabilities::all())
        .validate(&module)
        .map_err(|e| e.emit_to_string(source))?;
    let (module, info) = process_overrides(&module, &info, None, &PipelineConstants::default())?;
    let options = msl::Options { lang_version: (3, 0), fake_missing_bindings: true, ..Default::default() };
    Ok(msl::write_string(&module, &info, &options, &msl::PipelineOptions::default())?.0)
}

fn run(folder: &Path) -> Result<(), Box<dyn Error>> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "wgsl") {
            let text = translate(&std::fs::read_to_string(&path)?)
                .map_err(|e| format!("Cannot translate {}: {e}", path.display()))?;
            std::fs::write(path.with_extension("metal"), text)?;
        }
    }
    Ok(())
}

fn main() {
    let Some(folder) = std::env::args().nth(1) else {
        eprintln!("Usage: wgsl-to-msl FOLDER");
        std::process::exit(2);
    };
    if let Err(error) = run(Path::new(&folder)) {
        eprintln!("{error}");
        std::process::exit(1);
    }
}
