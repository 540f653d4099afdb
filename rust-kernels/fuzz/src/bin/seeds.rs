//! Writes the seed inputs for fuzzing: `cargo run --bin seeds -- FOLDER`.
#[path = "../../../tests/program/model.rs"]
#[allow(dead_code)] // the tests use the parts that this program does not
mod model;

use model::{Plan, steps};

fn main() -> std::io::Result<()> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "corpus/messages".into());
    std::fs::create_dir_all(&folder)?;
    let of = |messages: &[Vec<u8>]| -> Vec<u8> {
        messages.iter().flat_map(|m| [&(m.len() as u32).to_le_bytes(), &m[..]].concat()).collect()
    };
    let [first, second] = steps();
    for (name, plan) in [("0", Plan::whole(0)), ("1", Plan::whole(1)), ("texts", Plan::texts())] {
        let write = |file: String, plan: &Plan| {
            std::fs::write(format!("{folder}/{file}"), of(&[plan.bytes(), first.clone(), second.clone()]))
        };
        write(format!("whole-{name}"), &plan)?;
        for (i, op) in plan.ops.iter().enumerate() {
            write(format!("op-{name}-{i}"), &Plan { ops: vec![op.clone()], ..plan.clone() })?;
        }
    }
    Ok(())
}
