//! Measures every combination of format, number of rows and shape, with weights in memory and in cache, and compares it
//! with the machine's limits.
use crate::figures::{Limits, field, largest, last_level_cache, median, seconds};
use crate::operands::{Activations, Output, Weights, format_named, multiply};
use crate::{Settings, shape};
use compy::pool::Pool;
use compy::simd::Isa;

/// Shorter work is repeated until a sample takes this long.
const SAMPLE_SECONDS: f64 = 3e-4;
/// Weights that fit in a thread's second-level cache and leave room for activations.
const CACHED_BYTES: usize = 384 << 10;

/// The rates for one number of rows (m), one sample per round.
struct Cell {
    m: usize,
    gbps: Vec<f64>,
    gops: Vec<f64>,
}

struct Row {
    activations: Activations,
    out: Output,
    /// Calls per sample.
    calls: usize,
    cell: Cell,
}

/// Where the weights are: in memory or in cache.
#[derive(Clone, Copy)]
enum Place {
    Memory,
    Cache,
}

/// Runs the whole sweep.
pub fn measure(k: Isa, settings: &Settings) -> Result<(), String> {
    let cache = last_level_cache();
    let (rounds, ms) = (settings.count("rounds")?, settings.counts("m")?);
    let (mut limits, mut rows) = (Vec::new(), Vec::new());
    for threads in settings.counts("threads")? {
        let mut pool = Pool::new(threads).map_err(|e| format!("Cannot start {threads} threads: {e}"))?;
        let mut probe = Limits::new(threads, 2 * cache)?;
        let (mut seen, mut done) = ([vec![], vec![], vec![]], Vec::new());
        for text in settings.list("shapes")? {
            let (height, columns) = shape(text)?;
            for name in settings.list("formats")? {
                for place in [Place::Memory, Place::Cache] {
                    let w = weights(k, name, height, columns, place, threads, cache)?;
                    eprintln!("{threads} threads, {text}, {name}");
                    let cells = sweep(k, &mut pool, &w, &ms, rounds, &mut probe, &mut seen);
                    done.extend(cells.into_iter().map(|cell| (cell, text, name, place)));
                }
            }
        }
        let [read, int8, f32] = seen;
        let best = [largest(&read), largest(&int8), largest(&f32)];
        for (cell, text, name, place) in &done {
            rows.push(as_json(cell, threads, text, name, *place, &best)?);
        }
        limits.push(format!(
            "{{\"threads\": {threads}, {}, {}, {}}}",
            field("read_gbps", best[0]),
            field("int8_gops", best[1]),
            field("f32_gflops", best[2]),
        ));
    }
    println!(
        "{{\"kind\": \"kernels\", \"isa\": \"{}\", \"cache_bytes\": {cache}, \"rounds\": {rounds}, \"limits\": [{}],\n\"rows\": [\n{}\n]}}",
        k.name(),
        limits.join(", "),
        rows.join(",\n")
    );
    Ok(())
}

fn weights(
    k: Isa,
    name: &str,
    rows: usize,
    columns: usize,
    place: Place,
    threads: usize,
    cache: usize,
) -> Result<Weights, String> {
    match place {
        Place::Memory => Weights::new(k, name, rows, columns, 2 * cache),
        Place::Cache => {
            let panel = (format_named(name)?.panel_bytes)(columns, k.lanes());
            // At least twelve panels per thread: whole register tiles for kernels with one to four panels.
            let panels = (CACHED_BYTES * threads / panel).max(12 * threads).min(rows / k.lanes()) / 12 * 12;
            Weights::new(k, name, panels.max(1) * k.lanes(), columns, 0)
        }
    }
}

/// Each round samples the limits, then every m.
#[allow(clippy::too_many_arguments)]
fn sweep(
    k: Isa,
    pool: &mut Pool,
    w: &Weights,
    ms: &[usize],
    rounds: usize,
    probe: &mut Limits,
    seen: &mut [Vec<f64>; 3],
) -> Vec<Cell> {
    let (mut turn, threads) = (0, pool.threads());
    let mut rows: Vec<Row> = ms.iter().map(|&m| row(k, pool, w, m)).collect();
    for _ in 0..rounds {
        let limits = probe.sample(k, pool);
        for (all, limit) in seen.iter_mut().zip(limits) {
            all.push(limit);
        }
        for Row { activations, out, calls, cell } in &mut rows {
            let took = seconds(threads, || {
                for _ in 0..*calls {
                    multiply(pool, w, out, turn, activations);
                    turn += 1;
                }
            }) / *calls as f64;
            let gbps = w.bytes as f64 / took / 1e9;
            let gops = 2.0 * (w.rows * w.columns * activations.m) as f64 / took / 1e9;
            cell.gbps.push(gbps);
            cell.gops.push(gops);
        }
    }
    rows.into_iter().map(|row| row.cell).collect()
}

fn row(k: Isa, pool: &mut Pool, w: &Weights, m: usize) -> Row {
    let mut activations = Activations::new(k, m, w.columns);
    activations.prepare(w);
    let mut out = Output::new(m, w.rows);
    let threads = pool.threads();
    let mut call = || seconds(threads, || multiply(pool, w, &mut out, 0, &activations));
    call();
    let calls = (SAMPLE_SECONDS / call()).ceil().clamp(1.0, 1e4) as usize;
    Row { activations, out, calls, cell: Cell { m, gbps: vec![], gops: vec![] } }
}

/// Shares compare the best sample of the kernel with the best sample of the limits.
fn as_json(
    cell: &Cell,
    threads: usize,
    shape: &str,
    format: &str,
    place: Place,
    best: &[f64; 3],
) -> Result<String, String> {
    let (gbps, gops) = (largest(&cell.gbps), largest(&cell.gops));
    let peak = if format_named(format)?.is_block() { best[1] } else { best[2] };
    let place = match place {
        Place::Memory => "memory",
        Place::Cache => "cache",
    };
    let figures = [
        field("gbps", median(&cell.gbps)),
        field("gbps_best", gbps),
        field("gops", median(&cell.gops)),
        field("gops_best", gops),
        field("share_of_bandwidth", gbps / best[0]),
        field("share_of_peak", gops / peak),
    ];
    Ok(format!(
        "{{\"threads\": {threads}, \"shape\": \"{shape}\", \"format\": \"{format}\", \"weights_in\": \"{place}\", \"m\": {}, {}}}",
        cell.m,
        figures.join(", ")
    ))
}
