//! Tests several models of one process that share their threads.
use super::model::{Plan, model, steps};
use compy::model::Model;
use compy::simd::Isa;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

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

#[test]
fn a_step_over_whole_texts_pauses_for_steps_of_other_models_and_answers_as_alone() {
    let mut texts = model(Isa::available()[0], THREADS);
    texts.compile(&Plan::texts().bytes()).expect("a plan");
    texts.slice = Duration::ZERO;
    let answer = || {
        let mut output = vec![0; 4096];
        let bytes = texts.step(&steps()[0], &mut output).expect("a step").expect("nobody stops it");
        output.truncate(bytes);
        output
    };
    let alone = answer();
    let (decoder, others, ended) = (compiled(), AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(SeqCst) {
                decoder.step(&steps()[0], &mut vec![0; 4096]).expect("a step");
                others.fetch_add(1, SeqCst);
            }
        });
        while others.load(SeqCst) == 0 {
            std::thread::yield_now();
        }
        let mut during = 0;
        for _ in 0..ROUNDS {
            let before = others.load(SeqCst);
            assert!(answer() == alone);
            during += others.load(SeqCst) - before;
        }
        ended.store(true, SeqCst);
        // Without pauses, only the steps directly before and after a text's step fall into its time.
        assert!(during > 3 * ROUNDS, "{during} steps of the decoder during {ROUNDS} texts");
    });
}
