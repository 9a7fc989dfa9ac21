//! Stop strings.

use proptest::prelude::*;
use serve::text::StopStrings;

fn stops(strings: &[&str]) -> StopStrings {
    StopStrings::new(strings.iter().map(|&stop| stop.to_owned()))
}

/// What each part gave, and the end.
fn cut(stops: &mut StopStrings, parts: &[&str]) -> Vec<String> {
    let mut texts: Vec<String> = parts.iter().map(|part| stops.push(part)).collect();
    texts.push(stops.finish());
    texts
}

#[test]
fn a_text_ends_where_the_first_stop_string_begins() {
    for (strings, parts, texts, stopped) in [
        (&["\n"][..], &["a", "b\nc", "d"][..], &["a", "b", "", ""][..], true),
        (&["STOP"], &["aS", "T", "OP", "b"], &["a", "", "", "", ""], true),
        (&["STOP"], &["aS", "T", "Ob"], &["a", "", "STOb", ""], false),
        (&["STOP"], &["aST"], &["a", "ST"], false),
        (&["aab"], &["aaa", "b"], &["a", "", ""], true),
        (&["b", "abc"], &["a", "b", "c", "d"], &["", "", "", "", ""], true),
        (&["b", "abc"], &["a", "b", "d"], &["", "", "a", ""], true),
        (&["b", "abc"], &["ab"], &["", "a"], true),
        (&["é"], &["e", "é", "x"], &["e", "", "", ""], true),
        (&["", "x"], &["", "ab", ""], &["", "ab", "", ""], false),
        (&[], &["ab", "c"], &["ab", "c", ""], false),
    ] {
        let mut stop = stops(strings);
        assert_eq!(cut(&mut stop, parts), texts, "{strings:?} {parts:?}");
        assert_eq!(stop.stopped(), stopped, "{strings:?} {parts:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    /// However a text is cut into parts, it ends where a search in all of it finds the leftmost stop string, and only
    /// the beginning of a stop string is ever held back.
    #[test]
    fn parts_stop_where_the_whole_text_does(
        parts in prop::collection::vec("[abé]{0,4}", 0..10),
        strings in prop::collection::vec("[abé]{0,4}", 0..4),
    ) {
        let whole = parts.concat();
        let found = strings.iter().filter(|stop| !stop.is_empty()).filter_map(|stop| whole.find(stop.as_str())).min();
        let mut stop = StopStrings::new(strings.clone());
        let (mut given, mut seen) = (String::new(), String::new());
        for part in &parts {
            given.push_str(&stop.push(part));
            seen.push_str(part);
            let held = seen.strip_prefix(&given).unwrap();
            let may_begin = strings.iter().any(|stop| stop.len() > held.len() && stop.starts_with(held));
            prop_assert!(stop.stopped() || held.is_empty() || may_begin, "held {held:?}");
        }
        given.push_str(&stop.finish());
        prop_assert_eq!(&given, &whole[..found.unwrap_or(whole.len())]);
        prop_assert_eq!(stop.stopped(), found.is_some());
    }
}
