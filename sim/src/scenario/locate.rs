//! Finds the place of a field in a scenario's text, for errors that only show when fields are seen together.

use std::fmt;
use std::ops::Range;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_yaml::Spanned;

/// Bytes of the value at a dotted path (list entries by index), or of the deepest part of the path that is there.
pub fn locate(text: &str, path: &str) -> Option<Range<usize>> {
    locate_keys(text, path.split('.'))
}

/// The same, for keys that may have dots in them.
pub fn locate_keys<'a>(text: &str, keys: impl IntoIterator<Item = &'a str>) -> Option<Range<usize>> {
    let root: Spanned<Node> = crate::scenario::load::parse(text).ok()?;
    let mut at = &root;
    let mut found = None;
    for key in keys {
        let Some(child) = at.value.child(key) else { break };
        found = Some(child);
        at = child;
    }
    let span = found?.defined.span();
    let start = span.byte_offset().map_or_else(|| char_offset(text, span.offset() as usize), |at| at as usize);
    let rest = &text[start..];
    let end = rest.find(['\n', '#']).unwrap_or(rest.len());
    Some(start..start + rest[..end].trim_end().len().max(1))
}

fn char_offset(text: &str, chars: usize) -> usize {
    text.char_indices().nth(chars).map_or(text.len(), |(at, _)| at)
}

/// Any YAML value whose children know their places.
enum Node {
    Map(Vec<(String, Spanned<Node>)>),
    List(Vec<Spanned<Node>>),
    Scalar,
}

impl Node {
    fn child(&self, key: &str) -> Option<&Spanned<Self>> {
        match self {
            Self::Map(entries) => entries.iter().find(|(name, _)| name == key).map(|(_, node)| node),
            Self::List(entries) => entries.get(key.parse::<usize>().ok()?),
            Self::Scalar => None,
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

/// A scalar of any type is only a place.
macro_rules! scalars {
    ($($visit:ident($type:ty)),*) => {
        $(fn $visit<E>(self, _: $type) -> Result<Node, E> {
            Ok(Node::Scalar)
        })*
    };
}

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any YAML")
    }

    scalars!(visit_bool(bool), visit_i64(i64), visit_u64(u64), visit_f64(f64), visit_str(&str));

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Node, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = list.next_element()? {
            entries.push(entry);
        }
        Ok(Node::List(entries))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Node::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_leads_to_its_value() {
        let text =
            "# größe\nscheduler:\n  max_num_seqs: 0  # none\ncompare:\n  - mode: refill\n    min_coda_batch: 99\n";
        let check = |path, value| assert_eq!(locate(text, path).map(|range| &text[range]), value, "{path}");
        check("scheduler.max_num_seqs", Some("0"));
        check("compare.0.min_coda_batch", Some("99"));
        check("compare.0.missing", Some("mode: refill"));
        check("nowhere", None);
    }
}
