//! The records of a JSON list or of JSON Lines, one at a time, so that a file of any size needs one record's memory.
//!
//! A list is cut by its brackets and quotes alone, before any parser sees it: a record that is no JSON spoils itself and
//! not the rest of the file.

use std::io::{self, BufRead, Read};

use crate::error::Place;

/// The most bytes of a record: more is a bracket that is missing, not a request.
const MAX_RECORD_BYTES: usize = 1 << 28;

/// Cuts a file into records.
pub(super) struct JsonRecords<R> {
    reader: R,
    shape: Shape,
    /// Records cut so far.
    number: u64,
    /// The line that is being read, from 1.
    line: u64,
    record: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    List,
    Lines,
    Ended,
    Empty,
    Neither(u8),
}

/// A record's text, or what stopped it.
pub(super) type Cut<'a> = Result<&'a [u8], &'static str>;

impl<R: BufRead> JsonRecords<R> {
    /// Looks at the first byte: a `[` begins a list, a `{` the first of many lines.
    pub(super) fn new(mut reader: R) -> io::Result<Self> {
        if reader.fill_buf()?.starts_with(b"\xef\xbb\xbf") {
            reader.consume(3);
        }
        let mut records = Self { reader, shape: Shape::Ended, number: 0, line: 1, record: Vec::new() };
        records.shape = match records.skip_space()? {
            None => Shape::Empty,
            Some(b'[') => {
                records.reader.consume(1);
                Shape::List
            }
            Some(b'{') => Shape::Lines,
            Some(other) => Shape::Neither(other),
        };
        Ok(records)
    }

    /// What is wrong with the file as a whole, if anything.
    pub(super) fn fault(&self) -> Option<String> {
        match self.shape {
            Shape::Neither(byte) => Some(format!(
                "must be a JSON list or JSON Lines, which begin with `[` or `{{`, and begins with `{}`",
                char::from(byte).escape_default()
            )),
            Shape::Empty => Some("is empty".into()),
            Shape::List | Shape::Lines | Shape::Ended => None,
        }
    }

    /// The next record and its place.
    pub(super) fn next(&mut self) -> io::Result<Option<(Place, Cut<'_>)>> {
        match self.shape {
            Shape::List => self.next_in_list(),
            Shape::Lines => self.next_line(),
            Shape::Ended | Shape::Empty | Shape::Neither(_) => Ok(None),
        }
    }

    fn next_line(&mut self) -> io::Result<Option<(Place, Cut<'_>)>> {
        loop {
            self.record.clear();
            let most = MAX_RECORD_BYTES as u64;
            let count = self.reader.by_ref().take(most).read_until(b'\n', &mut self.record)?;
            if count == 0 {
                return Ok(None);
            }
            let place = Place::Line(self.line);
            self.line += 1;
            if count == MAX_RECORD_BYTES && self.record.last() != Some(&b'\n') {
                self.shape = Shape::Ended;
                return Ok(Some((place, Err("a line of more than 256 MiB, where reading stopped"))));
            }
            if !self.record.iter().all(u8::is_ascii_whitespace) {
                self.number += 1;
                return Ok(Some((place, Ok(&self.record))));
            }
        }
    }

    fn next_in_list(&mut self) -> io::Result<Option<(Place, Cut<'_>)>> {
        let mut byte = self.skip_space()?;
        if byte == Some(b',') && self.number > 0 {
            self.reader.consume(1);
            byte = self.skip_space()?;
        }
        self.number += 1;
        let place = Place::Record { number: self.number, line: self.line };
        match byte {
            None => {
                self.shape = Shape::Ended;
                return Ok(Some((place, Err("the file's end before the list's `]`"))));
            }
            Some(b']') => {
                self.shape = Shape::Ended;
                self.reader.consume(1);
                let rest = self.skip_space()?;
                return Ok(rest.map(|_| (place, Err("text after the list's `]`, where reading stopped"))));
            }
            Some(_) => {}
        }
        let fault = self.cut()?;
        if fault.is_some() {
            self.shape = Shape::Ended;
        }
        Ok(Some((place, fault.map_or(Ok(&self.record), Err))))
    }

    /// Reads up to the comma or bracket behind the record.
    fn cut(&mut self) -> io::Result<Option<&'static str>> {
        self.record.clear();
        let (mut depth, mut quoted, mut escaped) = (0u32, false, false);
        loop {
            let buffer = self.reader.fill_buf()?;
            if buffer.is_empty() {
                return Ok(Some("the file's end within it"));
            }
            let mut end = None;
            for (index, &byte) in buffer.iter().enumerate() {
                match byte {
                    b'\n' => self.line += 1,
                    _ if escaped => {
                        escaped = false;
                        continue;
                    }
                    b'\\' if quoted => escaped = true,
                    b'"' => quoted = !quoted,
                    _ if quoted => {}
                    b'{' | b'[' => depth += 1,
                    b',' | b']' | b'}' if depth == 0 => {
                        end = Some(index);
                        break;
                    }
                    b'}' | b']' => depth -= 1,
                    _ => {}
                }
            }
            let taken = end.unwrap_or(buffer.len());
            self.record.extend_from_slice(&buffer[..taken]);
            // A stray closing brace would otherwise be found again and again.
            let stray = end.is_some_and(|end| buffer[end] == b'}');
            self.reader.consume(taken + usize::from(stray));
            if stray {
                self.record.push(b'}');
            } else if end.is_some() {
                return Ok(None);
            }
            if self.record.len() > MAX_RECORD_BYTES {
                return Ok(Some("more than 256 MiB without an end, where reading stopped"));
            }
        }
    }

    /// The next byte that is no white space, not consumed.
    fn skip_space(&mut self) -> io::Result<Option<u8>> {
        loop {
            let buffer = self.reader.fill_buf()?;
            if buffer.is_empty() {
                return Ok(None);
            }
            let space = buffer.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            self.line += buffer[..space].iter().filter(|byte| **byte == b'\n').count() as u64;
            let next = buffer.get(space).copied();
            self.reader.consume(space);
            if next.is_some() {
                return Ok(next);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The records as text, with places and faults, read through a buffer of 3 bytes.
    fn cut(text: &str) -> Vec<String> {
        let mut records = JsonRecords::new(io::BufReader::with_capacity(3, text.as_bytes())).expect("text");
        let mut all: Vec<String> = records.fault().into_iter().collect();
        while let Some((place, cut)) = records.next().expect("text") {
            let text =
                cut.map_or_else(|fault| format!("! {fault}"), |text| String::from_utf8_lossy(text).trim().into());
            all.push(format!("{place}: {text}"));
        }
        all
    }

    #[test]
    fn a_list_is_cut_by_its_brackets_and_quotes() {
        let check = |text, expect: &[&str]| assert_eq!(cut(text), expect, "{text}");
        check("[]", &[]);
        check(
            " [\n{\"a\": [1, 2]},\n {\"b\": \"],}\\\"{\"} ]\n",
            &["record 1 (line 2): {\"a\": [1, 2]}", "record 2 (line 3): {\"b\": \"],}\\\"{\"}"],
        );
        check(
            "[1, \"x\\\\\", nil]",
            &["record 1 (line 1): 1", "record 2 (line 1): \"x\\\\\"", "record 3 (line 1): nil"],
        );
        check("[{}}, {}]", &["record 1 (line 1): {}}", "record 2 (line 1): {}"]);
        check("[{}\n, {\"a\":", &["record 1 (line 1): {}", "record 2 (line 2): ! the file's end within it"]);
        check("[{},", &["record 1 (line 1): {}", "record 2 (line 1): ! the file's end before the list's `]`"]);
        check(
            "[{}] x",
            &["record 1 (line 1): {}", "record 2 (line 1): ! text after the list's `]`, where reading stopped"],
        );
        check("[{},,{}]", &["record 1 (line 1): {}", "record 2 (line 1): ", "record 3 (line 1): {}"]);
    }

    #[test]
    fn lines_are_records_and_blank_ones_are_none() {
        assert_eq!(cut("\u{feff}\n{\"a\": 1}\n\n{\"b\"\n{}"), ["line 2: {\"a\": 1}", "line 4: {\"b\"", "line 5: {}"]);
    }

    #[test]
    fn a_file_that_is_neither_says_so() {
        assert_eq!(cut("  "), ["is empty"]);
        assert_eq!(
            cut("a,b\n1,2\n"),
            ["must be a JSON list or JSON Lines, which begin with `[` or `{`, and begins with `a`"]
        );
    }
}
