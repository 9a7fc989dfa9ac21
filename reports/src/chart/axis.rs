//! Axes: from values to pixels, and the ticks that people read them by.

use crate::format::grouped;

/// An axis, as asked for.
#[derive(Clone, Debug)]
pub struct Axis {
    pub(super) label: String,
    kind: Kind,
    zero: bool,
    limits: Option<(f64, f64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Linear,
    Log,
    Log2,
}

impl Axis {
    /// A linear axis; the label tells the unit, as in `time, s`.
    pub fn linear(label: impl Into<String>) -> Self {
        Self { label: label.into(), kind: Kind::Linear, zero: false, limits: None }
    }

    /// A logarithmic axis.
    pub fn log(label: impl Into<String>) -> Self {
        Self { kind: Kind::Log, ..Self::linear(label) }
    }

    /// A logarithmic axis with ticks at powers of two, for batch sizes and the like.
    pub fn log2(label: impl Into<String>) -> Self {
        Self { kind: Kind::Log2, ..Self::linear(label) }
    }

    /// Shows zero, too (linear axes only).
    #[must_use]
    pub fn from_zero(mut self) -> Self {
        self.zero = true;
        self
    }

    /// Shows exactly this range; what lies outside is cut off.
    #[must_use]
    pub fn within(mut self, low: f64, high: f64) -> Self {
        self.limits = Some((low, high));
        self
    }

    /// Whether the axis can show a value.
    pub(super) fn takes(&self, value: f64) -> bool {
        value.is_finite() && (self.kind == Kind::Linear || value > 0.0)
    }

    /// Settles the range and the ticks, about `wanted` of them, for `values`.
    pub(super) fn scale(&self, values: impl Iterator<Item = f64>, wanted: f64) -> Scale {
        let shown = values.filter(|&value| self.takes(value));
        let (mut low, mut high) = shown.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
        let linear = self.kind == Kind::Linear;
        if low > high {
            (low, high) = if linear { (0.0, 1.0) } else { (1.0, 10.0) };
        }
        if let Some(limits) = self.limits {
            (low, high) = limits;
        }
        let scale = match self.kind {
            Kind::Linear => self.linear_scale(low, high, wanted),
            Kind::Log => log_scale(low, high, wanted),
            Kind::Log2 => log2_scale(low, high),
        };
        match self.limits {
            Some((low, high)) => scale.within(low, high),
            None => scale,
        }
    }

    fn linear_scale(&self, mut low: f64, mut high: f64, wanted: f64) -> Scale {
        if self.zero {
            (low, high) = (low.min(0.0), high.max(0.0));
        }
        if low == high {
            (low, high) = if low == 0.0 { (0.0, 1.0) } else { (low - 0.5 * low.abs(), high + 0.5 * high.abs()) };
        }
        let step = nice_step((high - low) / wanted);
        // A tick beyond the data only where the data comes close to it; otherwise a little air.
        let air = 0.03 * (high - low);
        let low = if low == 0.0 { 0.0 } else { snap(low, -air, step) };
        let high = if high == 0.0 { 0.0 } else { snap(high, air, step) };
        let (first, last) = ((low / step - 1e-9).ceil() as i64, (high / step + 1e-9).floor() as i64);
        let decimals = (-step.log10().floor()).max(0.0) as usize;
        let label = |at: f64| grouped(&format!("{at:.decimals$}")).replace('-', "−");
        let ticks = (first..=last).map(|n| n as f64 * step).map(|at| (at, label(at)));
        Scale { log: false, low, high, ticks: ticks.collect() }
    }
}

/// Moves an end of the data outwards: to the next tick if that is near, else by `air`.
fn snap(value: f64, air: f64, step: f64) -> f64 {
    let tick = if air < 0.0 { (value / step + 1e-9).floor() * step } else { (value / step - 1e-9).ceil() * step };
    if (tick - value).abs() <= 0.6 * step { tick } else { value + air }
}

/// 1, 2 or 5 times a power of ten, at least `rough`.
fn nice_step(rough: f64) -> f64 {
    let power = 10_f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= rough * (1.0 - 1e-9)).unwrap_or(10.0);
    factor * power
}

fn log_scale(low: f64, high: f64, wanted: f64) -> Scale {
    // All of 1, 2, 5 in every decade that the data touches, then what brackets the data.
    let (first, last) = (low.log10().floor() as i32 - 1, high.log10().ceil() as i32 + 1);
    let steps: Vec<f64> = (first..=last).flat_map(|e| [1.0, 2.0, 5.0].map(|factor| factor * 10_f64.powi(e))).collect();
    let below = steps.iter().copied().rfind(|&step| step <= low * 1.0001).unwrap_or(low);
    let above = steps.iter().copied().find(|&step| step >= high * 0.9999 && step > below).unwrap_or(high);
    let decades = (above / below).log10();
    let labelled = |step: &f64| {
        let mantissa = step / 10_f64.powf((step.log10() + 1e-9).floor());
        2.0 * decades <= wanted || mantissa < 1.5
    };
    let within = steps.into_iter().filter(|&step| step >= below * 0.9999 && step <= above * 1.0001);
    let ticks = within.filter(labelled).map(|step| (step, log_label(step))).collect();
    Scale { log: true, low: below, high: above, ticks }
}

/// Powers of two that bracket the data, with a label at every one, or at every second, and so on.
fn log2_scale(low: f64, high: f64) -> Scale {
    let (first, last) = ((low.log2() + 1e-9).floor() as i32, (high.log2() - 1e-9).ceil() as i32);
    let last = last.max(first + 1);
    let every = (last - first) / 10 + 1;
    let ticks = (first..=last).filter(|exponent| (exponent - first) % every == 0).map(|exponent| 2_f64.powi(exponent));
    let ticks = ticks.map(|tick| (tick, grouped(&tick.to_string()))).collect();
    Scale { log: true, low: 2_f64.powi(first), high: 2_f64.powi(last), ticks }
}

fn log_label(value: f64) -> String {
    let exponent = (value.log10() + 1e-9).floor() as i32;
    if (-4..6).contains(&exponent) {
        let decimals = (-exponent).max(0) as usize;
        return grouped(&format!("{value:.decimals$}"));
    }
    let superscript = |c: char| match c {
        '-' => '⁻',
        _ => ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'][c as usize - '0' as usize],
    };
    let power: String = exponent.to_string().chars().map(superscript).collect();
    match (value / 10_f64.powi(exponent)).round() {
        1.0 => format!("10{power}"),
        mantissa => format!("{mantissa}·10{power}"),
    }
}

/// A settled axis: its range and its ticks with their labels.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scale {
    log: bool,
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) ticks: Vec<(f64, String)>,
}

impl Scale {
    /// Places for `count` categories, one unit each, without ticks.
    pub(super) fn slots(count: usize) -> Self {
        Self { log: false, low: 0.0, high: count.max(1) as f64, ticks: Vec::new() }
    }

    /// Where a value lies between the ends, 0 to 1; beyond them at the end.
    pub(super) fn position(&self, value: f64) -> f64 {
        let at = |value: f64| if self.log { value.ln() } else { value };
        let (low, high) = (at(self.low), at(self.high));
        ((at(value) - low) / (high - low)).clamp(0.0, 1.0)
    }

    /// Whether a value lies between the ends.
    pub(super) fn shows(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    fn within(mut self, low: f64, high: f64) -> Self {
        self.ticks.retain(|&(at, _)| at >= low - 1e-9 * low.abs() && at <= high + 1e-9 * high.abs());
        Self { low, high, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis, values: &[f64]) -> String {
        let scale = axis.scale(values.iter().copied(), 6.0);
        scale.ticks.iter().map(|(_, label)| label.as_str()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn ticks_are_round_and_bracket_the_data() {
        let linear = Axis::linear("x");
        assert_eq!(labels(&linear.clone().from_zero(), &[3.0, 57.0]), "0 10 20 30 40 50 60");
        assert_eq!(labels(&linear, &[0.11, 0.19]), "0.10 0.12 0.14 0.16 0.18 0.20");
        assert_eq!(labels(&linear, &[7.0, 7.0]), "4 6 8 10");
        assert_eq!(labels(&linear, &[]), "0.0 0.2 0.4 0.6 0.8 1.0");
        assert_eq!(labels(&linear.clone().from_zero(), &[12_000.0]), "0 2,000 4,000 6,000 8,000 10,000 12,000");
        assert_eq!(labels(&linear.within(0.0, 100.0), &[1e9]), "0 20 40 60 80 100");
        let log = Axis::log("x");
        assert_eq!(labels(&log, &[0.0013, 0.3]), "0.001 0.002 0.005 0.01 0.02 0.05 0.1 0.2 0.5");
        assert_eq!(labels(&log, &[0.5, 3e7]), "1 10 100 1,000 10,000 100,000 10⁶ 10⁷");
        assert_eq!(labels(&log, &[0.0, f64::NAN, 2.0]), "2 5");
        assert_eq!(labels(&Axis::linear("x"), &[-2.9, 2.9]), "−3 −2 −1 0 1 2 3");
        assert_eq!(labels(&Axis::log2("x"), &[1.0, 100.0]), "1 2 4 8 16 32 64 128");
        assert_eq!(labels(&Axis::log2("x"), &[0.5, 0.5]), "0.5 1");
    }
}
