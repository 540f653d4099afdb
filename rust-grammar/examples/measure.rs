use compy_grammar::*;
use std::sync::Arc;
use std::time::Instant;
fn main() {
    let data = std::fs::read("/tmp/grammar/qwen3.vocab").unwrap();
    let u = |i: usize| u32::from_le_bytes(data[i * 4..i * 4 + 4].try_into().unwrap());
    let (n, e) = (u(0) as usize, u(1) as usize);
    let ends: Vec<u32> = (0..e).map(|i| u(2 + i)).collect();
    let mut off = (2 + e + n) * 4;
    let words: Vec<Vec<u8>> = (0..n)
        .map(|i| {
            let l = u(2 + e + i) as usize;
            let w = data[off..off + l].to_vec();
            off += l;
            w
        })
        .collect();
    let t = Instant::now();
    let v = Arc::new(Vocabulary::new(words, &ends).unwrap());
    println!("factory {:?}", t.elapsed());
    let limits = Limits { milliseconds: 1000, grammar_size: 100_000, initial_lexer_fuel: 1_000_000, step_lexer_fuel: 200_000, lexer_states: 10_000, items_in_row: 1000, step_items: 50_000 };
    let schema = r#"{"grammars":[{"name":"a","json_schema":{"x-guidance":{"whitespace_flexible":false,"item_separator":", ","key_separator":": "},"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"},"tags":{"type":"array","items":{"enum":["red","green","blue"]}}},"required":["name","age","tags"],"additionalProperties":false}}]}"#;
    let arg = std::env::args().nth(1).map(|p| std::fs::read_to_string(p).unwrap());
    let schema = arg.as_deref().unwrap_or(schema);
    for _ in 0..3 {
        let t = Instant::now();
        let g = Grammar::compile(v.clone(), schema.as_bytes(), limits).unwrap();
        println!("compile {:?} bytes {}", t.elapsed(), g.bytes());
    }
    let g = Grammar::compile(v.clone(), schema.as_bytes(), limits).unwrap();
    let mut rng = 12345u64;
    let mut all = vec![];
    let mut per: Vec<Vec<u128>> = vec![];
    let mut m = Matcher::new(&g);
    for a in 0..30 {
        if a > 0 || true { let t = Instant::now(); m = Matcher::new(&g); if a < 2 { println!("matcher {:?}", t.elapsed()); } }
        let mut times = vec![];
        for _ in 0..100 {
            if m.complete() { break; }
            let t = Instant::now();
            let mut mask = vec![0u32; n.div_ceil(32)];
            m.mask(&mut mask);
            let d = t.elapsed().as_micros();
            times.push(d);
            all.push(d);
            let c: Vec<u32> = (0..n as u32).filter(|t| mask[*t as usize / 32] >> (t % 32) & 1 == 1).collect();
            if c.is_empty() { println!("dead"); break; }
            rng = rng.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let tok = c[(rng >> 33) as usize % c.len()];
            assert!(m.consume(tok));
            if ends.contains(&tok) { break; }
            let f = m.forced();
            let _ = f;
        }
        per.push(times);
    }
    for p in per.iter().take(4) { println!("{:?}", &p[..p.len().min(40)]); }
    all.sort();
    println!("median {} mean {} p99 {} max {} of {}", all[all.len() / 2], all.iter().sum::<u128>() / all.len() as u128, all[all.len() * 99 / 100], all[all.len() - 1], all.len());
}
