//! Colours, dashes and markers.

/// An sRGB colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Color(pub(super) u8, pub(super) u8, pub(super) u8);

/// Text and axes. The page repaints this and the next in dark mode, by their values; PAPER where it is the background.
pub(super) const INK: Color = Color(0x22, 0x22, 0x22);
pub(super) const GRID: Color = Color(0xdd, 0xdd, 0xdd);
pub(super) const PAPER: Color = Color(0xff, 0xff, 0xff);
/// Text on light colours, which stay light in dark mode.
const BLACK: Color = Color(0, 0, 0);
pub(super) const REFERENCE: Color = Color(0x77, 0x77, 0x77);

/// Okabe and Ito's palette, without its yellow, which is too light for lines, and with grey for black.
const PALETTE: [Color; 7] = [
    Color(0x00, 0x72, 0xb2),
    Color(0xd5, 0x5e, 0x00),
    Color(0x00, 0x9e, 0x73),
    Color(0xcc, 0x79, 0xa7),
    Color(0xe6, 0x9f, 0x00),
    Color(0x56, 0xb4, 0xe9),
    Color(0x66, 0x66, 0x66),
];

/// Lengths of dash, gap, dash, gap; as many as colours, so that both repeat together.
const DASHES: [&[f64]; 7] = [
    &[],
    &[9.0, 4.0],
    &[3.0, 3.0],
    &[10.0, 3.0, 3.0, 3.0],
    &[16.0, 4.0],
    &[6.0, 2.0],
    &[12.0, 3.0, 3.0, 3.0, 3.0, 3.0],
];

/// What stands at points of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Marker {
    Disc,
    Square,
    Triangle,
    Diamond,
    Wedge,
    Plus,
}

const MARKERS: [Marker; 6] =
    [Marker::Disc, Marker::Square, Marker::Triangle, Marker::Diamond, Marker::Wedge, Marker::Plus];

/// How a line is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stroke {
    pub(super) color: Color,
    pub(super) width: f64,
    pub(super) dash: &'static [f64],
}

impl Stroke {
    pub(super) const fn solid(color: Color, width: f64) -> Self {
        Self { color, width, dash: &[] }
    }

    /// A series' line.
    pub(super) fn series(style: usize) -> Self {
        Self { color: color(style), width: 1.8, dash: DASHES[style % DASHES.len()] }
    }

    /// A line to compare with.
    pub(super) const fn reference() -> Self {
        Self { color: REFERENCE, width: 1.4, dash: DASHES[1] }
    }
}

pub(super) fn color(style: usize) -> Color {
    PALETTE[style % PALETTE.len()]
}

pub(super) fn marker(style: usize) -> Marker {
    MARKERS[style % MARKERS.len()]
}

impl Color {
    /// The colour of text on this one.
    pub(super) fn contrast(self) -> Self {
        let Self(r, g, b) = self;
        let luma = 299 * u32::from(r) + 587 * u32::from(g) + 114 * u32::from(b);
        if luma < 140_000 { PAPER } else { BLACK }
    }
}
