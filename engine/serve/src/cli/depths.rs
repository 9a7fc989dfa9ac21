//! Text whose tokens show at which depth they left the loop.

use engine::units::Depth;

/// Colours from shallow to deep, of the terminal's 256: green, over yellow, to red.
const COLOURS: [u8; 7] = [46, 82, 154, 226, 214, 208, 196];

/// Shows tokens by depth.
pub(super) struct Depths {
    full: u8,
    colours: bool,
    /// The depth of the text before, in marks.
    before: Option<u8>,
}

impl Depths {
    /// Of a model that runs up to `full` loops.
    pub(super) fn new(full: u8, colours: bool) -> Self {
        Self { full, colours, before: None }
    }

    /// What the colours or the marks mean.
    pub(super) fn legend(&self) -> String {
        if !self.colours {
            return format!("tokens by exit depth: {{d| text }}, d from 1 to {}", self.full);
        }
        let depths = (1..=self.full).map(|depth| self.coloured(&depth.to_string(), depth));
        format!("tokens by exit depth: {}", depths.collect::<Vec<_>>().join(" "))
    }

    /// A token's text, marked where the depth changes if there are no colours.
    pub(super) fn token(&mut self, text: &str, depth: Depth) -> String {
        if text.is_empty() {
            return String::new();
        }
        if self.colours {
            return self.coloured(text, depth.0);
        }
        match self.before.replace(depth.0) {
            Some(before) if before == depth.0 => text.to_owned(),
            Some(_) => format!("}}{{{}|{text}", depth.0),
            None => format!("{{{}|{text}", depth.0),
        }
    }

    /// Behind the last token.
    pub(super) fn end(&mut self) -> String {
        self.before.take().map_or_else(String::new, |_| "}".into())
    }

    fn coloured(&self, text: &str, depth: u8) -> String {
        let last = COLOURS.len() - 1;
        let steps = usize::from(self.full.max(2) - 1);
        let colour = COLOURS[(usize::from(depth.clamp(1, self.full)) - 1) * last / steps];
        format!("\x1b[38;5;{colour}m{text}\x1b[0m")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKENS: [(&str, u8); 5] = [("a", 4), ("b", 2), ("", 1), ("c", 2), ("d", 3)];

    #[test]
    fn marks_stand_where_the_depth_changes() {
        let mut depths = Depths::new(4, false);
        let mut text: String = TOKENS.map(|(text, depth)| depths.token(text, Depth(depth))).concat();
        text += &depths.end();
        assert_eq!(text, "{4|a}{2|bc}{3|d}");
    }

    #[test]
    fn every_depth_has_a_colour_and_the_ends_have_those_of_the_scale() {
        for full in 1..=64 {
            let mut depths = Depths::new(full, true);
            let mut shown = (1..=full).map(|depth| depths.token("x", Depth(depth)));
            assert_eq!(shown.next().unwrap(), "\x1b[38;5;46mx\x1b[0m");
            if let Some(last) = shown.last() {
                assert_eq!(last, "\x1b[38;5;196mx\x1b[0m");
            }
        }
    }
}
