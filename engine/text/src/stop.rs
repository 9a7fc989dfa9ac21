//! Stop strings over a text that comes in parts.

/// Cuts a text at the first of several strings.
///
/// **Law:** what [`push`](Self::push) and [`finish`](Self::finish) return is, together, the text up to the leftmost
/// place where a stop string begins, or all of it, however the text was cut into parts.
#[derive(Clone, Debug)]
pub struct StopStrings {
    stops: Vec<String>,
    /// Text that may be the beginning of a stop string.
    held: String,
    stopped: bool,
}

impl StopStrings {
    /// Looks for these strings; an empty one stops nothing.
    pub fn new(stops: impl IntoIterator<Item = String>) -> Self {
        let stops = stops.into_iter().filter(|stop| !stop.is_empty()).collect();
        Self { stops, held: String::new(), stopped: false }
    }

    /// Adds text and returns what is certain to come before any stop string. After a stop it returns nothing.
    pub fn push(&mut self, text: &str) -> String {
        self.advance(text, true)
    }

    /// The text that was held back, now that none follows. It may still hold a stop string that waited for the end of
    /// one that began before it.
    pub fn finish(&mut self) -> String {
        self.advance("", false)
    }

    /// Whether a stop string was found.
    pub fn stopped(&self) -> bool {
        self.stopped
    }

    fn advance(&mut self, text: &str, more: bool) -> String {
        if self.stopped {
            return String::new();
        }
        self.held.push_str(text);
        let place = self.held.char_indices().map(|(at, _)| at).find(|&at| {
            let rest = &self.held[at..];
            self.stopped = self.stops.iter().any(|stop| rest.starts_with(stop));
            self.stopped || (more && self.stops.iter().any(|stop| stop.starts_with(rest)))
        });
        let rest = self.held.split_off(place.unwrap_or(self.held.len()));
        let rest = if self.stopped { String::new() } else { rest };
        std::mem::replace(&mut self.held, rest)
    }
}
