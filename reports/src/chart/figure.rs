//! A figure: panels in a grid under a title and one legend.

use std::path::{Path, PathBuf};

use super::frame::Area;
use super::legend::Legend;
use super::shape::{Anchor, Canvas, Label};
use super::style::INK;
use super::{Content, Panel, bars, curves, font, paint};
use crate::error::{ReportError, Result};
use crate::file::write_whole;

const MARGIN: f64 = 14.0;
const TITLE: f64 = 16.0;
const PANEL_GAP: f64 = 18.0;

/// Panels that are shown together.
#[derive(Clone, Debug)]
pub struct Figure {
    title: String,
    panels: Vec<Panel>,
    columns: usize,
    panel_size: (f64, f64),
}

impl Figure {
    /// Panels below each other.
    pub fn new(title: impl Into<String>, panels: Vec<Panel>) -> Self {
        Self { title: title.into(), panels, columns: 1, panel_size: (860.0, 340.0) }
    }

    /// Puts `columns` panels side by side.
    #[must_use]
    pub fn columns(mut self, columns: usize) -> Self {
        self.columns = columns.max(1);
        self
    }

    /// Sets the width and height of each panel, in logical pixels (860 by 340 otherwise).
    #[must_use]
    pub fn panel_size(mut self, width: u32, height: u32) -> Self {
        self.panel_size = (f64::from(width), f64::from(height));
        self
    }

    /// The title.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// The figure as an SVG document.
    ///
    /// # Errors
    /// It could not be drawn.
    pub fn svg(&self) -> Result<String> {
        let (canvas, size) = self.layout();
        paint::svg(&canvas, size).map_err(|reason| self.error(reason))
    }

    /// The figure as a PNG file of twice its logical size.
    ///
    /// # Errors
    /// It could not be drawn.
    pub fn png(&self) -> Result<Vec<u8>> {
        let (canvas, size) = self.layout();
        paint::png(&canvas, size).map_err(|reason| self.error(reason))
    }

    /// Writes `folder/stem.svg` and, with `png`, `folder/stem.png`; returns what was written.
    ///
    /// # Errors
    /// It could not be drawn, or a file not written. A file is whole or not there.
    pub fn write(&self, folder: &Path, stem: &str, png: bool) -> Result<Vec<PathBuf>> {
        let mut written = vec![write_whole(&folder.join(format!("{stem}.svg")), self.svg()?.as_bytes())?];
        if png {
            written.push(write_whole(&folder.join(format!("{stem}.png")), &self.png()?)?);
        }
        Ok(written)
    }

    /// The figure's shapes and its size.
    pub(super) fn layout(&self) -> (Canvas, (f64, f64)) {
        let mut canvas = Canvas::default();
        let columns = self.columns.min(self.panels.len().max(1));
        let rows = self.panels.len().div_ceil(columns);
        let (width, height) = self.panel_size;
        let total_width = 2.0 * MARGIN + columns as f64 * (width + PANEL_GAP) - PANEL_GAP;
        let mut top = MARGIN;
        if !self.title.is_empty() {
            let title = font::fitted(&self.title, TITLE, total_width - 2.0 * MARGIN);
            canvas.text(Label::new(title, (MARGIN, top + TITLE), TITLE, INK, Anchor::Start));
            top += TITLE + 12.0;
        }
        let legend = Legend::new(&self.panels, total_width - 2.0 * MARGIN);
        legend.draw(MARGIN, top, &mut canvas);
        top += legend.height();
        for (index, panel) in self.panels.iter().enumerate() {
            let left = MARGIN + (index % columns) as f64 * (width + PANEL_GAP);
            let top = top + (index / columns) as f64 * (height + PANEL_GAP);
            let outer = Area { left, top, right: left + width, bottom: top + height };
            match &panel.content {
                Content::Lines(series) => curves::draw(panel, series, true, outer, &mut canvas),
                Content::Points(series) => curves::draw(panel, series, false, outer, &mut canvas),
                Content::Bars(bars) => bars::draw(panel, bars, outer, &mut canvas),
            }
        }
        let total_height = top + rows as f64 * (height + PANEL_GAP) - PANEL_GAP + MARGIN;
        (canvas, (total_width.ceil(), total_height.ceil()))
    }

    fn error(&self, reason: String) -> ReportError {
        ReportError::Plot { plot: self.title.clone(), reason }
    }
}

#[cfg(test)]
impl Figure {
    /// Panics if a label leaves the figure, or touches another.
    pub(crate) fn check_labels(&self) {
        let (canvas, (width, height)) = self.layout();
        let labels = canvas.shapes.iter().filter_map(|shape| match shape {
            super::shape::Shape::Text(label) => Some((label.bounds(), &label.text)),
            _ => None,
        });
        let labels: Vec<_> = labels.collect();
        for (index, ([left, top, right, bottom], text)) in labels.iter().enumerate() {
            let inside = *left >= 0.0 && *top >= 0.0 && *right <= width && *bottom <= height;
            assert!(inside, "{}: \"{text}\" leaves the figure", self.title);
            for ([l, t, r, b], other) in &labels[..index] {
                let apart = left >= r || right <= l || top >= b || bottom <= t;
                assert!(apart, "{}: \"{text}\" and \"{other}\" overlap", self.title);
            }
        }
    }
}
