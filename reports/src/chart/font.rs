//! The one font, embedded: DejaVu Sans, see `fonts/README.md`.

use std::sync::OnceLock;

use plotters::style::{FontDesc, FontFamily, FontStyle, register_font};

/// SVGs name it too; a browser shows its own sans-serif font, few of which are wider than DejaVu Sans.
pub(super) const FAMILY: FontFamily<'static> = FontFamily::SansSerif;
static FONT: &[u8] = include_bytes!("../../fonts/DejaVuSans.ttf");
static REGISTERED: OnceLock<bool> = OnceLock::new();

/// plotters' size of this font over its em: the rasteriser takes ascent plus descent for the size.
pub(super) const HEIGHT_PER_EM: f64 = 2384.0 / 2048.0;

/// Makes the font known to plotters; false if it cannot be read.
pub(super) fn register() -> bool {
    *REGISTERED.get_or_init(|| register_font(FAMILY.as_str(), FontStyle::Normal, FONT).is_ok())
}

/// Width of a text at an em size.
pub(super) fn width(text: &str, size: f64) -> f64 {
    register();
    // Measured large, since plotters rounds to whole pixels.
    let measured = FontDesc::new(FAMILY, 1000.0 * HEIGHT_PER_EM, FontStyle::Normal).layout_box(text);
    let guess = || 0.6 * text.chars().count() as f64;
    size * measured.map_or_else(|_| guess(), |((left, _), (right, _))| f64::from(right - left) / 1000.0)
}

/// The text, cut with an ellipsis where it is wider than `limit`.
pub(super) fn fitted(text: &str, size: f64, limit: f64) -> String {
    if width(text, size) <= limit {
        return text.to_owned();
    }
    let mut kept: Vec<char> = text.chars().collect();
    loop {
        kept.pop();
        let shorter: String = kept.iter().collect::<String>().trim_end().to_owned() + "…";
        if kept.is_empty() || width(&shorter, size) <= limit {
            return shorter;
        }
    }
}

/// The text in lines of at most `limit`, broken at spaces.
pub(super) fn wrapped(text: &str, size: f64, limit: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width(&format!("{line} {word}"), size) <= limit => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(fitted(word, size, limit)),
        }
    }
    lines
}
