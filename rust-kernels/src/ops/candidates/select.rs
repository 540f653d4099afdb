//! Selects the largest logits of a row.
use super::survey::{CHUNK, Row};

/// The selected candidates as (logit, token).
pub type Best = Vec<(f32, i32)>;

/// Puts the `k` largest logits into `best` as (logit, token), best first. Ties go to the lower token. NaN is never
/// selected.
pub fn select(row: &Row, k: usize, best: &mut Best) {
    best.clear();
    let least = least_of(row.maxima, k);
    // `best` collects up to 2k entries above `floor`. It is then cut back to k, which raises the floor.
    let mut floor = f32::NEG_INFINITY;
    for (c, (chunk, largest)) in row.logits.chunks(CHUNK).zip(row.maxima.iter()).enumerate() {
        if *largest < least || (best.len() >= k && *largest <= floor) {
            continue;
        }
        for (i, x) in chunk.iter().enumerate() {
            if *x >= least && (*x > floor || best.len() < k) {
                best.push((*x, (CHUNK * c + i) as i32));
                if best.len() == 2 * k {
                    floor = cut(best, k);
                }
            }
        }
    }
    cut(best, k);
    best.sort_unstable_by(order);
}

/// Returns a lower bound of the `k` best logits: at least k chunks have a logit this large.
fn least_of(maxima: &[f32], k: usize) -> f32 {
    if maxima.len() < k {
        return f32::NEG_INFINITY;
    }
    *maxima.to_vec().select_nth_unstable_by(k - 1, |a, b| b.total_cmp(a)).1
}

fn order(a: &(f32, i32), b: &(f32, i32)) -> std::cmp::Ordering {
    b.0.total_cmp(&a.0).then(a.1.cmp(&b.1))
}

/// Keeps the k best entries in any order. Returns the smallest kept logit.
fn cut(best: &mut Best, k: usize) -> f32 {
    if best.len() < k {
        return f32::NEG_INFINITY;
    }
    let floor = best.select_nth_unstable_by(k - 1, order).1.0;
    best.truncate(k);
    floor
}
