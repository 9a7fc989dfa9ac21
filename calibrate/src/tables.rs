//! A calibration as tables for a terminal.

use std::collections::BTreeMap;
use std::fmt::Write;

use engine::profile::{GraphTimes, HostCost, StageCost};
use reports::{Side, aligned};

use crate::bootstrap::Bootstrap;
use crate::boundary::Boundary;
use crate::calibration::{Calibration, form_name};
use crate::check::Errors;
use crate::cost::{COEFFICIENTS, CostFit};
use crate::depth::DepthFit;
use crate::measurements::Timed;
use crate::outside::Outside;
use crate::per_graph::{LookupTable, PerGraph};
use crate::validation::Judged;

/// Contexts at which saturation batch sizes are shown.
pub const CONTEXTS: [u32; 7] = [128, 256, 512, 1024, 2048, 4096, 8192];

/// Every fit of a calibration, in the order in which it was made.
pub fn render(calibration: &Calibration) -> String {
    let Calibration { points, core, boundary, .. } = calibration;
    let mut text = format!("tau(r) = tau_0 + tau_r r\n\n{}\n", depth_table(points));
    text += &judged_section("core", core);
    let chosen = &core.chosen().fit;
    text += &coefficients(chosen, calibration.bootstrap.as_ref());
    if let Some(PerGraph { table: LookupTable::Graphs(graphs), .. }) = &core.per_graph {
        let _ = write!(text, "\nby graph\n\n{}", graph_table(graphs));
    }
    let _ = write!(text, "\ncovariance\n\n{}", covariance_table(chosen));
    let _ = write!(text, "\nresiduals\n\n{}", residual_table(core));
    let rows = CONTEXTS.map(|context| {
        let (batch, half) = chosen.saturation_batch(context);
        let rows = |rows| or_dash(rows, |rows| format!("{rows:.1}"));
        vec![context.to_string(), rows(batch), rows(half)]
    });
    let _ = write!(text, "\nsaturation batch size\n\n{}\n", table(&["context", "B*", "+- 95%"], rows));
    text += &boundary_section(boundary);
    if let Some(overhead) = calibration.stage_overhead {
        let (mean, half) = (overhead.mean_us, or_dash(overhead.half_width_us, |us| format!("{us:.1}")));
        let _ = writeln!(text, "stage overhead: {mean:.1} +- {half} us over {} points (95%)\n", overhead.points);
    }
    if let Some(prefill) = &calibration.prefill {
        text += &judged_section("prefill", &prefill.judged);
        let _ = writeln!(text, "{}", cost_table([("prefill", prefill.judged.chosen().fit.stage_cost())]));
        if prefill.tile_pairs > 0.0 {
            let _ = writeln!(text, "tiles: N_c is at least {:.0} times the longest sequence\n", prefill.tile_pairs);
        }
        let _ = writeln!(text, "residuals\n\n{}", prefill_residuals(&prefill.judged));
    }
    if let Some(HostCost { build_us, build_row_us, launch_us, read_us }) = calibration.host {
        let values = [build_us, build_row_us, launch_us, read_us].map(digits);
        let _ =
            writeln!(text, "host\n\n{}", table(&["build us", "per row us", "launch us", "read us"], [values.to_vec()]));
    }
    if let Some(rate) = calibration.offload_gb_per_s {
        let _ = writeln!(text, "offload: {} GB/s\n", digits(rate));
    }
    text
}

/// What a check found, by stage.
pub fn check_table(errors: &BTreeMap<Timed, Errors>) -> String {
    let rows = errors.iter().map(|(timed, Errors { points, mean, worst, worst_at })| {
        let chunk = if worst_at.tokens > 0 { format!(", {} new tokens", worst_at.tokens) } else { String::new() };
        vec![
            timed.to_string(),
            points.to_string(),
            format!("{:.2}%", mean * 1e2),
            format!("{:+.2}%", worst * 1e2),
            format!("batch {}, context {}{chunk}", worst_at.batch, worst_at.context),
        ]
    });
    table(&["stage", "points", "mean error", "worst", "at"], rows)
}

fn depth_table(points: &[DepthFit]) -> String {
    let rows = points.iter().map(|point| {
        vec![
            point.context.to_string(),
            point.batch.to_string(),
            point.times.to_string(),
            format!("{:.4}", point.tau_0_ms),
            format!("{:.4}", point.tau_r_ms),
            format!("{:.6}", point.r_squared),
        ]
    });
    table(&["context", "batch", "times", "tau_0 ms", "tau_r ms", "R^2"], rows)
}

/// How each form does, and which one was chosen.
/// What a calibration from outside found: a whole step at full depth, and a single prompt's first token.
pub fn outside(found: &Outside) -> String {
    let mut text = judged_section("a whole step at full depth", &found.step);
    text += &coefficients(&found.step.chosen().fit, None);
    let _ = write!(text, "\nresiduals\n\n{}", residual_table(&found.step));
    text += &format!("\n{}", judged_section("first token of a single prompt", &found.prefill.judged));
    text += &coefficients(&found.prefill.judged.chosen().fit, None);
    let _ = writeln!(text, "\nresiduals\n\n{}", prefill_residuals(&found.prefill.judged));
    text
}

/// A fit's coefficients with their intervals.
fn coefficients(fit: &CostFit, bootstrap: Option<&Bootstrap>) -> String {
    let rows = COEFFICIENTS.iter().enumerate().filter(|&(i, _)| fit.estimated[i]).map(|(i, name)| {
        let half = fit.half_width(i).unwrap_or(f64::NAN);
        let value = fit.coefficients[i];
        let resampled = bootstrap
            .map_or("-".into(), |bootstrap| format!("{} .. {}", digits(bootstrap.low[i]), digits(bootstrap.high[i])));
        let relative = or_dash(half / value * 1e2, |percent| format!("{percent:.2}%"));
        vec![(*name).into(), digits(value), digits(half), relative, resampled]
    });
    table(&["coefficient", "value", "+- 95%", "relative", "bootstrap 95%"], rows) + &held_at_zero(fit)
}

fn judged_section(name: &str, judged: &Judged) -> String {
    let lines_are_best = judged.per_graph.is_none();
    let mark = |form| if judged.form == form && lines_are_best { "chosen" } else { "" };
    let rows = [Some(&judged.linear), judged.roofline.as_ref()].into_iter().flatten().map(|candidate| {
        let form = candidate.fit.shape.form;
        vec![
            form_name(form).into(),
            format!("{:.3}%", candidate.error_mean() * 1e2),
            format!("{:.3}%", candidate.error_max() * 1e2),
            format!("{:.6}", candidate.fit.r_squared),
            mark(form).into(),
        ]
    });
    let per_graph = judged.per_graph.iter().map(|fit| {
        let [mean, worst] = [fit.error_mean(), fit.error_max()].map(|error| format!("{:.3}%", error * 1e2));
        vec!["per graph".into(), mean, worst, "-".into(), "chosen".into()]
    });
    let forms = table(&["form", "left-out mean", "left-out worst", "R^2", ""], rows.chain(per_graph));
    let formula = "delta + gamma N_b + alpha N_c, or with max(floor, gamma N_b), or a table for each graph";
    format!("{name}: {formula}, {} points\n\n{forms}\n", judged.samples.len())
}

fn held_at_zero(fit: &CostFit) -> String {
    let linear = [true, false, true, fit.shape.reads_kv];
    let held = COEFFICIENTS.iter().enumerate().filter(|&(i, _)| linear[i] && !fit.estimated[i]);
    held.map(|(_, name)| format!("{name} would be negative and was held at zero\n")).collect()
}

fn covariance_table(fit: &CostFit) -> String {
    let estimated: Vec<usize> = (0..COEFFICIENTS.len()).filter(|&i| fit.estimated[i]).collect();
    let header: Vec<&str> = [""].into_iter().chain(estimated.iter().map(|&i| COEFFICIENTS[i])).collect();
    let rows = estimated.iter().map(|&i| {
        let values = estimated.iter().map(|&j| format!("{:.3e}", fit.covariance[i][j]));
        [COEFFICIENTS[i].to_owned()].into_iter().chain(values).collect()
    });
    table(&header, rows)
}

fn residual_table(judged: &Judged) -> String {
    let rows = judged.samples.iter().zip(judged.left_out()).map(|(sample, left_out)| {
        let fit_ms = judged.time_ms(sample);
        vec![
            sample.context.to_string(),
            sample.batch.to_string(),
            format!("{:.0}", sample.rows),
            format!("{:.4}", sample.time_ms),
            format!("{fit_ms:.4}"),
            format!("{:+.2}%", (fit_ms - sample.time_ms) / sample.scale_ms * 1e2),
            left_out.map_or("-".into(), |error| format!("{:+.2}%", error * 1e2)),
        ]
    });
    table(&["context", "batch", "N_b", "time ms", "fit ms", "error", "left out"], rows)
}

fn graph_table(graphs: &[GraphTimes]) -> String {
    let rows = graphs.iter().map(|graph| {
        let times = graph.at.iter().map(|(entries, ms)| format!("{entries}: {ms:.4}")).collect::<Vec<_>>();
        vec![graph.rows.to_string(), times.join(", ")]
    });
    table(&["graph", "N_c: ms"], rows)
}

fn prefill_residuals(judged: &Judged) -> String {
    let rows = judged.samples.iter().zip(judged.left_out()).map(|(sample, left_out)| {
        let fit_ms = judged.time_ms(sample);
        vec![
            sample.batch.to_string(),
            sample.context.to_string(),
            format!("{:.0}", sample.rows),
            format!("{:.4}", sample.time_ms),
            format!("{fit_ms:.4}"),
            format!("{:+.2}%", (fit_ms - sample.time_ms) / sample.scale_ms * 1e2),
            left_out.map_or("-".into(), |error| format!("{:+.2}%", error * 1e2)),
        ]
    });
    table(&["sequences", "cached", "tokens", "time ms", "fit ms", "error", "left out"], rows)
}

fn boundary_section(boundary: &Boundary) -> String {
    let costs = cost_table([("prelude", boundary.prelude), ("coda", boundary.coda)]);
    let tau_0 = cost_table([("tau_0", boundary.tau_0.stage_cost())]);
    let how = match &boundary.staged {
        None => "tau_0 divided by parameters (weights, products) and layers (KV)".into(),
        Some(staged) => format!(
            "timed by themselves, less the stage overhead; left-out mean {:.2}% and {:.2}%; together {:+.4} ms from tau_0",
            staged.prelude.error_mean() * 1e2,
            staged.coda.error_mean() * 1e2,
            staged.excess_ms,
        ),
    };
    format!("prelude and coda: {how}\n\n{tau_0}\n{costs}\n")
}

fn cost_table<const N: usize>(costs: [(&str, StageCost); N]) -> String {
    let header = ["stage", COEFFICIENTS[0], COEFFICIENTS[1], COEFFICIENTS[2], COEFFICIENTS[3]];
    let rows = costs.map(|(name, cost)| {
        let values = [cost.delta_ms, cost.floor_ms, cost.gamma_us, cost.alpha_ns].map(digits);
        [name.to_owned()].into_iter().chain(values).collect()
    });
    table(&header, rows)
}

/// Five significant digits, without an exponent where it reads well.
fn digits(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude != 0.0 && !(1e-3..1e5).contains(&magnitude) {
        return format!("{value:.4e}");
    }
    let whole = magnitude.max(1.0).log10().floor() as usize;
    format!("{value:.*}", 4 - whole.min(4))
}

/// A dash for what no number says, such as the relative error of a zero.
fn or_dash(value: f64, shown: impl Fn(f64) -> String) -> String {
    if value.is_finite() { shown(value) } else { "-".into() }
}

/// Right-aligned columns.
fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let names = header.iter().map(|&name| name.to_owned()).collect();
    aligned(std::iter::repeat_n(Side::Right, header.len()), std::iter::once(names).chain(rows))
}
