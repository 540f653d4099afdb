use super::*;
use crate::vocabulary::Vocabulary;
use llguidance::TokenParser;
use llguidance::api::{GrammarInit, ParserLimits, TopLevelGrammar};

/// The reference for `TextMasks`: tries every token of the vocabulary, byte by byte.
struct Walk(TokTrie);

impl BiasComputer for Walk {
    fn compute_bias(&self, rec: &mut ParserRecognizer<'_>, start: &[u8]) -> SimpleVob {
        let mut mask = self.0.alloc_token_set();
        self.0.add_bias(rec, &mut mask, start);
        mask
    }

    fn trie(&self) -> &TokTrie {
        &self.0
    }
}

/// Returns a vocabulary of all single bytes and of tokens of up to 40 characters. They contain plain text, incomplete
/// characters, quotes, escapes and line breaks.
fn vocabulary(random: &mut impl FnMut(usize) -> usize) -> Vocabulary {
    let characters: Vec<&str> = "a b c d e f x y 0 1 é ß Я 中 日 \u{800} \u{d7ff} \u{e000} 👍 \u{10ffff} \u{7f} \u{80}"
        .split(' ')
        .chain([" ", "\"", "\\", "\n", ",", ":", "}", "\\u00", "\": ", "\", \"", "aa", "==="])
        .collect();
    let mut words: Vec<Vec<u8>> = (0..=255u8).map(|byte| vec![byte]).collect();
    while words.len() < 1200 {
        let most = [3, 12, 40][random(3)];
        let count = 1 + random(most);
        let plain = random(3) > 0;
        let from = |i: usize| if plain { characters[i % 22] } else { characters[i] };
        let mut word = (0..count).map(|_| from(random(characters.len()))).collect::<String>().into_bytes();
        if random(8) == 0 {
            word.truncate(word.len() - 1);
        }
        if !word.is_empty() {
            words.push(word);
        }
    }
    words.push(Vec::new());
    let end = words.len() as u32 - 1;
    Vocabulary::new(words, &[end]).unwrap()
}

fn parser(vocabulary: &Vocabulary, schema: &str) -> TokenParser {
    let source = format!("{{\"grammars\":[{{\"name\":\"answer\",{schema}}}]}}");
    let grammar: TopLevelGrammar = serde_json::from_str(&source).unwrap();
    let init = GrammarInit::Serialized(grammar);
    let logger = llguidance::Logger::new(0, 0);
    let limits = ParserLimits::default();
    let mut parser = vocabulary.factory.create_parser_from_init_ext(init, logger, Default::default(), limits).unwrap();
    parser.start_without_prompt();
    parser
}

#[test]
fn masks_in_text_equal_those_of_a_walk_through_all_tokens() {
    let mut state = 11_u64;
    let mut random = move |below: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % below
    };
    let vocabulary = vocabulary(&mut random);
    let (mut within, mut all) = (0, 0);
    for schema in [
        r#""json_schema": {"type": "string"}"#,
        r#""json_schema": {"type": "string", "minLength": 5, "maxLength": 18}"#,
        r#""json_schema": {"type": "string", "maxLength": 33}"#,
        r#""json_schema": {"type": "string", "maxLength": 100}"#,
        r#""json_schema": {"type": "string", "pattern": "^ab.{3,12}$"}"#,
        r#""json_schema": {"anyOf": [{"type": "string", "maxLength": 9}, {"enum": ["abcdefxy", "a"]}]}"#,
        r#""json_schema": {"type": "object", "properties": {"a": {"type": "string", "maxLength": 3}}}"#,
        r#""json_schema": {"type": "array", "items": {"type": "string", "maxLength": 6}}"#,
        r#""lark_grammar": "start: /.{0,12}/ \"a\"""#,
        r#""lark_grammar": "start: /[^\\n\"]{4,9}/ /[a-f]+/""#,
        r#""lark_grammar": "start: (/[a-z]{1,3}/ \" \"){1,9} | /[^\"]{1,8}x/""#,
        r#""lark_grammar": "start: (/[^\"\\\\\\x00-\\x1f\\x7f]{1,40}/ (\"\\n\" | \"\\\"\"))+""#,
        r#""lark_grammar": "start: (/[^\"\\\\\\x00-\\x1f\\x7f]{3,40};/ (\"\\n\" | \"\\\"\"))+""#,
    ] {
        for _ in 0..12 {
            let (mut fast, mut plain) = (parser(&vocabulary, schema), parser(&vocabulary, schema));
            let masks = vocabulary.masks();
            fast.bias_computer = masks.clone();
            plain.bias_computer = Arc::new(Walk(vocabulary.factory.tok_env().tok_trie().clone()));
            for _ in 0..40 {
                let (mask, wanted) = (fast.compute_mask(), plain.compute_mask());
                let (Ok(mask), Ok(wanted)) = (mask, wanted) else { panic!("{schema}: no mask") };
                assert_eq!(mask.to_list(), wanted.to_list(), "{schema}");
                let reach = fast.parser.with_recognizer(|rec| masks.reach(rec));
                within += usize::from(reach.is_some());
                all += 1;
                let choices = mask.to_list();
                let token = choices[random(choices.len())];
                for parser in [&mut fast, &mut plain] {
                    parser.consume_token(token).unwrap();
                }
                if fast.check_stop().unwrap() {
                    break;
                }
            }
        }
    }
    assert!(within > all / 4 && within < all, "{within} of {all} masks were taken in text");
}
