//! Each technique on and off: times the kernel with and without it, alternating in the same run.
mod attention;
mod formats;
mod passes;
mod tiles;

pub use self::tiles::{Rows, one_token_at_a_time};
use crate::Settings;
use crate::figures::{field, last_level_cache, median, quantile, seconds};
use crate::operands::{Activations, Output, Weights};
use crate::variants::{VARIANTS, Variants};
use compy::simd::Isa;

/// Qwen3-0.6B: widths of the model, of its queries, of its keys and of its gates.
const MODEL: usize = 1024;
const QUERIES: usize = 2048;
const KEYS: usize = 1024;
const GATES: usize = 3072;

/// Shorter work is repeated until a sample takes this long.
const SAMPLE_SECONDS: f64 = 1e-3;

struct Bench<'a> {
    k: Isa,
    off: &'static Variants,
    threads: usize,
    rounds: usize,
    /// Bytes of weights, more than any cache holds.
    total: usize,
    wanted: Vec<&'a str>,
    rows: Vec<String>,
}

pub fn measure(k: Isa, settings: &Settings) -> Result<(), String> {
    let threads = settings.count("threads")?;
    let mut bench = Bench {
        k,
        off: &VARIANTS,
        threads,
        rounds: settings.count("rounds")?,
        total: 2 * last_level_cache(),
        wanted: settings.list("only").unwrap_or_default(),
        rows: Vec::new(),
    };
    bench.no_float_copy()?;
    bench.explicit_vectors()?;
    bench.residual_in_place()?;
    bench.prefetch()?;
    bench.gemv_for_one()?;
    bench.parts_in_one_call()?;
    bench.column_tiles()?;
    bench.half_floats()?;
    bench.tiled()?;
    bench.common_prefix()?;
    bench.eight_bit_cache()?;
    println!(
        "{{\"kind\": \"techniques\", \"isa\": \"{}\", \"threads\": {threads}, \"rounds\": {}, \"rows\": [\n{}\n]}}",
        k.name(),
        bench.rounds,
        bench.rows.join(",\n")
    );
    Ok(())
}

/// The description of a comparison in a report.
struct Case<'a> {
    id: &'a str,
    what: &'a str,
    threads: usize,
    on: &'a str,
    off: &'a str,
}

impl Bench<'_> {
    fn wants(&self, id: &str) -> bool {
        self.wanted.is_empty() || self.wanted.contains(&id)
    }

    fn weights(&self, name: &str, rows: usize, columns: usize) -> Result<Weights, String> {
        Weights::new(self.k, name, rows, columns, self.total)
    }

    fn operands(&self, w: &Weights, m: usize) -> (Activations, Output) {
        let mut x = Activations::new(self.k, m, w.columns);
        x.prepare(w);
        (x, Output::new(m, w.rows))
    }

    /// Times `on` and `off` alternately. Each gets the number of the weights' copy to use.
    fn compare(&mut self, case: &Case, mut on: impl FnMut(usize), mut off: impl FnMut(usize)) {
        eprintln!("{}: {}", case.id, case.what);
        let (mut times, mut turn) = ([vec![], vec![]], 0);
        let threads = case.threads;
        let mut sample = |run: &mut dyn FnMut(usize), calls: usize| {
            seconds(threads, || {
                for _ in 0..calls {
                    run(turn);
                    turn += 1;
                }
            }) / calls as f64
        };
        let mut calls = [1; 2];
        let variants: [&mut dyn FnMut(usize); 2] = [&mut on, &mut off];
        for round in 0..=self.rounds {
            for i in 0..2 {
                // The order changes from round to round.
                let i = (i + round) % 2;
                let took = sample(variants[i], calls[i]);
                if round == 0 {
                    calls[i] = (SAMPLE_SECONDS / took).ceil().clamp(1.0, 1e4) as usize;
                } else {
                    times[i].push(took);
                }
            }
        }
        let gains: Vec<f64> = times[1].iter().zip(&times[0]).map(|(off, on)| off / on).collect();
        self.rows.push(format!(
            "{{\"id\": \"{}\", \"what\": \"{}\", \"threads\": {threads}, \"on\": \"{}\", \"off\": \"{}\", {}, {}, {}, {}, {}}}",
            case.id,
            case.what,
            case.on,
            case.off,
            field("on_us", 1e6 * median(&times[0])),
            field("off_us", 1e6 * median(&times[1])),
            field("gain", median(&gains)),
            field("gain_low", quantile(&gains, 0.25)),
            field("gain_high", quantile(&gains, 0.75)),
        ));
    }
}

/// Checks that both computed the same product. 8-bit activations may differ from floats by a few hundredths of the
/// largest value.
fn agree(on: &Output, off: &Output) -> Result<(), String> {
    let largest = on.values.iter().fold(0f32, |a, y| a.max(y.abs()));
    let apart = on.values.iter().zip(&off.values).fold(0f32, |a, (x, y)| a.max((x - y).abs()));
    if largest > 0.0 && apart <= 0.05 * largest {
        return Ok(());
    }
    Err(format!("The variants disagree: by {apart} where the largest value is {largest}"))
}
