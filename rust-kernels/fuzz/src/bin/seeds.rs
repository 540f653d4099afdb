//! Writes the inputs that fuzzing begins with: `cargo run --bin seeds -- FOLDER`.
#[path = "../../../tests/program/model.rs"]
#[allow(dead_code)] // the tests use more of it
mod model;

use model::{Plan, steps};

fn main() -> std::io::Result<()> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "corpus/messages".into());
    std::fs::create_dir_all(&folder)?;
    let of = |messages: &[Vec<u8>]| -> Vec<u8> {
        messages.iter().flat_map(|m| [&(m.len() as u32).to_le_bytes(), &m[..]].concat()).collect()
    };
    let [first, second] = steps();
    for kv_type in [0, 1] {
        let plan = Plan::whole(kv_type);
        std::fs::write(format!("{folder}/whole-{kv_type}"), of(&[plan.bytes(), first.clone(), second.clone()]))?;
        for (i, op) in plan.ops.iter().enumerate() {
            let alone = Plan { ops: vec![op.clone()], ..plan.clone() };
            std::fs::write(format!("{folder}/op-{kv_type}-{i}"), of(&[alone.bytes(), first.clone(), second.clone()]))?;
        }
    }
    Ok(())
}
