//! Confidence: the same comparison with other seeds, and with other coefficients that the profile's measurements allow.

use engine::interval::student_t_95;
use engine::profile::{Covariance, Profile, StageCost};
use reports::{Confidence, Measures, SchedulerReport};

use crate::parallel::try_map;
use crate::run::compare;
use crate::run::plan::{Plan, PlanError};
use crate::run::serve::{Discard, serve};

/// What the scenario's repeats say, if it asks for any; `first` is the run with its own seed.
///
/// # Errors
/// A seed gives no requests.
pub fn confidence(plan: &Plan, first: &[SchedulerReport]) -> Result<Option<Confidence>, PlanError> {
    let seeds = plan.seeds();
    if seeds.len() < 2 {
        return Ok(None);
    }
    let others = try_map(seeds.len() - 1, |repeat| Ok(measured(&plan.with_seed(seeds[repeat + 1])?)))?;
    let mut repeats: Vec<Vec<Measures>> = first.iter().map(|run| vec![Measures::from(run)]).collect();
    for run in others {
        repeats.iter_mut().zip(run).for_each(|(scheduler, measures)| scheduler.push(measures));
    }
    let covariance = plan.profile.fit.as_ref().and_then(|fit| fit.covariance);
    Ok(Some(Confidence { seeds, repeats, profile: covariance.map(|covariance| by_profile(plan, &covariance)) }))
}

/// The figures of every scheduler; nothing is written.
fn measured(plan: &Plan) -> Vec<Measures> {
    let mut plan = plan.clone();
    plan.scenario.output.floor = false;
    let Ok(schedulers) = compare::compare(&plan, |planned| serve(&plan, planned, &mut Discard));
    schedulers.iter().map(Measures::from).collect()
}

/// Half-widths by scheduler and figure, to first order in the core's coefficients.
///
/// Along each column of the covariance's factor the comparison is run one standard deviation to either side, on the same
/// requests. A schedule is a step function of times online, so a step of that size says more than a derivative would; offline
/// the batches do not depend on times at all, and first order is nearly exact.
fn by_profile(plan: &Plan, covariance: &Covariance) -> Vec<Vec<Option<f64>>> {
    let columns: Vec<[f64; 4]> = factor(&covariance.matrix).into_iter().filter(|column| *column != [0.0; 4]).collect();
    let Ok(sides) = try_map(2 * columns.len(), |side| {
        let sign = if side % 2 == 0 { 1.0 } else { -1.0 };
        let core = moved(&plan.profile.core, &columns[side / 2].map(|change| sign * change));
        let profile = Profile { core, ..plan.profile.clone() };
        Ok::<_, std::convert::Infallible>(measured(&Plan { profile, ..plan.clone() }))
    });
    let t = student_t_95(covariance.degrees as usize);
    let half_width = |scheduler: usize, figure: usize| {
        let value = |side: &Vec<Measures>| side[scheduler].values()[figure];
        let halves = sides.chunks(2).map(|pair| Some((value(&pair[0])? - value(&pair[1])?) / 2.0));
        let squares: Option<f64> = halves.map(|half| Some(half?.powi(2))).sum();
        squares.map(|squares| t * squares.sqrt())
    };
    let figures = 0..Measures::ALL.len();
    let schedulers = 0..plan.schedulers.len();
    schedulers.map(|scheduler| figures.clone().map(|figure| half_width(scheduler, figure)).collect()).collect()
}

/// No cost can be negative.
fn moved(cost: &StageCost, change: &[f64; 4]) -> StageCost {
    let StageCost { delta_ms, floor_ms, gamma_us, alpha_ns } = *cost;
    let [delta_ms, floor_ms, gamma_us, alpha_ns] =
        [delta_ms + change[0], floor_ms + change[1], gamma_us + change[2], alpha_ns + change[3]].map(|c| c.max(0.0));
    StageCost { delta_ms, floor_ms, gamma_us, alpha_ns }
}

/// The columns of the Cholesky factor; a coefficient without variance of its own has a column of zeros.
fn factor(matrix: &[[f64; 4]; 4]) -> [[f64; 4]; 4] {
    let mut columns = [[0.0_f64; 4]; 4];
    for j in 0..4 {
        let left = |i: usize| matrix[i][j] - (0..j).map(|k| columns[k][i] * columns[k][j]).sum::<f64>();
        let pivot = left(j);
        // The matrix is rounded to six digits: less than this is a sum of roundings.
        if pivot <= 1e-5 * matrix[j][j] {
            continue;
        }
        let column = std::array::from_fn(|i| if i < j { 0.0 } else { left(i) / pivot.sqrt() });
        columns[j] = column;
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_covariance_is_the_square_of_its_factor() {
        // The floor is 0.5 times gamma: no variance of its own.
        let rows = [[4.0, 1.0, 2.0, 0.0], [1.0, 0.5, 1.0, 0.0], [2.0, 1.0, 2.0, 0.0], [0.0; 4]];
        let columns = factor(&rows);
        for i in 0..4 {
            for j in 0..4 {
                let product: f64 = columns.iter().map(|column| column[i] * column[j]).sum();
                assert!((product - rows[i][j]).abs() < 1e-12, "{i} {j}: {product}");
            }
        }
        assert_eq!((columns[2], columns[3]), ([0.0; 4], [0.0; 4]));
    }
}
