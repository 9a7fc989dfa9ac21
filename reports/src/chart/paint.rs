//! Paints shapes with plotters' backends.

use plotters::backend::{BitMapBackend, DrawingBackend, SVGBackend};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{FontDesc, FontStyle, FontTransform, RGBColor, ShapeStyle, TextStyle};

use super::font;
use super::shape::{Anchor, Canvas, Label, Point, Shape};
use super::style::{Color, PAPER, Stroke};

/// Backends take whole pixels; an SVG drawn at four times its size has quarter pixels.
const SVG_SCALE: f64 = 4.0;
/// Pixels of a PNG per logical pixel.
const PNG_SCALE: usize = 2;
/// A PNG's pixels are means over this many in each direction: plotters does not smooth edges.
const OVERSAMPLING: usize = 2;

/// What a backend said went wrong.
type Painted = Result<(), String>;

pub(super) fn svg(canvas: &Canvas, (width, height): (f64, f64)) -> Result<String, String> {
    let mut text = String::new();
    let size = ((width * SVG_SCALE) as u32, (height * SVG_SCALE) as u32);
    let backend = SVGBackend::with_string(&mut text, size);
    Painter { backend, scale: SVG_SCALE, vector: true }.paint(canvas, size)?;
    let drawn = format!("<svg width=\"{}\" height=\"{}\"", size.0, size.1);
    match text.strip_prefix(&drawn) {
        Some(rest) => Ok(format!("<svg width=\"{width}\" height=\"{height}\"{rest}")),
        None => Err("plotters began the SVG in an unknown way".into()),
    }
}

pub(super) fn png(canvas: &Canvas, (width, height): (f64, f64)) -> Result<Vec<u8>, String> {
    let (columns, rows) = (width as usize * PNG_SCALE, height as usize * PNG_SCALE);
    let size = ((columns * OVERSAMPLING) as u32, (rows * OVERSAMPLING) as u32);
    let mut fine = vec![0; 3 * columns * rows * OVERSAMPLING * OVERSAMPLING];
    let backend = BitMapBackend::with_buffer(&mut fine, size);
    let scale = (PNG_SCALE * OVERSAMPLING) as f64;
    Painter { backend, scale, vector: false }.paint(canvas, size)?;
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, columns as u32, rows as u32);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    // Flat colours compress best as they are.
    encoder.set_filter(png::FilterType::NoFilter);
    encoder.set_compression(png::Compression::Default);
    let written =
        encoder.write_header().and_then(|mut writer| writer.write_image_data(&smoothed(&fine, columns, rows)));
    written.map_err(|error| error.to_string())?;
    Ok(bytes)
}

/// Means over squares of two by two pixels.
///
/// Plain loops over plain indices: this is most of a PNG's time, and an unoptimised build inlines no iterator.
fn smoothed(fine: &[u8], columns: usize, rows: usize) -> Vec<u8> {
    const { assert!(OVERSAMPLING == 2) };
    let (line, mut pixels) = (3 * 2 * columns, vec![0; 3 * columns * rows]);
    let mut row = 0;
    while row < rows {
        let above = &fine[2 * row * line..][..line];
        let below = &fine[(2 * row + 1) * line..][..line];
        let out = &mut pixels[3 * row * columns..][..3 * columns];
        let (mut from, mut to) = (0, 0);
        while to < out.len() {
            let mut channel = 0;
            while channel < 3 {
                let (left, right) = (from + channel, from + channel + 3);
                let sum =
                    u16::from(above[left]) + u16::from(above[right]) + u16::from(below[left]) + u16::from(below[right]);
                out[to + channel] = (sum / 4) as u8;
                channel += 1;
            }
            from += 6;
            to += 3;
        }
        row += 1;
    }
    pixels
}

struct Painter<B> {
    backend: B,
    scale: f64,
    /// An SVG, whose viewer draws lines and text by itself.
    vector: bool,
}

impl<B: DrawingBackend> Painter<B> {
    fn paint(mut self, canvas: &Canvas, (width, height): (u32, u32)) -> Painted {
        if !font::register() {
            return Err("the embedded font cannot be read".into());
        }
        let paper = self.backend.draw_rect((0, 0), (width as i32, height as i32), &fill(PAPER), true);
        paper.map_err(|error| error.to_string())?;
        for shape in &canvas.shapes {
            match shape {
                Shape::Line(points, stroke) => self.line(points, *stroke)?,
                Shape::Area(points, color) => {
                    let points: Vec<(i32, i32)> = points.iter().map(|&point| self.pixel(point)).collect();
                    self.backend.fill_polygon(points, &fill(*color)).map_err(|error| error.to_string())?;
                }
                Shape::Disc(center, radius, color) => self.disc(*center, *radius, *color)?,
                Shape::Text(label) => self.text(label)?,
            }
        }
        self.backend.present().map_err(|error| error.to_string())
    }

    fn pixel(&self, (x, y): Point) -> (i32, i32) {
        ((x * self.scale).round() as i32, (y * self.scale).round() as i32)
    }

    fn disc(&mut self, center: Point, radius: f64, color: Color) -> Painted {
        let (center, radius) = (self.pixel(center), (radius * self.scale).round() as u32);
        self.backend.draw_circle(center, radius, &fill(color), true).map_err(|error| error.to_string())
    }

    fn line(&mut self, points: &[Point], stroke: Stroke) -> Painted {
        for dash in dashes(points, stroke.dash) {
            let mut path: Vec<(i32, i32)> = dash.iter().map(|&point| self.pixel(point)).collect();
            path.dedup();
            let Color(r, g, b) = stroke.color;
            let width = (stroke.width * self.scale).round().max(1.0) as u32;
            let style = ShapeStyle { color: RGBColor(r, g, b).into(), filled: false, stroke_width: width };
            if self.vector {
                self.backend.draw_path(path, &style).map_err(|error| error.to_string())?;
                continue;
            }
            // plotters' own joints of wide lines have spikes; round ones have none.
            for pair in path.windows(2) {
                self.backend.draw_line(pair[0], pair[1], &style).map_err(|error| error.to_string())?;
            }
            for &joint in path.iter().skip(1).take(path.len().saturating_sub(2)) {
                let drawn = self.backend.draw_circle(joint, width / 2, &fill(stroke.color), true);
                drawn.map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }

    fn text(&mut self, label: &Label) -> Painted {
        let em = label.size * self.scale;
        // plotters measures a font's size differently in its two backends, and hangs text from its top: an SVG's baseline
        // lies 0.76 em below that, a bitmap's half a size.
        let (size, baseline) = if self.vector {
            (1.24 * em, 0.76 * em)
        } else {
            (font::HEIGHT_PER_EM * em, font::HEIGHT_PER_EM * em / 2.0)
        };
        let (x, y) = (label.at.0 * self.scale, label.at.1 * self.scale);
        let (x, y) = if label.turned { (x - baseline, y) } else { (x, y - baseline) };
        let h_pos = match label.anchor {
            Anchor::Start => HPos::Left,
            Anchor::Middle => HPos::Center,
            Anchor::End => HPos::Right,
        };
        let turn = if label.turned { FontTransform::Rotate270 } else { FontTransform::None };
        let Color(r, g, b) = label.color;
        let color = RGBColor(r, g, b);
        let style = TextStyle::from(FontDesc::new(font::FAMILY, size, FontStyle::Normal).transform(turn))
            .color(&color)
            .pos(Pos::new(h_pos, VPos::Top));
        let at = (x.round() as i32, y.round() as i32);
        self.backend.draw_text(&label.text, &style, at).map_err(|error| error.to_string())
    }
}

fn fill(Color(r, g, b): Color) -> ShapeStyle {
    ShapeStyle { color: RGBColor(r, g, b).into(), filled: true, stroke_width: 0 }
}

/// Cuts a line into its dashes; all of it, if the pattern is empty.
fn dashes(points: &[Point], pattern: &[f64]) -> Vec<Vec<Point>> {
    let (Some(&first), false) = (points.first(), pattern.is_empty()) else { return vec![points.to_vec()] };
    let mut dashes = Vec::new();
    let mut dash = vec![first];
    let (mut part, mut left) = (0, pattern[0]);
    for pair in points.windows(2) {
        let (from, to) = (pair[0], pair[1]);
        let length = (to.0 - from.0).hypot(to.1 - from.1);
        let mut done = 0.0;
        while length - done > left {
            done += left;
            let share = done / length;
            let at = (from.0 + share * (to.0 - from.0), from.1 + share * (to.1 - from.1));
            if part % 2 == 0 {
                dash.push(at);
                dashes.push(std::mem::take(&mut dash));
            } else {
                dash = vec![at];
            }
            part = (part + 1) % pattern.len();
            left = pattern[part];
        }
        left -= length - done;
        if part % 2 == 0 {
            dash.push(to);
        }
    }
    if dash.len() > 1 {
        dashes.push(dash);
    }
    dashes
}
