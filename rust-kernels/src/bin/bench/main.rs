//! Measures kernels and prints JSON. `deno task bench:kernels` runs it and explains the figures.
mod figures;
mod kernels;
mod operands;

use std::collections::HashMap;

/// The settings of a benchmark run, from the arguments `--name value`.
pub struct Settings(HashMap<String, String>);

impl Settings {
    fn read(args: impl Iterator<Item = String>) -> Result<Self, String> {
        let args: Vec<String> = args.collect();
        let pairs = args.chunks(2).map(|pair| match pair {
            [name, value] if name.starts_with("--") => Ok((name[2..].to_string(), value.clone())),
            _ => Err(format!("Found {pair:?}, wanted --name value")),
        });
        Ok(Self(pairs.collect::<Result<_, _>>()?))
    }

    pub fn text(&self, name: &str) -> Result<&str, String> {
        self.0.get(name).map(String::as_str).ok_or_else(|| format!("--{name} is missing"))
    }

    pub fn list(&self, name: &str) -> Result<Vec<&str>, String> {
        Ok(self.text(name)?.split(',').collect())
    }

    pub fn counts(&self, name: &str) -> Result<Vec<usize>, String> {
        self.list(name)?.into_iter().map(|text| count(name, text)).collect()
    }

    pub fn count(&self, name: &str) -> Result<usize, String> {
        count(name, self.text(name)?)
    }
}

fn count(name: &str, text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n @ 1..=1_000_000) => Ok(n),
        _ => Err(format!("--{name} must be a whole number from 1 to 1000000, found {text:?}")),
    }
}

/// Parses a shape such as `4096x1024`: rows x columns.
pub fn shape(text: &str) -> Result<(usize, usize), String> {
    let (rows, columns) = text.split_once('x').ok_or(format!("A shape is ROWSxCOLUMNS, found {text:?}"))?;
    Ok((count("shape", rows)?, count("shape", columns)?))
}

fn run() -> Result<(), String> {
    let settings = Settings::read(std::env::args().skip(1))?;
    let isa = settings.text("isa").unwrap_or("");
    let k = compy::simd::Isa::detect(isa).map_err(|e| e.to_string())?;
    kernels::measure(k, &settings)
}

fn main() {
    if let Err(message) = run() {
        eprintln!("{message}");
        std::process::exit(1);
    }
}
