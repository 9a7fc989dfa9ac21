//! Whether a run's clock can count it: nanoseconds in 64 bits are 584 years.
//!
//! A bandwidth in the wrong unit makes a step take longer than that. So before anything runs, the requests are served one
//! after the other on paper. Together they take less time, unless they are preempted, and for that there is room.

use engine::profile::Profile;
use engine::scheduler::Pressure;

use crate::run::plan::{Plan, PlanError, fault};

/// Work in seconds at most: 158 years. Arrivals may take 31 years more.
const WORK_MAX_S: f64 = 5e9;

/// Checks that the plan's device, and its physical floor if that is run, serve the requests within the clock's time.
///
/// # Errors
/// They do not: the profile's numbers are wrong, or the requests too many or too long.
pub(crate) fn check(plan: &Plan) -> Result<(), PlanError> {
    within(plan, &plan.profile, "on this device")?;
    if !plan.scenario.output.floor {
        return Ok(());
    }
    let (floor, place) = (plan.at_floor().profile, "at this device's physical floor");
    floor.check().map_err(|error| fault("profile", format!("{place}: {error}")))?;
    within(plan, &floor, place)
}

fn within(plan: &Plan, profile: &Profile, place: &str) -> Result<(), PlanError> {
    let config = &plan.schedulers[0].config;
    let limit = u64::from(config.max_context_tokens);
    let alone = Alone { profile, plan };
    // Nobody who is longer is served, so for most plans no request needs to be looked at.
    if f64::from(plan.workload.requests()) * alone.seconds(config.max_context_tokens, config.max_context_tokens)
        <= WORK_MAX_S
    {
        return Ok(());
    }
    let served = plan.workload.arrivals().filter(|arrival| arrival.request.max_tokens() <= limit);
    let work_s: f64 = served.map(|arrival| alone.seconds(arrival.request.prompt_tokens, arrival.output_tokens)).sum();
    if work_s <= WORK_MAX_S {
        return Ok(());
    }
    let reason = format!(
        "one after the other the requests would take {work_s:.1e} s {place}, and a run can count {WORK_MAX_S:.0e} s (158 years): a \
         core step of one row takes {:.1e} ms there; check the units of the profile's numbers, or serve fewer or shorter requests",
        profile.core_ms(1, 1)
    );
    Err(fault("profile", reason))
}

/// A device that serves one request at a time.
struct Alone<'a> {
    profile: &'a Profile,
    plan: &'a Plan,
}

impl Alone<'_> {
    /// The prompt in chunks of M tokens; every output token at full depth over all of the request's KV, in stages of their own
    /// with the host's work for each; and its KV moved as far as the scenario moves any.
    fn seconds(&self, prompt_tokens: u32, output_tokens: u32) -> f64 {
        let Self { profile, plan } = self;
        let (model, kv) = (&plan.model, &plan.scenario.kv);
        let (loops, output) = (f64::from(model.r_max.0), f64::from(output_tokens));
        let tokens = prompt_tokens.saturating_add(output_tokens);
        let entries = profile.kv_entries([tokens]);
        let row = profile.buckets.pad(1);
        let chunks = f64::from(prompt_tokens.div_ceil(plan.schedulers[0].config.max_num_batched_tokens));
        let prefill_ms = chunks * profile.prefill_ms([(0, 1)]) + profile.prefill_ms([(0, prompt_tokens)]);
        let stages_ms =
            profile.prelude_ms(row, entries) + loops * profile.core_ms(row, entries) + profile.coda_ms(row, entries);
        let host_us = profile.host.build_us + profile.host.build_row_us + profile.host.launch_us + profile.host.read_us;
        let launch_ms = (profile.stage_overhead_us + host_us) / 1e3;
        let launches = chunks + output * (loops + 2.0);
        let ms = |bytes: u64, gb_per_s: f64| bytes as f64 / (gb_per_s * 1e6);
        let there_and_back_ms = match kv.pressure {
            Pressure::Offload => {
                2.0 * f64::from(tokens) * ms(model.kv_bytes_per_token(kv.layout), profile.transfer.offload_gb_per_s)
            }
            Pressure::Reserve | Pressure::Recompute => 0.0,
        };
        let copies_ms = match kv.plane_copies {
            true => output * loops * ms(model.core_kv_bytes(), profile.transfer.plane_copy_gb_per_s),
            false => 0.0,
        };
        (prefill_ms + output * stages_ms + launches * launch_ms + there_and_back_ms + copies_ms) / 1e3
    }
}
