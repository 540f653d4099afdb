//! Tests the exports as Deno calls them. Every message is answered or rejected, and none ends the process.
use compy_grammar::ffi::*;

type Export = unsafe extern "C" fn(u64, *const u8, usize, *mut u8, usize) -> i32;

const LIMITS: [u32; 7] = [5000, 100_000, 400_000, 200_000, 10_000, 2000, 50_000];
const END: u32 = 256;
const TOKENS: usize = 258;

fn call(export: Export, handle: u64, input: &[u8]) -> Result<Vec<u8>, String> {
    let mut output = vec![0; 4096];
    // SAFETY: both slices have the given lengths and live until the call returns.
    let n = unsafe { export(handle, input.as_ptr(), input.len(), output.as_mut_ptr(), output.len()) };
    if n >= 0 {
        output.truncate(n as usize);
        return Ok(output);
    }
    output.truncate((-1 - n) as usize);
    Err(String::from_utf8(output).unwrap())
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn handle(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().unwrap())
}

/// Returns a vocabulary with a token for each byte, an end token, and a token that is not text.
fn vocabulary() -> u64 {
    let mut message = words(&[TOKENS as u32, 1, END]);
    message.extend((0..TOKENS).flat_map(|token| u32::from(token < 256).to_le_bytes()));
    message.extend(0..=255u8);
    handle(&call(compy_grammar_vocabulary, 0, &message).unwrap())
}

fn compile(vocabulary: u64, grammar: &str) -> Result<u64, String> {
    compile_within(vocabulary, grammar, LIMITS)
}

fn compile_within(vocabulary: u64, grammar: &str, limits: [u32; 7]) -> Result<u64, String> {
    let mut message = words(&limits);
    message.extend(format!("{{\"grammars\":[{grammar}]}}").as_bytes());
    Ok(handle(&call(compy_grammar_compile, vocabulary, &message)?))
}

fn lark(source: &str) -> String {
    format!("{{\"name\":\"answer\",\"lark_grammar\":{source:?}}}")
}

fn matcher(grammar: u64) -> u64 {
    handle(&call(compy_grammar_matcher, grammar, &[]).unwrap())
}

fn mask(matchers: &[u64]) -> Vec<Vec<u32>> {
    let input: Vec<u8> = matchers.iter().flat_map(|m| m.to_le_bytes()).collect();
    let row = TOKENS.div_ceil(32) * 4;
    let mut output = vec![0; row * matchers.len()];
    // SAFETY: both slices have the given lengths and live until the call returns.
    let n = unsafe { compy_grammar_masks(0, input.as_ptr(), input.len(), output.as_mut_ptr(), output.len()) };
    assert_eq!(n as usize, output.len());
    let set = |row: &[u8]| (0..TOKENS as u32).filter(|&t| row[t as usize / 8] >> (t % 8) & 1 == 1).collect::<Vec<_>>();
    output.chunks(row).map(set).collect()
}

/// Gives a token to the matcher. Returns the whole output of `compy_grammar_consume`.
fn hand(matcher: u64, token: u32) -> Vec<u8> {
    call(compy_grammar_consume, matcher, &token.to_le_bytes()).unwrap()
}

/// Gives a token to the matcher. Returns three flags: the token was taken, the answer is complete, the answer may end.
fn consume(matcher: u64, token: u32) -> Vec<u8> {
    hand(matcher, token)[..3].to_vec()
}

#[test]
fn matcher_follows_its_grammar_to_the_end() {
    let grammar = compile(vocabulary(), &lark("start: (\"ab\" | \"ac\") <[257]>")).unwrap();
    let m = matcher(grammar);
    assert_eq!(mask(&[m])[0], [u32::from(b'a')]);
    assert_eq!(consume(m, u32::from(b'x')), [0, 0, 0]);
    assert_eq!(consume(m, END), [0, 0, 0]);
    assert_eq!(consume(m, u32::from(b'a')), [1, 0, 0]);
    assert_eq!(mask(&[m])[0], [u32::from(b'b'), u32::from(b'c')]);
    assert_eq!(consume(m, u32::from(b'c')), [1, 0, 0]);
    assert!(call(compy_grammar_forced, m, &[]).unwrap().ends_with(b"\xff[257]"));
    assert_eq!(consume(m, 257), [1, 1, 1]);
    assert_eq!(mask(&[m])[0], [END]);
    assert_eq!(consume(m, END), [1, 1, 1]);
    assert_eq!(consume(m, END)[0], 0);
}

#[test]
fn consume_returns_the_forced_text_behind_the_token() {
    let grammar = compile(vocabulary(), &lark("start: \"a\" /[xy]/ \"bcd\" /[xy]/")).unwrap();
    let m = matcher(grammar);
    let taken = |token: u8| hand(m, token.into());
    assert_eq!(taken(b'a'), [1, 0, 0, 1], "looked, and there is a choice");
    let answer = taken(b'x');
    assert_eq!(answer[..4], [1, 0, 0, 1]);
    assert!(answer.ends_with(b"bcd"));
    assert_eq!(answer[4..], call(compy_grammar_forced, m, &[]).unwrap());
    assert_eq!(taken(b'b'), [1, 0, 0, 0], "the rest of what was forced is still to come");
    assert!(call(compy_grammar_forced, m, &[]).unwrap().ends_with(b"cd"));
    assert_eq!(taken(b'z')[..3], [0, 0, 0]);
    assert_eq!(taken(b'c'), [1, 0, 0, 0]);
    assert_eq!(taken(b'd'), [1, 0, 0, 1]);
    assert_eq!(taken(b'y'), [1, 1, 1, 1]);
}

#[test]
fn matchers_of_one_grammar_are_independent() {
    let grammar = compile(vocabulary(), &lark("start: /[a-c]{1,3}/")).unwrap();
    let all: Vec<u64> = (0..20).map(|_| matcher(grammar)).collect();
    let alone = mask(&all[..1]);
    consume(all[1], u32::from(b'a'));
    for token in [b'a', b'b', b'c'] {
        consume(all[2], token.into());
    }
    let together = mask(&all);
    assert_eq!(together[0], alone[0]);
    assert_eq!(together[1], [u32::from(b'a'), u32::from(b'b'), u32::from(b'c'), END]);
    assert_eq!(together[2], [END]);
    assert!(together[3..].iter().all(|mask| *mask == alone[0]));
}

#[test]
fn lexer_that_exceeds_its_limit_ends_only_its_answer() {
    let vocabulary = vocabulary();
    // In this pattern each of the last 30 characters doubles the number of lexer states.
    let grammar = compile(vocabulary, &lark("start: /(a|b)*a(a|b){30}/")).unwrap();
    let m = matcher(grammar);
    let mut state = 1u32;
    let taken = (0..200_000).take_while(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        consume(m, u32::from(if state >> 31 == 0 { b'a' } else { b'b' }))[0] == 1
    });
    assert!(taken.count() < 200_000);
    assert!(mask(&[m])[0].is_empty());
    assert!(call(compy_grammar_forced, m, &[]).unwrap().is_empty());
    assert_eq!(mask(&[matcher(grammar)])[0].len(), 2);
}

/// Returns how many times an answer takes `token` before it fails.
fn taken(matcher: u64, token: u8, most: usize) -> usize {
    (0..most).take_while(|_| consume(matcher, token.into())[0] == 1).count()
}

#[test]
fn consume_fails_in_an_ambiguous_grammar_before_tokens_cost_much() {
    let vocabulary = vocabulary();
    for grammar in ["start: s\ns: /[a-z]/ | s s", "start: s\ns: /[a-z]/ | s s | s s s", "start: s\ns: \"a\" | s s \"\""]
    {
        let grammar = compile(vocabulary, &lark(grammar)).unwrap();
        let m = matcher(grammar);
        let count = taken(m, b'a', 400);
        assert!((20..400).contains(&count), "{count} tokens were taken");
        let state = hand(m, u32::from(b'a'));
        assert_eq!(state[..4], [0, 0, 0, 2]);
        let why = str::from_utf8(&state[4..]).unwrap();
        assert!(why.contains("2 ms each") && why.contains("unambiguous"), "{why}");
        assert!(mask(&[m])[0].is_empty());
        assert_eq!(consume(matcher(grammar), u32::from(b'a'))[..1], [1]);
    }
}

#[test]
fn consume_stays_within_the_work_limit_in_unambiguous_grammars() {
    let vocabulary = vocabulary();
    for (grammar, most) in [
        ("start: l\nl: /[a-z]/ | l /[a-z]/", 5000),
        ("start: l\nl: /[a-z]/ | /[a-z]/ l", 400),
        ("start: /[a-z]/*", 5000),
        ("start: e\ne: t | e \"a\" t\nt: \"a\" | \"(\" e \")\"", 5000),
    ] {
        let m = matcher(compile(vocabulary, &lark(grammar)).unwrap());
        assert_eq!(taken(m, b'a', most), most, "{grammar}");
    }
}

#[test]
fn compiler_that_takes_too_long_is_reported_until_it_ends() {
    let patterns: Vec<String> = (0..12).map(|i| format!("{{\"pattern\":\"(a|b)*a(a|b){{{i}}}$\"}}")).collect();
    let schema = format!("{{\"type\":\"string\",\"maxLength\":40,\"allOf\":[{}]}}", patterns.join(","));
    let mut limits = LIMITS;
    limits[0] = 0;
    let grammar = format!("{{\"name\":\"answer\",\"json_schema\":{schema}}}");
    let compiler = compile_within(vocabulary(), &grammar, limits).unwrap();
    let compiles = || call(compy_grammar_compiles, compiler, &[]).unwrap() == [1];
    assert!(compiles());
    assert!(call(compy_grammar_matcher, compiler, &[]).is_err());
    while compiles() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    call(compy_grammar_free, compiler, &[]).unwrap();
    assert!(call(compy_grammar_compiles, compiler, &[]).is_err());
}

#[test]
fn exports_reject_stale_and_wrong_handles() {
    let vocabulary = vocabulary();
    let grammar = compile(vocabulary, &lark("start: \"a\"")).unwrap();
    let m = matcher(grammar);
    call(compy_grammar_free, grammar, &[]).unwrap();
    for (export, handle) in [
        (compy_grammar_matcher as Export, grammar),
        (compy_grammar_matcher, vocabulary),
        (compy_grammar_consume, vocabulary),
        (compy_grammar_forced, 0),
        (compy_grammar_compile, m),
        (compy_grammar_compiles, m),
        (compy_grammar_free, grammar),
        (compy_grammar_free, u64::MAX),
    ] {
        assert!(call(export, handle, &[0; 64]).unwrap_err().contains("is not the handle of"));
    }
    // The matcher outlives its grammar's handle.
    assert_eq!(consume(m, u32::from(b'a')), [1, 1, 1]);
}

#[test]
fn exports_reject_malformed_messages() {
    for message in [
        vec![],
        words(&[1]),
        words(&[u32::MAX, 0]),
        words(&[0, 0]),
        words(&[1, 1, 5, 1]),
        words(&[2, 0, u32::MAX, 1]),
        [words(&[1, 0, 2000]), vec![b'a'; 2000]].concat(),
    ] {
        assert!(call(compy_grammar_vocabulary, 0, &message).is_err(), "{message:?}");
    }
    let vocabulary = vocabulary();
    for grammar in
        ["", "{}", "{\"lark_grammar\": 5}", "{\"lark_grammar\":\"start:\\\"\"}", "{\"json_schema\":{\"type\":5}}"]
    {
        assert!(compile(vocabulary, grammar).is_err(), "{grammar}");
    }
    let m = matcher(compile(vocabulary, &lark("start: \"a\"")).unwrap());
    assert!(call(compy_grammar_masks, 0, &m.to_le_bytes()).is_err());
    assert!(call(compy_grammar_masks, 0, &[1, 2, 3]).is_err());
    assert!(call(compy_grammar_draft_masks, m, &[1, 2, 3]).is_err());
    assert!(call(compy_grammar_draft_masks, m, &[0; 1 << 20]).is_err());
    assert!(call(compy_grammar_draft_masks, 0, &[0; 4]).is_err());
    assert_eq!(consume(m, u32::MAX)[0], 0);
}

/// Returns a pseudo-random token among those that a mask allows.
fn chosen(mask: &[u32], state: &mut u32) -> u32 {
    *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    mask[(*state >> 8) as usize % mask.len()]
}

#[test]
fn shared_lexers_give_the_same_masks_as_private_lexers() {
    let vocabulary = vocabulary();
    for grammar in [
        r#"{"name":"answer","json_schema":{"type":"array","items":{"type":"string","minLength":3,"maxLength":40}}}"#,
        r#"{"name":"answer","json_schema":{"type":"object","properties":{"a":{"type":"number"},"b":{"enum":["xy","x"]}}}}"#,
    ] {
        let shared = compile(vocabulary, grammar).unwrap();
        let crowd: Vec<u64> = (0..16).map(|_| matcher(shared)).collect();
        // Each of these grammars is compiled separately, so that no other answer shares its lexer.
        let alone: Vec<u64> = (0..16).map(|_| matcher(compile(vocabulary, grammar).unwrap())).collect();
        let mut state = 7;
        let mut tokens = 0;
        for _ in 0..60 {
            let masks = mask(&crowd);
            for ((&m, &single), allowed) in crowd.iter().zip(&alone).zip(&masks) {
                assert_eq!(mask(&[single])[0], *allowed);
                if allowed.is_empty() || *allowed == [END] {
                    continue;
                }
                let token = chosen(allowed, &mut state);
                assert_eq!(consume(m, token), consume(single, token));
                assert_eq!(call(compy_grammar_forced, m, &[]), call(compy_grammar_forced, single, &[]));
                tokens += 1;
            }
        }
        assert!(tokens > 300, "{tokens} tokens");
    }
}

#[test]
fn answer_that_exhausts_a_shared_lexer_fails_alone() {
    let vocabulary = vocabulary();
    let grammar = compile(vocabulary, &lark("start: /(a|b)*a(a|b){30}c*/")).unwrap();
    // There are more answers than lexers, so each lexer serves others in addition to the greedy answer.
    let modest: Vec<u64> = (0..20).map(|_| matcher(grammar)).collect();
    let greedy: Vec<u64> = (0..8).map(|_| matcher(grammar)).collect();
    for &m in &modest {
        assert_eq!(taken(m, b'a', 5), 5);
        mask(&[m]);
    }
    let mut state = 1u32;
    for &m in &greedy {
        let failed = (0..100_000).any(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            consume(m, u32::from(if state >> 31 == 0 { b'a' } else { b'b' }))[0] == 0
        });
        assert!(failed && mask(&[m])[0].is_empty());
    }
    let expected = [u32::from(b'a'), u32::from(b'b')];
    for &m in &modest {
        assert_eq!(mask(&[m])[0], expected);
        assert_eq!(taken(m, b'a', 5), 5);
        assert_eq!(mask(&[m])[0], expected);
    }
    assert_eq!(mask(&[matcher(grammar)])[0], expected);
}
