//! Makes a number of calls and nothing else, for tools that count the instructions and cache misses of a whole
//! process.
use crate::operands::{Activations, Output, Weights, multiply};
use crate::techniques::{Rows, one_token_at_a_time};
use crate::{Settings, shape};
use compy::simd::Isa;

pub fn run(k: Isa, settings: &Settings) -> Result<(), String> {
    let (rows, columns) = shape(settings.text("shape")?)?;
    let m = settings.count("m")?;
    let how = settings.text("how")?;
    let w = Weights::new(k, settings.text("format")?, rows, columns, 0)?;
    let tile = if how == "token-by-token" { 1 } else { m.next_power_of_two().min(k.tile()) };
    let mut x = Activations::tiled(k, m, columns, tile);
    x.prepare(&w);
    let mut out = Output::new(m, rows);
    if how == "row-by-row" && (settings.text("format")?, m) != ("F32", 1) {
        return Err("--how row-by-row is of F32 and one token".into());
    }
    let rows = Rows::new(&w);
    for _ in 0..settings.count("calls")? {
        match how {
            "kernel" => multiply(&w, 0, &x, &mut out),
            "token-by-token" => one_token_at_a_time(&w, 0, &x, &mut out),
            "row-by-row" => rows.multiply(k, 0, &x, &mut out),
            _ => return Err(format!("--how must be kernel, token-by-token or row-by-row, found {how:?}")),
        }
    }
    Ok(())
}
