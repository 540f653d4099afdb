//! Tests several models of one process that share their threads.
use super::model::{Plan, model, steps};
use compy::model::Model;
use compy::simd::Isa;

const THREADS: usize = 3;
const ROUNDS: usize = 40;

/// Returns the answers to all steps, for several rounds.
fn answers(model: &Model) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for _ in 0..ROUNDS {
        for step in steps() {
            let mut output = vec![0; 4096];
            let bytes = model.step(&step, &mut output).expect("a step").expect("nobody stops it");
            output.truncate(bytes);
            all.push(output);
        }
    }
    all
}

fn compiled() -> Model {
    let model = model(Isa::available()[0], THREADS);
    model.compile(&Plan::whole(0).without_tallies().bytes()).expect("a plan");
    model
}

#[test]
fn models_that_share_threads_answer_as_each_does_alone() {
    let alone = answers(&compiled());
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..3).map(|_| scope.spawn(|| answers(&compiled()))).collect();
        for _ in 0..5 {
            drop(compiled());
        }
        for answers in running {
            assert!(answers.join().expect("no panic") == alone);
        }
    });
}
